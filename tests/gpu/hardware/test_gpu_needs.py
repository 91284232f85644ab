"""Why the other files of this folder were not read, where they were not."""

import pytest
from gpu_needs import missing


def test_the_tests_on_a_gpu_can_run(pytestconfig):
    if why := missing(pytestconfig):
        pytest.skip(why)
