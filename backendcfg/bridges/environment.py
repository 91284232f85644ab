"""Environment variables of other software: for a child process, and for this one.

Which flag decides which variable is one table, `backendcfg.catalogue.variables`. The rule for all
of it: a variable is touched only when the profile asks for the flag that it carries. It is then
set; or, where the flag's value means "let the library choose", removed; and so are the variables
that would decide the same thing in its place.
"""

from __future__ import annotations

import os
import sys

from backendcfg import environ
from backendcfg.bridges import imports, xla_flags
from backendcfg.catalogue import variables as table
from backendcfg.catalogue import xla_text
from backendcfg.catalogue.cpu import BLIS, MKL, ONEDNN, OPENBLAS
from backendcfg.catalogue.frameworks import CUPY, JAX, NUMBA, NUMPY, TENSORFLOW, TORCH
from backendcfg.catalogue.gpu import CUBLAS, CUDNN, NCCL
from backendcfg.probe import limits, loaded
from backendcfg.records import record, replace
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    from backendcfg.catalogue.variables import Variable
    from backendcfg.transact.protocol import Latch, Reach


FRAMEWORK: str | None = None


def variables(
    values: Mapping[str, Any],
    asked: Collection[str],
    libraries: Iterable[Mapping[str, Any]] = (),
) -> dict[str, str | None]:
    """What a child process needs in its environment; None means that it must be unset.

    Args:
        values: every flag with its value; `threads.count` is a number.
        asked: the flags that somebody set; variables of other flags are left alone.
        libraries: the host's libraries as `schema.host.Library` dumps them; BLIS files among
            them are asked, in child processes, what number selects a kernel set.

    Raises:
        MissingLibraryError: no BLIS here has the kernel set asked for.
    """
    result: dict[str, str | None] = {}
    initial: dict[str, str] = {}
    for row in table.VARIABLES:
        if row.flag not in asked or row.flag not in values:
            continue
        result.update(dict.fromkeys(row.rivals))
        text = row.encode(values[row.flag])
        if row.flag == "blas.blis.arch_type" and text is not None:
            files = [str(each["path"]) for each in libraries if each.get("kind") == BLIS.name]
            if not files:
                continue
            from backendcfg.bridges.blis_architectures import number

            text = number(text, files)
        result[row.name] = text
        if row.initial and text is not None:
            initial[row.name] = text
    need = table.tf32_override(values, asked)
    if need is not None and need[1] == "1":
        # A 0 denies TF32 to every NVIDIA library, whatever a framework is told.
        result[table.TF32_OVERRIDE] = None
    if "environment" in asked:
        result.update(values.get("environment") or {})
    if (flags := xla_flags.text_for(values, asked)) is not None:
        result[xla_text.VARIABLE] = flags
    # So that a process below does not take them for its user's wishes.
    return {**result, **environ.carried(initial)}


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The same variables as switches of this process, each with the reason why it is too late.

    A variable that a running library can be told about by a call instead is never too late: the
    pools' own switches act on what is loaded, the variable on what will be and on child processes.
    """
    own = (values.get("environment") or {}) if "environment" in asked else {}
    result = []
    for row in table.VARIABLES:
        if row.flag not in asked or row.flag not in values or row.for_children or row.name in own:
            continue
        result += [
            Setting(EnvironmentVariable(rival, row, None), None, row.flag, remedy)
            for rival in row.rivals
            if environ.foreign([rival])
        ]
        text = row.encode(values[row.flag])
        if row.flag == "blas.blis.arch_type" and text is not None:
            # Which number it would be depends on the file that is loaded one day; for those that
            # are, the pools' bridge compares the kernels that run.
            continue
        by_affinity = row.name in ("NPROC", "NUMBA_NUM_THREADS")
        known = replace(row, unset=str(_allowed())) if by_affinity else row
        result.append(Setting(EnvironmentVariable(row.name, known, text), text, row.flag, remedy))
    need = table.tf32_override(values, asked)
    if need is not None and need[1] == "1" and environ.foreign([table.TF32_OVERRIDE]):
        row = table.Variable(need[0], table.TF32_OVERRIDE, "before-first-use", CUBLAS.name)
        result.append(Setting(EnvironmentVariable(row.name, row, None), None, need[0], remedy))
    result += xla_flags.setting(values, asked, remedy)
    for variable, text in own.items():
        if variable == xla_text.VARIABLE:
            continue
        switch = EnvironmentVariable(variable, _own(variable), text)
        result.append(Setting(switch, text, "environment", remedy))
    return result


def before_interpreter(values: Mapping[str, Any], asked: Collection[str]) -> dict[str, str | None]:
    """The variables that this interpreter should have been started with, and was not."""
    return {
        setting.switch.name: setting.wanted
        for setting in settings(values, asked)
        if setting.switch.latch == "before-process" and setting.switch.read() != setting.wanted
    }


def contradictions(
    values: Mapping[str, Any],
    asked: Collection[str],
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """The variables of an environment (this process's) that contradict the plan, in words."""
    return table.contradictions(
        values, asked, environ.copy() if environment is None else environment
    )


class Meaning(str):
    """A variable's text that means the same to its reader as the wanted text.

    It compares equal to the wanted text, to the text that the variable really has (`text`), and to
    another reading of the same text. Writing it back restores `text`.
    """

    __slots__ = ("text",)
    text: str | None

    @classmethod
    def of(cls, wanted: str | None, text: str | None) -> Meaning | None:
        """The reading of a variable that holds `text`."""
        if wanted is None:
            return None
        made = cls(wanted)
        made.text = text
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Meaning):
            return self.text == other.text
        return other == self.text or str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


_held: dict[str, tuple[str | None, str]] = {}
"""What libraries read from variables that were written since: the text, and who read it."""


@record(frozen=True)
class EnvironmentVariable:
    """One variable of this process; None stands for unset, as does the empty text.

    A text that means the same to its reader as the wanted one reads as the wanted one.
    """

    name: str
    row: Variable
    wanted: str | None
    reach: Reach = "process"
    reversible: bool = True

    @property
    def latch(self) -> Latch:
        return self.row.latch  # type: ignore[return-value]  # one of the catalogue

    def read(self) -> str | None:
        at_start = self.row.latch == "before-process"
        get = started_with().get if at_start else environ.current().get
        found = get(self.name) or None
        return Meaning.of(self.wanted, found) if self._is_wanted(found) else found

    def _is_wanted(self, text: str | None) -> bool:
        return self.name == self.row.name and self.row.says(text, self.wanted)

    def write(self, value: str | None) -> None:
        limits.note_processors()
        if who := self._has_been_read():
            text = environ.current().get(self.name) or None
            before, reader = _held.get(self.name, (text, who))
            # Where libraries read different texts, no text is what they have.
            same = reader and (reader == who or text == before)
            _held[self.name] = (before, who if same else "")
        environ.put(self.name, value.text if isinstance(value, Meaning) else value)

    def too_late(self) -> str:
        who = self._has_been_read()
        text, reader = _held.get(self.name, (None, ""))
        has_wanted = reader == who and (text == self.wanted or self._is_wanted(text))
        return "" if has_wanted else who

    def _has_been_read(self) -> str:
        """Who has read the variable when it was loaded, in words; "" where nobody has."""
        if not self.row.runtime:
            return _READERS[self.row.reader]()
        if not imports.may_have_libraries():
            return ""
        from backendcfg.bridges.pool_calls import inventory
        from backendcfg.bridges.verbose import SCOPED_FLAGS, library_levels

        if self.row.flag in SCOPED_FLAGS:
            what, missing = ".verbose", library_levels().missing
        else:
            what = ".dynamic" if self.row.flag == "threads.dynamic" else ".threads"
            missing = inventory().missing
        return "; ".join(
            f"{switch.removesuffix(what)} read it when loaded, and no call replaces it: {because}"
            for switch, because in missing.items()
            if switch.startswith(f"{self.row.reader}[") and switch.endswith(what)
        )

    def lasting(self) -> str:
        """Why whoever has read the value keeps it when the variable is given back, or ""."""
        because = self._has_been_read()
        return f"{because}; nothing takes that back" if because else ""

    def kept(self) -> str:
        """Why its reader must find it as it is now, or ""."""
        who = self.row.kept and self._has_been_read()
        return f"{who}, and {self.row.kept}" if who else ""


def kept() -> dict[str, str]:
    """The variables that must stay as they are, whoever set them, each with the reason."""
    rows = [row for row in table.VARIABLES if row.kept]
    found = {row.name: EnvironmentVariable(row.name, row, None).kept() for row in rows}
    return {name: why for name, why in found.items() if why}


def started_with() -> Mapping[str, str]:
    """The variables that the interpreter itself saw when it started.

    Not `os.environ`, which may have changed since, and nothing under `python -E` or `-I`.
    """
    if sys.flags.ignore_environment:
        return {}
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return environ.copy()
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if entry)
    return {name: text for name, _, text in pairs}


def _own(name: str) -> Variable:
    """A variable of the profile's own table: whose it is, if that is known, else the program's."""
    for row in table.VARIABLES:
        if row.name == name:
            return table.Variable("environment", name, row.latch, row.reader)
    if name == "NPY_DISABLE_CPU_FEATURES":
        return table.Variable("environment", name, "before-import", NUMPY.name)
    return table.Variable("environment", name, "before-process", "interpreter")


def _allowed() -> int:
    """The processors that this process may use, which count where nobody tells another number."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _interpreter() -> str:
    return "this interpreter has started"


def _started(*kinds: str) -> Callable[[], str]:
    def reason() -> str:
        if not imports.may_have_libraries():
            return ""
        from backendcfg.bridges.pool_calls import inventory

        labels = [label for label, kind in inventory().started.items() if kind in kinds]
        return f"{', '.join(labels)} read it when loaded" if labels else ""

    return reason


def _module(framework: str) -> Callable[[], str]:
    def reason() -> str:
        return f"{framework} is imported already" if framework in sys.modules else ""

    return reason


def _onednn() -> str:
    return _module(TORCH.name)() or _module(TENSORFLOW.name)()


def _cublas() -> str:
    """A cuBLAS handle exists at the earliest when some framework has initialised CUDA."""
    torch = sys.modules.get(TORCH.name)
    if torch is not None and imports.is_imported(TORCH.name):
        return "torch has initialised CUDA" if torch.cuda.is_initialized() else ""
    if any("libcublas." in os.path.basename(path) for path in loaded.mapped_files()):
        return "libcublas is loaded already"
    return ""


def _cudnn() -> str:
    """PyTorch reads the limit at its first convolution with cuDNN."""
    torch = sys.modules.get(TORCH.name)
    begun = imports.is_imported(TORCH.name) and torch is not None and torch.cuda.is_initialized()
    return "torch has initialised CUDA" if begun else ""


def _nccl() -> str:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and imports.is_imported("torch.distributed"):
        begun = distributed.is_available() and distributed.is_initialized()
        return "torch.distributed has made its communicators" if begun else ""
    return ""


_READERS: dict[str, Callable[[], str]] = {
    "interpreter": _interpreter,
    OPENBLAS.name: _started(OPENBLAS.name),
    MKL.name: _started(MKL.name, "mkl_rt"),
    "mkl_rt": _started("mkl_rt"),
    BLIS.name: _started(BLIS.name),
    "openmp": _started("openmp"),
    NUMPY.name: _module(NUMPY.name),
    TORCH.name: _module(TORCH.name),
    TENSORFLOW.name: _module(TENSORFLOW.name),
    ONEDNN.name: _onednn,
    CUBLAS.name: _cublas,
    CUDNN.name: _cudnn,
    NCCL.name: _nccl,
    JAX.name: xla_flags.started,
    CUPY.name: _module(CUPY.name),
    NUMBA.name: _module(NUMBA.name),
}
