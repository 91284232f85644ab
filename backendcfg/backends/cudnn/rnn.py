"""`torch.backends.cudnn.rnn`: the precision of recurrent layers, and what old models import.

What it does on a GPU was read in PyTorch's sources, not run.
"""

from __future__ import annotations

from backendcfg.backends.base import ContextProp, FlagProperty, PropModule, become, effective
from backendcfg.errors import InvalidArgumentError, MissingLibraryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    fp32_precision: str

__all__ = [
    "ContextProp",
    "CudnnRNNModule",
    "Unserializable",
    "get_cudnn_mode",
    "init_dropout_state",
]

_PRECISION = "cudnn.rnn.fp32_precision"
_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}
"""cudnnRNNMode_t, from cuDNN's header cudnn_adv.h."""


def get_cudnn_mode(mode: str) -> int:
    """The number that cuDNN gives a kind of recurrent layer.

    Raises:
        InvalidArgumentError: not "RNN_RELU", "RNN_TANH", "LSTM" or "GRU".
    """
    try:
        return _MODES[mode]
    except (KeyError, TypeError):
        raise InvalidArgumentError(
            f"`mode` must be one of {', '.join(_MODES)}, not {mode!r}"
        ) from None


class Unserializable:
    """Holds a value that is lost when it is pickled, as old models hold their dropout state."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def get(self) -> Any:
        """The value; None after unpickling."""
        return self.inner

    def __getstate__(self) -> str:
        return "<unserializable>"

    def __setstate__(self, state: str) -> None:
        self.inner = None


def init_dropout_state(
    dropout: float, train: bool, dropout_seed: int, dropout_state: dict[str, Unserializable]
) -> Any:
    """The dropout state of cuDNN on the current device, made when it is not there.

    Only PyTorch can make one, so this asks the PyTorch that the program has imported.

    Args:
        dropout: the probability; 0 needs no state.
        train: false means no dropout.
        dropout_seed: of its generator.
        dropout_state: where it is kept, by device; None is kept where there is no dropout.

    Raises:
        MissingLibraryError: PyTorch with cuDNN is not loaded in this process.
    """
    import sys

    from backendcfg.backends import base

    if not base.ask_torch(lambda torch: torch.backends.cudnn.is_available()):
        raise MissingLibraryError(
            "a dropout state is made by PyTorch with cuDNN, which is not loaded in this process",
            helps=["import a PyTorch that was built for CUDA first"],
        )
    make = sys.modules["torch.backends.cudnn.rnn"].init_dropout_state
    return make(dropout, train, dropout_seed, dropout_state)


class CudnnRNNModule(PropModule):
    """`backendcfg.backends.cudnn.rnn` with its assignable flag."""

    fp32_precision = FlagProperty(_PRECISION, lambda: effective(_PRECISION))


become(__name__, CudnnRNNModule)
