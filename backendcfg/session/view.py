"""What is in force here and now: the active profile, and its flags, read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.errors import UnknownFlagError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.records import field, record

if TYPE_CHECKING:
    from backendcfg.transact.compiled import Compiled


@record(frozen=True)
class Active:
    """The profile in force.

    Attributes:
        name: its name, as it was asked for.
        tier: its determinism tier.
        source: who picked it: "BACKENDCFG_PROFILE", "generation 3 of the user", "a scope".
        scoped: whether an open scope of this context put it in force, rather than the process.
        compiled: its values.
    """

    name: str
    tier: str
    source: str
    scoped: bool
    compiled: Compiled = field(repr=False)

    def _repr_html_(self) -> str:
        from backendcfg.tables import html

        compiled = self.compiled
        rows = [(flag, repr(compiled.values.get(flag))) for flag in compiled.asked]
        title = f"{self.name} (tier {self.tier}), from {self.source}"
        return html(title, ("flag", "value"), rows)


def active() -> Active | None:
    """The profile in force in this thread or task: the innermost scope's, else the process's."""
    current = _native.current()
    if current is None:
        return None
    compiled: Compiled = current.payload
    scoped = bool(_native.chain())
    source = "a scope" if scoped else _source()
    return Active(compiled.name, compiled.tier, source, scoped, compiled)


def _source() -> str:
    from backendcfg.session.installed import source

    return source()


class FlagsView(Mapping[str, Any]):
    """Every flag as it is in force here, read-only.

    `flags["cudnn.benchmark"]` and `flags.cudnn.benchmark` are the same. Legacy spellings answer
    too: `flags.cuda.matmul.allow_tf32` is true when what it spells has that value.
    """

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str = "") -> None:
        object.__setattr__(self, "_prefix", prefix)

    def __getitem__(self, name: str) -> Any:
        return _lookup(f"{self._prefix}{name}")

    def __contains__(self, name: object) -> bool:
        try:
            _lookup(f"{self._prefix}{name}")
        except UnknownFlagError:
            return False
        return True

    def get(self, name: str, default: Any = None) -> Any:
        """A flag, or the default where there is no flag of that name."""
        try:
            return self[name]
        except UnknownFlagError:
            return default

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        full = self._prefix + name
        if any(flag.startswith(full + ".") for flag in _known()):
            return FlagsView(full + ".")
        try:
            return _lookup(full)
        except UnknownFlagError as error:
            raise AttributeError(str(error)) from error

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(self._read_only(name, value))

    def __setitem__(self, name: str, value: Any) -> None:
        raise TypeError(self._read_only(name, value))

    def _read_only(self, name: str, value: Any) -> str:
        return (
            f"flags are read-only: put `{self._prefix}{name}` in a profile, or call "
            f'backendcfg.apply(settings={{"{self._prefix}{name}": {value!r}}})'
        )

    def __reduce__(self) -> tuple[type[FlagsView], tuple[str]]:
        return FlagsView, (self._prefix,)

    def __iter__(self) -> Iterator[str]:
        length = len(self._prefix)
        return (flag[length:] for flag in _known() if flag.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __dir__(self) -> list[str]:
        return sorted({flag.partition(".")[0] for flag in self})

    def __repr__(self) -> str:
        return "\n".join(f"{self._prefix}{flag} = {self[flag]!r}" for flag in self)


def _known() -> Mapping[str, Any]:
    """Every flag with its value now; the defaults when nothing is in force."""
    return FlagsInForce().values


def _lookup(name: str) -> Any:
    values = _known()
    if name in values:
        return values[name]
    from backendcfg.schema.profile import flags as declared

    spelling = declared().get(name)
    if spelling is None:
        import difflib

        near = difflib.get_close_matches(name, [*values, *declared()], n=1, cutoff=0.6)
        raise UnknownFlagError(
            f"there is no flag `{name}`",
            helps=[f"did you mean `{near[0]}`?"] if near else ["see docs/profiles.md"],
        )
    on = spelling.flag.spells[True]
    return all(values[target] == value for target, value in on.items())


flags = FlagsView()
