"""Products of device arrays, by cuBLAS, cuBLASLt, hipBLAS and hipBLASLt."""
