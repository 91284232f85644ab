"""Products with 2:4 sparse matrices on a device, by cuSPARSELt."""
