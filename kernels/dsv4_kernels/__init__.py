"""DeepSeek-V4's sparse-MLA decode, indexer, top-k and hyper-connection kernels in Triton, with their torch references."""
