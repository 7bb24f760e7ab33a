"""What the kernel tests share: cases and their generation, comparison with bounds, compilation for absent cards."""
