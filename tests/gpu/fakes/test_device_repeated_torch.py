"""Repeated calls with PyTorch's own tensors, run as a program of their own."""

from pathlib import Path

import pytest
from programs import run

PROGRAM = Path(__file__).with_name("torch_repeated_on_device.py")
FILES = ("libexchange.so", "libcuda.so.1", "libcufft.so.12", "libcudnn.so.9")


@pytest.mark.torch
def test_repeated_calls_with_pytorchs_tensors_are_pytorchs(device_file):
    said = run(PROGRAM, *(device_file(file) for file in FILES)).splitlines()
    assert len(said) == 15
    assert said[-1] == "no tensor is kept"
