"""Convolution of device arrays, by cuDNN."""
