"""Finding flags by what people call them: our names, PyTorch's, variables, words of the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.schema import profile
from backendcfg.schema.describe import Kind
from backendcfg.schema.torch_backends import INITIALS

if TYPE_CHECKING:
    from backendcfg.schema.base import FlagField

OTHER_NAMES = {
    "fp32_precision": "torch.set_float32_matmul_precision",
    "cuda.matmul.fp32_precision": "torch.set_float32_matmul_precision",
    "mkldnn.matmul.fp32_precision": "torch.set_float32_matmul_precision",
    "threads.count": "torch.set_num_threads OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS",
    "threads.interop": "torch.set_num_interop_threads",
    "determinism.algorithms": "torch.are_deterministic_algorithms_enabled",
    "determinism.fill_uninitialized_memory": "torch.utils.deterministic",
    "quantized.engine": "torch.backends.quantized.supported_engines",
    "seed.numpy": "np.random.seed",
    "seed.python": "random.seed",
}
"""What else people call a flag, where nothing of it says so."""


def flags(words: str) -> tuple[str, ...]:
    """The flag of this name; else those that every word leads to, first whose name says it.

    Args:
        words: `"tf32"`, `"allow_tf32"`, `"torch.backends.cudnn.benchmark"`, `"deterministic
            algorithms"`. Each is looked for, in lower case, in names, summaries and values.
    """
    asked = [word.removeprefix("torch.backends.") for word in words.lower().split()]
    if len(asked) == 1 and asked[0] in profile.flags():
        return (asked[0],)
    ranked: dict[str, int] = {}
    for name, field in profile.flags().items():
        ranks = [_rank(word, name, field) for word in asked]
        if ranks and None not in ranks:
            ranked[name] = max(rank for rank in ranks if rank is not None)
    return tuple(sorted(ranked, key=lambda name: ranked[name]))


def _rank(word: str, name: str, field: FlagField) -> int | None:
    """How closely a word leads to a flag: 0 is its name, None not at all."""
    parts = name.split(".")
    if word in (name, parts[-1]):
        return 0
    if word in parts:
        return 1
    places = (name, _other_names(name, field), field.flag.summary, _values(field))
    for rank, text in enumerate(places, start=2):
        if word in text.lower():
            return rank
    return None


def _other_names(name: str, field: FlagField) -> str:
    """PyTorch's functions, older spellings, and variables that set the flag."""
    names = [OTHER_NAMES.get(name, "")]
    names += [field.flag.calls.format(verb) for verb in ("get", "set") if field.flag.calls]
    names += [each.variable for each in INITIALS if each.flag == name]
    names += [
        other
        for other, spelling in profile.flags().items()
        if any(name in meant for meant in spelling.flag.spells.values())
    ]
    return " ".join(names)


def _values(field: FlagField) -> str:
    """The words that the flag takes, or in an array, but for those that many flags take."""
    kind = Kind.field(field.info)
    element = kind.at([0])
    values = kind.literals() + (element.literals() if element else ())
    return " ".join({str(value) for value in values} - {"none", "default", "auto"})
