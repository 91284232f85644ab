"""From measured times to who serves which sizes. Pure: opens nothing, reads nothing.

Two rules keep a table from doing harm. A lead that is no larger than the noise counts for nothing:
the order stays. And threads of two libraries that wait by spinning, on the same cores, slow each
other down many times over, so with several threads one pool serves every size that is worth
threads; another pool takes its place only for a clear lead over all of them.
"""

from __future__ import annotations

from backendcfg.native import FACTORISATIONS, NOT_MEASURED, OPERATIONS, ROUTINES, SIZE_CLASSES
from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from backendcfg.dispatch.calibration import Measured, Table

LEAD = 1.05
"""How many times faster one must be to be preferred, when nothing varies from turn to turn."""

POOL_LEAD = 1.25
"""How many times faster, over all sizes, another library's threads must be to take over."""

FEWEST_TURNS = 3
"""How often both must have been measured before one may lead the other."""

FEWEST_PAIRS = 8
"""How much must be measured before other threads may take over."""

PARALLEL = {"gemm": 16, "gemv": 12, **{name: 16 for names in ROUTINES for name in names}}
"""The class of sizes from which libraries may use their threads, below what any is known to."""

MEASURED = (*OPERATIONS, *FACTORISATIONS)
"""Everything that a table may say something of."""


@record(frozen=True)
class Decision:
    """Who serves what by speed.

    Attributes:
        fastest: `{operation: {size class: provider}}`, for the classes that were measured.
        pool: whose threads serve the sizes that are worth threads, or "" when any may.
    """

    fastest: dict[str, dict[int, str]] = field(default_factory=dict)
    pool: str = ""

    def named(self) -> set[str]:
        """Everybody who serves something."""
        return {name for row in self.fastest.values() for name in row.values()}

    def positions(self, names: Sequence[str], threads: int) -> dict[str, bytes]:
        """For each operation the position in `names` of who serves each class of sizes.

        A class that was not measured goes as its nearest neighbour, the smaller one of two; what
        is worth threads never goes as what is not. Matrices too small for threads are not measured
        for factorisations: there our own code serves, or the first of the order.
        """
        found = {}
        for operation, row in self.fastest.items():
            classes = [_nearest(row, size, operation, threads) for size in range(SIZE_CLASSES)]
            found[operation] = bytes(
                names.index(row[near]) if near in row and row[near] in names else NOT_MEASURED
                for near in classes
            )
        return found


def decide(table: Table, names: Sequence[str]) -> Decision:
    """Who of some providers serves which sizes.

    Args:
        table: what was measured.
        names: the providers that may serve, in the order that holds where none leads.
    """
    measured = [name for name in names if name in table.libraries]
    if not measured or measured[0] != names[0]:
        return Decision()  # the one that serves otherwise was not measured: nobody leads it
    pools = {name: table.libraries[name].pool for name in measured}
    chosen = _pool(table, measured, pools) if table.threads > 1 else ""
    fastest: dict[str, dict[int, str]] = {}
    for operation in MEASURED:
        rows = dict(sorted(table.times.get(operation, {}).items()))
        able = _able(operation, rows, measured)
        pool = _pool_of(able, pools, chosen)
        own = [name for name in able if pool and pools[name] == pool]
        if own:  # its threads serve also what there was no time to measure
            rows.setdefault(PARALLEL[operation[1:]], {})
        for size, row in rows.items():
            may = able
            if own and is_parallel(operation, size):
                known = any(name in row for name in own)
                may = [n for n in able if pools[n] in ("", pool)] if known else own[:1]
            if name := lead(row, may):
                fastest.setdefault(operation, {})[size] = name
    return Decision(fastest, chosen)


def _able(
    operation: str, rows: Mapping[int, Mapping[str, Measured]], names: list[str]
) -> list[str]:
    """Who competes: a library that has products alone is in nobody's way for factorisations."""
    if operation not in FACTORISATIONS or not rows:
        return names
    return [name for name in names if any(name in row for row in rows.values())]


def _pool_of(names: Sequence[str], pools: Mapping[str, str], chosen: str) -> str:
    """Whose threads serve an operation: the chosen ones, or where they cannot, the first other."""
    own = [pools[name] for name in names if pools[name]]
    return chosen if not chosen or chosen in own else next(iter(own), "")


def is_parallel(operation: str, size: int) -> bool:
    """Whether libraries may use their threads for an operation on this class of sizes."""
    return size >= PARALLEL[operation[1:]]


def lead(row: Mapping[str, Measured], names: Sequence[str]) -> str:
    """The first of some providers that the fastest does not lead by more than the noise.

    "" when the first was not measured and there are others; a single one needs no time.
    """
    if len(names) == 1:
        return names[0]
    known = [name for name in names if name in row]
    if not known or known[0] != names[0]:
        return ""
    best = min(known, key=lambda name: _seconds(row[name]))
    return next(name for name in known if name == best or not _leads(row[best], row[name]))


def _leads(one: Measured, other: Measured) -> bool:
    if min(one.turns, other.turns) < FEWEST_TURNS:
        return False
    noise = one.spread + other.spread
    return other.seconds > one.seconds * max(LEAD, 1 + 2 * noise)


def _pool(table: Table, names: Sequence[str], pools: Mapping[str, str]) -> str:
    """Whose threads serve: those of the first provider that has any, unless others lead clearly."""
    own = [pools[name] for name in names if pools[name]]
    if not own:
        return ""
    ratios = {pool: _over_all(table, names, pools, own[0], pool) for pool in own}
    best = max(ratios, key=lambda pool: ratios[pool])
    return best if ratios[best] >= POOL_LEAD else own[0]


def _over_all(
    table: Table, names: Sequence[str], pools: Mapping[str, str], mine: str, other: str
) -> float:
    """How many times faster another pool is over all that both were measured for.

    The geometric mean over what is worth threads; what is lost in noise counts as equal.
    """
    product, count = 1.0, 0
    for home, away in _pairs(table, names, pools, mine, other):
        if min(home.turns, away.turns) < FEWEST_TURNS:
            continue
        if _leads(home, away) or _leads(away, home):
            product *= home.seconds / away.seconds
        count += 1
    return float(product ** (1 / count)) if count >= FEWEST_PAIRS else 1.0


def _pairs(
    table: Table, names: Sequence[str], pools: Mapping[str, str], mine: str, other: str
) -> Iterator[tuple[Measured, Measured]]:
    for operation, rows in table.times.items():
        for size, row in rows.items():
            if operation not in MEASURED or not is_parallel(operation, size):
                continue
            home = [row[name] for name in names if name in row and pools[name] == mine]
            away = [row[name] for name in names if name in row and pools[name] == other]
            if home and away:
                yield min(home, key=_seconds), min(away, key=_seconds)


def _seconds(measured: Measured) -> float:
    return measured.seconds


def _nearest(row: Mapping[int, str], size: int, operation: str, threads: int) -> int:
    """The measured class next to one, or -1."""
    side = [
        near
        for near in sorted(row)
        if (threads == 1 and operation in OPERATIONS)
        or is_parallel(operation, near) == is_parallel(operation, size)
    ]
    return min(side, key=lambda near: abs(near - size), default=-1)
