#!/bin/bash
# Builds an offline Python site for a GPU host that reaches no package registry: SGLang 0.5.15.post1 with
# what DeepSeek-V4 needs on Hopper, packed in three archives of less than 64 MiB each.
#
#   make_site.sh OUT            writes OUT/site-1.txz, OUT/site-2.txz, OUT/site-3.txz  (3 to 6 minutes on 2 cores)
#   make_site.sh OUT --peers    writes OUT/peers.txz alone: FlashMLA (sgl_kernel) and DeepGEMM, enough to race kernels against
#                               (run on an H200 on 2026-11-30)
#
# On the GPU host (Python 3.12, torch 2.11.0+cu130, x86-64), in any order, then:
#   for f in site-*.txz; do tar xJf $f -C $SITE; done
#   export PYTHONPATH=$SITE/nvidia_cutlass_dsl/python_packages:$SITE
#
# Left out on purpose, to stay small: FlashAttention-3 (flash_ops, 1.7 GB), the sm_100 build of sgl_kernel,
# FlashInfer's cubins, xgrammar and llguidance (start the server with --grammar-backend none).
set -euo pipefail
out=$(realpath -m "${1:?usage: make_site.sh OUT}")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

tags=(--python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none --only-binary=:all:)
for n in 2_39 2_34 2_31 2_28 2_27 2_26 2_24 2_17 2_5; do tags+=(--platform "manylinux_${n}_x86_64"); done
tags+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64 --platform any)
pip_install() { python3 -m pip install -q --no-deps --no-compile --ignore-requires-python "${tags[@]}" --target "$@"; }

if [ "${2:-}" = --peers ]; then
  pip_install "$work/site" sgl_deep_gemm==0.1.4 apache_tvm_ffi==0.1.11
else
  pip_install "$work/site" -r "$here/../../requirements/gpu-site.txt"
fi
rm -rf "$work"/site/{bin,pycountry/locales,jedi/third_party}

# sgl_kernel: one wheel of 600 MB, of which Hopper needs 35 MB
python3 -m pip download -q --no-deps "${tags[@]}" -d "$work" sglang-kernel==0.4.4
python3 - "$work" <<'PY'
import glob, sys, zipfile
work = sys.argv[1]
with zipfile.ZipFile(glob.glob(f"{work}/sglang_kernel-*.whl")[0]) as wheel:
    names = [n for n in wheel.namelist() if not n.endswith("flash_ops.abi3.so") and "/sm100/" not in n]
    wheel.extractall(f"{work}/site", names)
PY

pack() { xz -T2 -6 > "$out/$1.txz"; }
if [ "${2:-}" = --peers ]; then
  tar -C "$work/site" -cf - . | pack peers
  ls -l "$out"
  exit
fi

# CuTe DSL: deepseek_v2 imports it on any CUDA device; the CUDA 13 build lies over the base one
pip_install "$work/cute" nvidia-cutlass-dsl==4.5.2 nvidia-cutlass-dsl-libs-base==4.5.2
python3 -m pip download -q --no-deps "${tags[@]}" -d "$work" nvidia-cutlass-dsl-libs-cu13==4.5.2
python3 -m zipfile -e "$work"/nvidia_cutlass_dsl_libs_cu13-*.whl "$work/cute"
rm -f "$work"/cute/nvidia_cutlass_dsl/lib/*.a

find "$work/site" "$work/cute" -name __pycache__ -prune -exec rm -rf {} +
tar -C "$work/site" -cf - tilelang z3 tvm_ffi | pack site-1
tar -C "$work/site" --anchored --exclude=./tilelang --exclude=./z3 --exclude=./tvm_ffi -cf - . | pack site-2
tar -C "$work/cute" -cf - . | pack site-3
ls -l "$out"
