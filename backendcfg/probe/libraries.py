"""Every CPU BLAS, LAPACK and OpenMP library, loaded or installed, with what it says of itself.

What is loaded in this process is asked here when that cannot do harm; the rest is asked in child
processes. A file that is broken is reported beside the others and hides none of them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from backendcfg import environ
from backendcfg.catalogue.cpu import (
    KINDS,
    LIBGOMP,
    LIBRARIES,
    MKL,
    MKL_CORE,
    OPENBLAS,
    OPENMP,
    is_torch,
    kind_of,
    provider_of,
)
from backendcfg.probe import inspection, installed, loaded, symbols
from backendcfg.probe.kept import Store
from backendcfg.probe.loaded import owner_of
from backendcfg.schema.host import Absent, Broken, Found, Library

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.probe.inspection import Answer, Request
    from backendcfg.schema.host import Probe

# Read by each kind, the first that is set wins.
_THREADS = {each.kind: each.variables for each in LIBRARIES if each.variables}


def probe_libraries(
    processor: str = "",
    *,
    affinity: int = 0,
    candidates: installed.Candidates | None = None,
    timeout: float = inspection.TIMEOUT,
) -> tuple[tuple[Library, ...], tuple[Probe, ...]]:
    """The libraries, in the order in which they are preferred, and what each kind answered.

    Args:
        processor: names the processor, for the store of earlier answers.
        affinity: processors of the affinity mask: what OpenBLAS and OpenMP start with.
        candidates: files to look at, instead of searching this machine.
        timeout: seconds that one library may take to answer.
    """
    if candidates is None:
        candidates = installed.find()
    mapped = set(loaded.mapped_files())
    kinds = dict(candidates.kinds)
    for path in sorted(mapped):
        if kind_of(path):
            kinds.setdefault(path, kind_of(path))
    answers: dict[str, dict[str, Any]] = {}
    broken: list[Broken] = list(candidates.broken)
    store = Store(processor)
    wanted: list[Request] = []
    for path, kind in kinds.items():
        try:
            facts = _ask_here(path, kind, mapped) if path in mapped else None
        except LookupError as error:
            broken.append(Broken(probe=kind, path=path, reason=str(error.args[0])))
            continue
        if facts is not None:
            answers[path] = facts
        else:
            wanted.append(inspection.Request("symbols", path, kind))
    for request, answer in _ask_there(wanted, store, timeout).items():
        if answer.facts is None:
            broken.append(answer.broken(request.kind, request.path))
        else:
            answers[request.path] = answer.facts
    store.save()
    libraries = tuple(
        _library(path, answers[path], loaded_here=path in mapped, affinity=affinity)
        for path in kinds
        if answers.get(path, {}).get("kind")
    )
    return libraries, (*_summaries(libraries, broken), *broken)


def _ask_here(path: str, kind: str, mapped: set[str]) -> dict[str, Any] | None:
    """Facts of a library of this process, or None when asking here could change something.

    Raises:
        LookupError: it lacks the symbols that its name promises.
    """
    handle = loaded.handle_of(path)
    if handle is None:
        return None
    threads = ""
    if affixes := symbols.openblas_affixes(handle):
        prefix, suffix = affixes
        facts = symbols.openblas(handle, prefix, suffix)
        threads = f"{prefix}openblas_get_num_threads{suffix}"
    elif kind == OPENMP:
        facts = symbols.facts(handle, path, kind)
        threads = LIBGOMP.symbol
    elif is_torch(path):
        facts = symbols.facts(handle, path, kind)
        threads = "MKL_Get_Max_Threads"
    elif kind == MKL.kind and any(MKL_CORE in other for other in mapped):
        # Before its layers are there, any question would make libmkl_rt open them.
        facts = symbols.facts(handle, path, kind)
        threads = "MKL_Get_Max_Threads"
    else:
        # BLIS aborts on a wrong BLIS_ARCH_TYPE when it is first asked.
        return None
    if hasattr(handle, threads):
        facts["threads"] = getattr(handle, threads)()
    return facts


def _ask_there(requests: Sequence[Request], store: Store, timeout: float) -> dict[Request, Answer]:
    """Answers from the store, and from children for the rest."""
    known = {request: answer for request in requests if (answer := store.recall(request))}
    asked = [request for request in requests if request not in known]
    if asked:
        # libmkl_rt takes its threading from what is loaded, and libtorch_cpu is slow: each alone.
        groups: dict[str, list[Request]] = {}
        for request in asked:
            alone = request.kind == MKL.kind
            groups.setdefault(request.path if alone else "", []).append(request)
        fresh = inspection.ask(list(groups.values()), timeout=timeout)
        for request in asked:
            known[request] = fresh.get(request, inspection.UNASKED)
            store.remember(request, known[request])
    return {request: known[request] for request in requests}


def _library(path: str, facts: Mapping[str, Any], *, loaded_here: bool, affinity: int) -> Library:
    kind = facts["kind"]
    owner = owner_of(path, sys.prefix)
    threads = facts.get("threads")
    return Library(
        kind=kind,
        provider=provider_of(kind, owner, serves=bool(facts.get("serves"))),
        owner=owner,
        path=path,
        version=facts.get("version", ""),
        interface=facts.get("interface", ""),
        prefix=facts.get("prefix", ""),
        suffix=facts.get("suffix", ""),
        threading=facts.get("threading", ""),
        core_type=facts.get("core_type", ""),
        threads=implied_threads(facts, affinity) if threads is None else threads,
        loaded=loaded_here,
    )


def implied_threads(
    facts: Mapping[str, Any], affinity: int, environment: Mapping[str, str] | None = None
) -> int:
    """Threads that a library would start with here; 0 when unknown.

    Args:
        facts: with kind, threading and max_threads.
        affinity: processors of the affinity mask.
        environment: instead of this process's.
    """
    source = environ.copy() if environment is None else environment
    kind, most = facts["kind"], facts.get("max_threads") or 4096
    names = _THREADS.get(kind, ())
    if kind == OPENBLAS.kind and facts.get("threading") == OPENMP:
        names = LIBGOMP.variables  # with OpenMP's threads it reads OpenMP's variable alone
    for name in names:
        # A list is one number for each level of nesting.
        text = source.get(name, "").partition(",")[0].strip()
        if text.isdecimal() and int(text) > 0:
            return min(int(text), most)
    if facts.get("threading") == "sequential":
        return 1
    # MKL starts with one thread for each core, BLIS with one: neither is the affinity.
    return min(affinity, most) if kind in {OPENBLAS.kind, OPENMP} else 0


def _summaries(libraries: Sequence[Library], broken: Sequence[Broken]) -> list[Probe]:
    """Found or absent for each kind."""
    said: list[Probe] = []
    for kind, title in KINDS.items():
        of_kind = [library for library in libraries if library.kind == kind]
        if of_kind:
            names = (f"{library.owner} {library.version}".strip() for library in of_kind)
            said.append(Found(probe=kind, detail=", ".join(dict.fromkeys(names))))
        elif not any(entry.probe == kind for entry in broken):
            said.append(
                Absent(
                    probe=kind,
                    reason=f"no {title} in this process, this environment or on the loader path",
                )
            )
    return said
