#!/usr/bin/env bash
# The gate in a home of its own (in_home.sh says what that is): gate.sh HOME GPUS RECIPE [pytest's arguments]
set -eu
[ $# -ge 3 ] || { sed -n 2p "$0"; exit 2; }
home=$1 gpus=$2 recipe=$3
shift 3
exec "$(dirname "$0")/in_home.sh" "$home" "$gpus" "${PYTHON:-python3}" -m pytest tests/perf -m perf -p no:cacheprovider --recipe "$recipe" "$@"
