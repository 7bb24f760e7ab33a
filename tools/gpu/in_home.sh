#!/usr/bin/env bash
# A command from a checkout that is not installed, in a home of its own: in_home.sh HOME GPUS COMMAND...
#
# HOME keeps the compile caches and generated models, so that two runs on different GPUs (CUDA's numbers, say 0 or 0,1) leave
# each other alone; they share the host's measuring lock, which keeps every other run out. JIT_CACHES=FILE.txz fills the caches
# of a new one. SGLang has to be on PYTHONPATH. Where there is no git, PERFGATE_COMMIT names the commit for the results. COMMAND
# runs in the checkout's root.
set -eu
[ $# -ge 3 ] || { sed -n 2,7p "$0"; exit 2; }
home=$1 gpus=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$home" && home=$(cd "$home" && pwd) && cd "$root"
if [ -n "${JIT_CACHES:-}" ] && [ ! -e "$home/.filled" ]; then
  tar -C "$home" -xJf "$JIT_CACHES" && touch "$home/.filled"
fi
"${PYTHON:-python3}" tools/gpu/make_entry_point.py "$home/entry-point" >/dev/null
# Any of these would put the caches of all homes into one place.
. tools/gpu/jit_caches.sh
unset XDG_CACHE_HOME PERFGATE_CACHE "${jit_variables[@]}"
export HOME=$home CUDA_VISIBLE_DEVICES=$gpus PYTHONUNBUFFERED=1 PERFGATE_SHARE_HOST=1
export PYTHONPATH=$home/entry-point:$root:$root/kernels${PYTHONPATH:+:$PYTHONPATH}
exec "$@"
