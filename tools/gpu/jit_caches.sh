# Sourced by the other scripts: the compile caches below a home that serve another machine too, and the variables that would put
# them elsewhere. Both are perfgate/jit_caches.py's.
# shellcheck shell=bash disable=SC2034
jit_folders=(.triton .tilelang .cache/tvm-ffi .cache/deep_gemm .cache/flashinfer .cache/torchinductor .cache/torch_extensions
  .cache/cutlass_python_cache)
jit_variables=(TRITON_CACHE_DIR TILELANG_CACHE_DIR TVM_FFI_CACHE_DIR SGLANG_DG_CACHE_DIR DG_JIT_CACHE_DIR
  FLASHINFER_WORKSPACE_BASE FLASHINFER_CUBIN_DIR TORCHINDUCTOR_CACHE_DIR TORCH_EXTENSIONS_DIR CUTE_DSL_CACHE_DIR
  SGLANG_CACHE_DIR)

pack_jit() { # HOME TAR-OPTION...: the caches that are there
  local folder found=() home=$1
  for folder in "${jit_folders[@]}"; do [ -d "$home/$folder" ] && found+=("$folder"); done
  [ ${#found[@]} -eq 0 ] || tar -C "$home" "${@:2}" "${found[@]}"
}
