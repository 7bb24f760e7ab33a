#!/usr/bin/env bash
# The correctness tests on a GPU with 500 examples a property: tools/gpu/deep.sh OUT [SECONDS [WORKERS [FILE...]]]
#
# OUT gets junit.xml, log.txt, results.jsonl (a line a test as it ends, whole even if the time runs out) and summary.txt
# (a line a file, and every failure's last lines), which is also printed last. Exit status 0: every test ran and passed.
# Nearly every example of the decode is a specialisation of its own that Triton compiles (about a second): if the time
# runs out, name files to run the rest in a second call. A property's examples are drawn in four parts, so that workers
# share them. Needs torch, triton, pytest, pytest-xdist, hypothesis and filelock; nothing is installed.
set -u
out=${1:?usage: tools/gpu/deep.sh OUT [SECONDS [WORKERS [FILE...]]]}
seconds=${2:-540}
workers=${3:-12}
files=("${@:4}")
[ ${#files[@]} -gt 0 ] || files=(tests/correctness)
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out" && out=$(cd "$out" && pwd) && cd "$root" || exit 2
unset TRITON_INTERPRET
export HYPOTHESIS_PROFILE=deep DSV4_PROPERTY_PARTS=${DSV4_PROPERTY_PARTS:-4} DEEP_RESULTS=$out/results.jsonl
export PYTHONPATH=$root/tools/gpu:$root:$root/kernels${PYTHONPATH:+:$PYTHONPATH}
# Workers share the processors: one thread each for the inputs that torch draws on the CPU.
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
: >"$DEEP_RESULTS"
# The root conftest.py serves the performance tiers and asks for more packages than these tests need.
timeout --signal=INT --kill-after=20 "$seconds" "${PYTHON:-python3}" -m pytest "${files[@]}" --confcutdir=tests/correctness \
    -p deep_report -p no:cacheprovider -n "$workers" --dist loadgroup -q --tb=short --junitxml="$out/junit.xml" \
    >"$out/log.txt" 2>&1
code=$?
tail -n 15 "$out/log.txt"
"${PYTHON:-python3}" tools/gpu/deep_report.py "$DEEP_RESULTS" "$code" | tee "$out/summary.txt"
exit "${PIPESTATUS[0]}"
