"""Fourier transforms of device arrays, by cuFFT."""
