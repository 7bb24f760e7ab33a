#!/usr/bin/env bash
# The gate over a list of recipes on one GPU (or some), one after the other: campaign.sh OUT SECONDS GPUS RECIPE...
#
#   tools/gpu/campaign.sh OUT 510 0 v4mini-patched v4mini-patched v4mini-patched-1m &
#   tools/gpu/campaign.sh OUT 510 1 v4mini-stock v4mini-fallback & wait
#
# Nothing is begun after SECONDS, and what runs then is interrupted like by Ctrl-C, so that its report is written: that
# takes some 20 s, and 75 at most, since a server may take 60 to stop. After each recipe OUT/gpuGPUS.tar gains a folder
# NUMBER-RECIPE with result.json, summary.md, report.html, what pytest said and the server's log, whatever became of it;
# OUT/gpuGPUS.txt a line. A recipe named twice is a second start. GATE_ARGS are pytest's further arguments (default:
# --samples 5 --record); OUT/baselines-gpuGPUS.tar keeps the baselines, with what the checkout's held before. Home, and with it
# the compile caches, is $HOMES-GPUS, by default /tmp/gate-home-GPUS (JIT_CACHES fills a new one).
set -u
[ $# -ge 4 ] || { sed -n 2,12p "$0"; exit 2; }
out=$1 seconds=$2 gpus=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out" && out=$(cd "$out" && pwd)
tag=gpu${gpus//,/-}
home=${HOMES:-/tmp/gate-home}-${gpus//,/-}
work=$(mktemp -d)
# A later call with the same OUT goes on with what earlier ones recorded.
[ -f "$out/baselines-$tag.tar" ] && tar -C "$work" -xf "$out/baselines-$tag.tar"
end=$((SECONDS + seconds)) number=0 failed=0
# shellcheck disable=SC2206
args=(${GATE_ARGS:---samples 5 --record})
case " ${args[*]} " in *" --record "*) args+=(--reason "measured by tools/gpu/campaign.sh") ;; esac
for recipe in "$@"; do
  number=$((number + 1))
  left=$((end - SECONDS))
  name=$(printf '%02d-%s' "$number" "$recipe")
  if [ "$left" -lt 60 ]; then
    echo "$name: not begun, $left s left" | tee -a "$out/$tag.txt"
    failed=1
    continue
  fi
  began=$SECONDS
  mkdir -p "$work/$name" "$work/baselines"
  before=$here/../../baselines/$recipe
  [ -e "$work/baselines/$recipe" ] || [ ! -d "$before" ] || cp -r "$before" "$work/baselines/"
  timeout --signal=INT --kill-after=75 "$left" "$here/gate.sh" "$home" "$gpus" "$recipe" "${args[@]}" \
    --baselines "$work/baselines" --report "$work/$name" >"$work/$name/pytest.txt" 2>&1
  code=$?
  [ "$code" -eq 0 ] || failed=1
  echo "$name: exit $code after $((SECONDS - began)) s" | tee -a "$out/$tag.txt"
  grep -E '^ ?[0-9]+ +[0-9,]+ ' "$work/$name/pytest.txt" | cut -c1-150 | tee -a "$out/$tag.txt"
  (cd "$work" && find "$name" -maxdepth 1 -type f -size -4M -print0 | tar --null -rf "$out/$tag.tar" -T -)
  [ -d "$work/baselines" ] && tar -C "$work" -cf "$out/baselines-$tag.tar" baselines
done
exit "$failed"
