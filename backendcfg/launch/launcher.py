"""Start instances of a command, each bound to its processors, with variables of its own.

The variables are those of its threads, and of libraries that are preloaded.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from backendcfg import childprocess, environ
from backendcfg.catalogue.cpu import LIBIOMP5
from backendcfg.errors import InvalidArgumentError
from backendcfg.launch import arrangement, bound, instances
from backendcfg.launch.arrangement import WHOLE
from backendcfg.probe import installed
from backendcfg.probe.launchers import starts_ranks
from backendcfg.probe.limits import local_rank, read_cores, read_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from backendcfg.launch.arrangement import Request, Share
    from backendcfg.launch.instances import Ended
    from backendcfg.probe.limits import Rank


COUNTS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
"""Variables that say how many threads some library starts; the first is set in every instance."""

PLACES = {"GOMP_CPU_AFFINITY": "", "OMP_PLACES": "{", "KMP_AFFINITY": "proclist"}
"""Variables that send threads to numbered processors, and what is in them when they do."""


def threads(
    environment: Mapping[str, str],
    cores: int,
    decided: Collection[str] = (),
    preset: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """What to set in an instance's environment, and what to tell about it.

    A preset count above the number of cores, or one that is none, contradicts the binding and is
    replaced; one below leaves cores idle, which may be meant, and stays. Either is told. What a
    profile says stays, and is told when there are fewer cores, or when it replaces a preset that
    contradicts the binding.

    Args:
        environment: what the instance has.
        cores: how many cores it has.
        decided: variables that its profile sets.
        preset: what the user's environment has, where the profile may have replaced it.
    """
    preset = preset or {}
    changes: dict[str, str] = {}
    notes: list[str] = []
    for name in COUNTS:
        text, given = environment.get(name), preset.get(name)
        if name in decided and given and given != text and not 0 < _count(given) <= cores:
            instead = f"the profile sets {text}" if text else "the profile unsets it"
            notes.append(f"{name}={given} contradicts {cores} bound cores; {instead}")
        if not text:
            continue
        count = _count(text)
        if name in decided:
            if count > cores:
                notes.append(f"the profile sets {name}={text}, on {cores} bound cores")
        elif not 0 < count <= cores:
            changes[name] = str(cores)
            notes.append(f"{name}={text} contradicts {cores} bound cores; instances get {cores}")
        elif count < cores:
            notes.append(f"{name}={text} is set, so {cores - count} of {cores} cores will idle")
    if not environment.get(COUNTS[0]):
        changes[COUNTS[0]] = str(cores)
    notes += [
        f"{name}={environment[name]} is set, which may send threads to cores of other instances"
        for name, mark in PLACES.items()
        if name not in decided and (text := environment.get(name)) and mark in text
    ]
    return changes, notes


def _count(text: str) -> int:
    """The number of threads that a variable asks for, of nested levels the first; 0 for none."""
    first = text.split(",", maxsplit=1)[0].strip()
    return int(first) if first.isdecimal() else 0


Preload = Literal["tcmalloc", "jemalloc", "iomp5"]

FILES: dict[Preload, tuple[str, ...]] = {
    "tcmalloc": ("libtcmalloc.so", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4"),
    "jemalloc": ("libjemalloc.so", "libjemalloc.so.2"),
    "iomp5": (f"{LIBIOMP5.name}.so",),
}

SETTINGS: dict[Preload, dict[str, str]] = {
    "tcmalloc": {},
    "jemalloc": {"MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto"},
    "iomp5": {"KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1"},
}

SOURCES: dict[Preload, str] = {
    "tcmalloc": "gperftools, or the package libtcmalloc-minimal4",
    "jemalloc": "jemalloc, or the package libjemalloc2",
    "iomp5": LIBIOMP5.listed[0],
}


def find(
    kind: Preload, environment: Mapping[str, str], root: str = "/", prefix: str = sys.prefix
) -> str:
    """The file of a library that can be preloaded, or "".

    Args:
        kind: which.
        environment: names the folders of conda and of a virtual environment.
        root: where the system's folders are found.
        prefix: the Python environment.
    """
    homes = (environment.get("CONDA_PREFIX"), environment.get("VIRTUAL_ENV"), prefix)
    user = os.path.join(os.path.expanduser("~"), ".local", "lib")
    folders = [os.path.join(home, "lib") for home in homes if home]
    folders += [user, *(os.path.join(root, path) for path in ("usr/local/lib", "usr/local/lib64"))]
    folders += [os.path.join(root, path) for path in ("usr/lib", "usr/lib64")]
    for folder in folders:
        for name in FILES[kind]:
            if os.path.isfile(path := os.path.join(folder, name)):
                return path
    try:
        known = installed.loader_cache(root)
    except (OSError, ValueError):
        return ""
    return next((known[name] for name in FILES[kind] if name in known), "")


def preload(
    kinds: Sequence[Preload],
    environment: Mapping[str, str],
    *,
    leave: Sequence[str] = (),
    root: str = "/",
    prefix: str = sys.prefix,
) -> tuple[dict[str, str], list[str]]:
    """The variables that preload libraries, and what to tell: above all, what is not installed.

    What is set already is kept, as PyTorch's launcher does, and told when it differs.

    Args:
        kinds: the libraries.
        environment: of the instances.
        leave: variables not to set.
        root: where the system's folders are found.
        prefix: the Python environment.
    """
    variables: dict[str, str] = {}
    notes: list[str] = []
    present = environment.get("LD_PRELOAD", "")
    for kind in kinds:
        if any(
            os.path.basename(item) in FILES[kind] for item in present.replace(" ", ":").split(":")
        ):
            continue
        path = find(kind, environment, root, prefix)
        if not path:
            notes.append(
                f"{FILES[kind][0]} is not installed, so it is not preloaded;"
                f" it comes with {SOURCES[kind]}"
            )
            continue
        present = ":".join(filter(None, (path, present)))
        variables["LD_PRELOAD"] = present
        for name, text in SETTINGS[kind].items():
            if name in leave:
                continue
            if environment.get(name, text) != text:
                notes.append(f"{name}={environment[name]} is set already and kept, not {text}")
            else:
                variables[name] = text
    return variables, notes


@dataclass(frozen=True)
class Options:
    """How instances are started.

    Attributes:
        request: which processors they get.
        preload: libraries to preload.
        processors: whether to bind to processors.
        memory: whether to bind to the memory of their nodes.
        log_path: the folder of their log files; "" for none.
        log_prefix: what instances are called on the terminal and in file names, with their rank.
    """

    request: Request
    preload: tuple[Preload, ...] = ()
    processors: bool = True
    memory: bool = True
    log_path: str = ""
    log_prefix: str = "run"


@dataclass(frozen=True)
class Launch:
    """Instances that are ready to be started.

    Attributes:
        command: the command and its arguments.
        shares: the processors of each.
        environments: the variables of each.
        processors: whether they are bound to processors.
        memory: whether they are bound to memory.
        notes: what their user should know.
    """

    command: tuple[str, ...]
    shares: tuple[Share, ...]
    environments: tuple[dict[str, str], ...]
    processors: bool
    memory: bool
    notes: tuple[str, ...] = ()

    def words(self, share: Share, *, supervised: bool) -> list[str]:
        """The words that start one instance; a supervised one ends when this process does."""
        return bound_command(
            self.command,
            share,
            processors=self.processors,
            memory=self.memory,
            supervised=supervised,
        )


def prepare(
    command: Sequence[str],
    options: Options,
    changes: Callable[[], Mapping[str, str | None]],
    preset: Mapping[str, str],
) -> Launch:
    """Decide what is started where.

    Args:
        command: the command and its arguments.
        options: how.
        changes: what an instance's environment has that this process's has not, None for what must
            be unset; called where this thread has no more processors than the instance will, once
            for each number of processors.
        preset: the environment of this process.

    Raises:
        InvalidArgumentError: it cannot be done on the processors that may be used here.
        CommandNotFoundError: there is no such command.
        CommandNotExecutableError: it is no program.
        BackendCfgError: what `changes` raises.
    """
    machine, limits, notes = arrangement.read(), read_limits(), []
    rank = local_rank(environ.copy()) if options.request.part == WHOLE else None
    if rank is not None and (own := read_cores(limits)).rank is not None:
        machine = machine.of_rank(rank.number, own.count)
        notes.append(f"this is {own.sentence}; it gets {machine}")
    _refuse_several(options.request.instances or 1, rank)
    arranged = arrangement.arrange(machine, options.request, limits.usable)
    _refuse_several(len(arranged.shares), rank)
    notes += arranged.notes
    if len(arranged.shares) > 1 and starts_ranks(list(command)):
        notes.append(
            f"each of the {len(arranged.shares)} instances is a launcher, whose ranks divide the"
            " cores of its instance among them; without instances, they divide all"
        )
    memory = options.memory and _memory(machine, arranged.shares, notes)
    found: dict[int, dict[str, str]] = {}
    for share in arranged.shares:
        if (cores := len(share.processors)) not in found:
            found[cores] = _environment(share, options, changes, preset, notes)
    environments = tuple(found[len(share.processors)] for share in arranged.shares)
    _refuse_unknown(command[0], environments[0])
    return Launch(
        tuple(command),
        arranged.shares,
        environments,
        options.processors,
        memory,
        tuple(dict.fromkeys(notes)),
    )


def _refuse_several(instances: int, rank: Rank | None) -> None:
    """Refuse to start several instances as one rank of a launcher.

    Raises:
        InvalidArgumentError: this process is a rank.
    """
    if instances == 1 or rank is None:
        return
    raise InvalidArgumentError(
        f"{instances} instances would each be rank {rank.number} of {rank.size}",
        notes=[f"{rank.variable} says that a launcher started this process"],
        helps=[
            "let the launcher start as many ranks as you want, and `run` one instance in each",
            f"or unset {rank.variable} where the instances are no ranks",
        ],
    )


def start(launch: Launch, options: Options) -> Ended:
    """Start the instances, wait for all, and say how they ended.

    Raises:
        StateUnwritableError: a log file cannot be written.
    """
    return instances.run(
        [
            instances.Command(
                share.rank,
                launch.words(share, supervised=True),
                environment,
                instances.streams(f"{options.log_prefix}{share.rank}", options.log_path),
            )
            for share, environment in zip(launch.shares, launch.environments, strict=True)
        ]
    )


def told(ended: Ended, launch: Launch) -> str:
    """How it ended badly, in one line; "" when it ended well."""
    if ended.rank is not None:
        share = next(each for each in launch.shares if each.rank == ended.rank)
        others = "; the others were ended" if len(launch.shares) > 1 else ""
        return f"{share} ended with status {ended.status}{others}"
    return ""


def _memory(machine: arrangement.Topology, shares: Sequence[Share], notes: list[str]) -> bool:
    """Whether to bind memory: where there is a choice, and the kernel lets us."""
    if len(machine.nodes) < 2:
        return False
    refusal = memory_refusal({node for share in shares for node in share.nodes})
    if refusal:
        notes.append(
            f"memory is not bound to the nodes of the cores: {refusal}; in a container that needs"
            " CAP_SYS_NICE"
        )
    return not refusal


def _environment(
    share: Share,
    options: Options,
    changes: Callable[[], Mapping[str, str | None]],
    preset: Mapping[str, str],
    notes: list[str],
) -> dict[str, str]:
    """The variables of the instances that have as many processors as this one."""
    with as_if_bound(share):
        decided = changes()
    environment = {name: text for name, text in preset.items() if name not in decided}
    environment |= {name: text for name, text in decided.items() if text is not None}
    # All logical processors of all nodes: compact affinity would leave half of them out.
    every = options.request.logical and options.request.node is None
    extra, said = preload(options.preload, environment, leave=["KMP_AFFINITY"] if every else [])
    environment |= extra
    counts, contradicted = threads(
        environment, len(share.processors), decided, environ.wishes(preset)
    )
    notes += [*said, *contradicted]
    return environment | counts


def _refuse_unknown(program: str, environment: Mapping[str, str]) -> None:
    path = environment.get("PATH", os.defpath)
    if shutil.which(program, path=path) is not None:
        return
    known = os.sep in program and os.path.exists(program)
    obstacle = errno.EACCES if known else errno.ENOENT
    raise childprocess.not_started(program, obstacle, "no instance was started", path)


def bound_command(
    command: Sequence[str],
    share: Share,
    *,
    processors: bool = True,
    memory: bool = True,
    supervised: bool = False,
) -> list[str]:
    """The words that start a command bound to a share.

    Args:
        command: the command and its arguments.
        share: its processors and nodes.
        processors: whether to bind to the processors.
        memory: whether to bind to the memory of the nodes.
        supervised: whether it ends when this process does.
    """
    binding = [
        ",".join(map(str, share.processors)) if processors else "",
        ",".join(map(str, share.nodes)) if memory else "",
        str(os.getpid()) if supervised else "0",
    ]
    return childprocess.command([bound.__file__, *binding, *command], isolated=True)


def memory_refusal(nodes: Collection[int]) -> str:
    """Why memory cannot be bound to nodes here, in the kernel's words; "" where it can.

    Containers forbid the call unless they have CAP_SYS_NICE; kernels without NUMA lack it. A child
    tries, because what is bound cannot always be unbound.
    """
    listed = ",".join(map(str, sorted(nodes)))
    done = childprocess.run([bound.__file__, "", listed, "0", "true"], isolated=True)
    if done.status == 0:
        return ""
    return done.last_line("no reason is given").rpartition(": ")[2]


@contextmanager
def as_if_bound(share: Share) -> Iterator[None]:
    """Run a block where this thread has the processors of a share, so that it plans for them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, share.processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
