#!/usr/bin/env bash
# Everything that needs a GPU and no quiet, at once: first_look.sh OUT SECONDS [DEEP_WORKERS]
#
# The small model's stock, patched and fallback servers on one or two GPUs, SGLang's own kernels compiled by several
# processes beside them, and (with DEEP_WORKERS above 0) the proof of the kernels. For caches and faults, not for figures.
# SGLang has to be on PYTHONPATH. OUT gets a folder a server, deep/, memcheck.txt and jit-caches.txz.
set -u
out=${1:?usage: first_look.sh OUT SECONDS [DEEP_WORKERS]}
seconds=${2:?usage: first_look.sh OUT SECONDS [DEEP_WORKERS]}
workers=${3:-0}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out" && out=$(cd "$out" && pwd) && cd "$root" || exit 2
. tools/gpu/jit_caches.sh
unset "${jit_variables[@]}" # what is compiled ahead has to be where the servers' is
python=${PYTHON:-python3}
gpus=$(nvidia-smi -L | wc -l)
last=$((gpus - 1))
work=$(mktemp -d)

CUDA_VISIBLE_DEVICES=$last timeout "$seconds" "$python" tools/gpu/prewarm.py 7 >"$out/prewarm.txt" 2>&1 &
serve() { # GPU PORT ROTATION RECIPE
  mkdir -p "$out/$4"
  CUDA_VISIBLE_DEVICES=$1 timeout --signal=INT --kill-after=20 "$seconds" "$python" tools/gpu/serve_v4mini.py --out "$out/$4" \
    --work "$work/$4" --recipes "$4" --port "$2" --rotate "$3" --lock "$work/gpu$1.lock" --shared --trace \
    --budget $((seconds - 25)) >"$out/$4/look.txt" 2>&1 &
}
serve 0 30000 0.0 v4mini-patched
serve 0 30100 0.25 v4mini-stock
serve $last 30200 0.5 v4mini-fallback-1m
serve $last 30300 0.75 v4mini-patched-1m
if [ "$workers" -gt 0 ]; then
  timeout --kill-after=20 "$seconds" compute-sanitizer --tool memcheck --error-exitcode 9 "$python" tools/gpu/memcheck.py \
    --seconds $((seconds - 60)) >"$out/memcheck.txt" 2>&1 &
  tools/gpu/deep.sh "$out/deep" $((seconds - 15)) "$workers" >"$out/deep.txt" 2>&1 &
fi
wait
pack_jit "$HOME" -cJf "$out/jit-caches.txz"
for recipe in v4mini-patched v4mini-stock v4mini-fallback-1m v4mini-patched-1m; do
  echo "== $recipe" && tail -n 14 "$out/$recipe/look.txt" | cut -c1-400
done
[ "$workers" -gt 0 ] && { echo "== memcheck"; tail -n 6 "$out/memcheck.txt" | cut -c1-300; echo "== deep"; tail -n 25 "$out/deep.txt" | cut -c1-300; }
echo "== prewarm" && tail -n 4 "$out/prewarm.txt"
