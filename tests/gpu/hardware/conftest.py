"""Tests that need a GPU and a PyTorch for CUDA: `pytest -m gpu`. Nothing else has to be installed.

Elsewhere their files are not even read, because they import PyTorch, which would then answer in the
other tests of the process; test_gpu_needs.py says why.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_needs import missing

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path, config):
    if collection_path.parent != HERE or collection_path.name == "test_gpu_needs.py":
        return None
    return True if missing(config) else None


def pytest_collection_modifyitems(config, items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            # Frameworks warn about their own parts, otherwise on every GPU.
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def cuda(pytestconfig):
    """The GPU that is tested, and how large its tests are."""
    from gpu_arrays import Cuda

    return getattr(pytestconfig, "rehearsed", None) or Cuda()


@pytest.fixture(autouse=True)
def _seeded(request):
    """The same random numbers in each test, and a failure of the device in the test that made it."""
    if missing(request.config):
        yield
        return
    cuda = request.getfixturevalue("cuda")
    cuda.seed(0)
    yield
    cuda.wait()
