"""Attention of device arrays: our own kernels and cuDNN's, forward and backward."""
