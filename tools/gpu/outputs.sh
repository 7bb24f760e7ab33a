#!/usr/bin/env bash
# Holds recipes' answers to another's on one GPU: outputs.sh OUT SECONDS GPUS REFERENCE RECIPE[=OUTCOME]...
#
#   tools/gpu/outputs.sh OUT 400 0 v4mini-answers-stock v4mini-answers-patched v4mini-broken=INVALID
#
# Nothing is begun after SECONDS. OUT/outputs-RECIPE/ gets output.json, what was printed and both servers' logs, OUT/outputs.txt
# a line with the outcome. Exit status 0: each outcome is the one named, or PASS. A recipe that is wrong on purpose is caught by
# INVALID alone (v4mini-broken): a server that did not start (MISSING) shows nothing. Home is campaign.sh's.
set -u
[ $# -ge 5 ] || { sed -n 2,8p "$0"; exit 2; }
out=$1 seconds=$2 gpus=$3 reference=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out" && out=$(cd "$out" && pwd)
end=$((SECONDS + seconds)) failed=0
for each in "$@"; do
  recipe=${each%%=*} wanted=PASS
  [ "$each" = "$recipe" ] || wanted=${each#*=}
  left=$((end - SECONDS)) folder=$out/outputs-$recipe
  if [ "$left" -lt 60 ]; then
    echo "outputs of $recipe: not begun, $left s left" | tee -a "$out/outputs.txt"
    failed=1
    continue
  fi
  began=$SECONDS
  mkdir -p "$folder" && rm -f "$folder/output.json"
  timeout --signal=INT --kill-after=75 "$left" "$here/in_home.sh" "${HOMES:-/tmp/gate-home}-${gpus//,/-}" "$gpus" \
    "${PYTHON:-python3}" -m perfgate output --recipe "$recipe" --against "$reference" --report "$folder" >"$folder/printed.txt" 2>&1
  code=$?
  outcome=$(sed -n 's/^ "outcome": "\([A-Z_]*\)".*/\1/p' "$folder/output.json" 2>/dev/null)
  said="${outcome:-no outcome}, as it has to be"
  [ "$outcome" = "$wanted" ] || { failed=1 said="${outcome:-no outcome}, and not $wanted"; }
  echo "outputs of $recipe: exit $code after $((SECONDS - began)) s: $said" | tee -a "$out/outputs.txt"
  grep -A1 -E '^. [A-Z_]+ answers' "$folder/printed.txt" | cut -c1-200 | tee -a "$out/outputs.txt"
done
exit "$failed"
