"""Linear algebra of device arrays, by cuSOLVER, hipSOLVER and MAGMA."""
