"""What NVIDIA's own cuDNN says of our graphs of attention's gradients, where its wheels are."""

from pathlib import Path

import pytest
from test_device_real_cudnn import cudnn  # noqa: F401 - a fixture
from test_device_real_cudnn_attention import asked, folders  # noqa: F401 - one is a fixture

from backendcfg.gpu.cudnn.graph import NOTES

PROGRAM = Path(__file__).with_name("real_cudnn_gradients.py")
WELL = ["plain", "float16", "repeatable", "causal, repeatable", "turned", "narrow", "everything"]


@pytest.fixture(scope="module")
def answers(cudnn, folders, tmp_path_factory):  # noqa: F811
    """By problem and device: (notes, status, workspace) of each engine's plan."""
    return asked(PROGRAM, cudnn, folders, tmp_path_factory.mktemp("driver"))


@pytest.mark.parametrize("capability", ["80", "90", "100", "120"])
@pytest.mark.parametrize("problem", WELL)
def test_it_makes_plans_of_our_graphs(answers, problem, capability):
    found = answers[problem][capability]
    assert found
    assert [status for _, status, _ in found] == [0] * len(found)


def test_no_engine_says_that_it_may_vary_though_blocks_add_to_one_sum(answers):
    notes = [
        notes for devices in answers.values() for found in devices.values() for notes, _, _ in found
    ]
    assert notes
    assert not [each for each in notes if NOTES["NONDETERMINISTIC"] in each]


def test_a_mask_of_one_number_a_row_has_gradients_on_some_devices_alone(answers):
    assert [bool(found) for found in answers["mask of rows"].values()] == [False, True, True, False]


def test_it_has_no_engine_for_widths_that_are_no_multiples_of_8(answers):
    assert [*answers["of width 12"].values()] == [[]] * 4
