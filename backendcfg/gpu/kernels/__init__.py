"""Our own CUDA kernels: their sources, their compiler, and loading them."""
