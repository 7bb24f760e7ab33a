#!/usr/bin/env bash
# Times the kernels beside their peers on this machine's GPU: tools/gpu/kernelbench.sh OUT [SECONDS [PYTEST OPTION...]]
#
# OUT gets kernelbench.json (pytest-benchmark's, every replay's time in it), log.txt and table.txt, whose first 60 lines
# are printed last. Exit status 0: everything was timed and every output of ours was right; nothing is compared with a
# baseline here (python -m perfgate kernels judge OUT/kernelbench.json does that, anywhere).
# Without further options the quick share: the shapes that have a bar. With options, those: -k decode, or --kernelbench-full,
# best in parts: --kernelbench-full --kernelbench-part 1/8. Nothing is started in the last tenth of SECONDS: the file then says
# what is left, and the exit status is 1.
# Needs torch, triton, pytest and pytest-benchmark; peers are looked for in $PEERS (default /tmp/peers) and on PYTHONPATH.
set -u
out=${1:?usage: tools/gpu/kernelbench.sh OUT [SECONDS [PYTEST OPTION...]]}
seconds=${2:-240}
options=("${@:3}")
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out" && out=$(cd "$out" && pwd) && cd "$root" || exit 2
unset TRITON_INTERPRET PYTEST_ADDOPTS
peers=${PEERS:-/tmp/peers}
[ -d "$peers" ] || echo "no peers at $peers: only those on PYTHONPATH are raced" >&2
export PYTHONPATH=$root:$root/kernels:$root/tests:$root/tests/correctness:$peers${PYTHONPATH:+:$PYTHONPATH}
case " ${options[*]-} " in
  *" --kernelbench-full "*) share=() ;;
  *) share=(--kernelbench-quick) ;;
esac
kept=()
for option in ${options[@]+"${options[@]}"}; do [ "$option" = --kernelbench-full ] || kept+=("$option"); done
# The root conftest.py serves the performance tiers and asks for more packages than a kernel's time needs.
timeout --signal=INT --kill-after=20 "$seconds" "${PYTHON:-python3}" -m pytest tests/kernelbench/test_speed.py -m kernelbench \
  --confcutdir=tests/kernelbench -p perfgate.pytest_options -p no:cacheprovider -q --tb=short \
  ${share[@]+"${share[@]}"} --kernelbench-seconds="$((${seconds%.*} * 9 / 10))" --benchmark-json="$out/kernelbench.json" --benchmark-columns=median,iqr,rounds \
  ${kept[@]+"${kept[@]}"} >"$out/log.txt" 2>&1
code=$?
[ "$code" = 0 ] || tail -n 25 "$out/log.txt"
"${PYTHON:-python3}" -m perfgate.kernelbench.show "$out/kernelbench.json" --lines 0 >"$out/table.txt" 2>&1
"${PYTHON:-python3}" -m perfgate.kernelbench.show "$out/kernelbench.json" --lines 60 || code=$((code ? code : 1))
exit "$code"
