"""What a program that starts now would find, as a lock has it.

A child that starts as the program would imports every framework that is installed, since nobody
knows before a program runs what it imports.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import backendcfg
from backendcfg import childprocess
from backendcfg.audit.evidence.lock import (
    Library,
    Machine,
    Numerics,
    Present,
    Profile,
    Python,
    plain,
)
from backendcfg.audit.token import FORMAT, digest, libraries, numerics_token
from backendcfg.errors import shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.audit.token import Token
    from backendcfg.schema.base import Document
    from backendcfg.schema.host import Host
    from backendcfg.transact.compiled import Compiled

SYSTEM = "system"
"""The package of what no package brought."""

_ARITHMETIC = re.compile(
    r"avx|sse|ssse|fma|f16c|amx|asimd|fphp|fcma|neon|sve|sme(?!p)|bf16|i8mm|vsx"
)
"""How instruction sets begin that kernels are written for."""

_IN_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(nvidia/[^/]+|[^/]+)")


def present(plan: Compiled, name: str, environment: Mapping[str, str]) -> Present:
    """What a program finds that starts under a plan.

    Args:
        plan: what is in force for it.
        name: the profile, as it was asked for.
        environment: of its process.

    Raises:
        BackendCfgError: what the child raised, or InternalError when it died or hung.
    """
    found = childprocess.testimony(
        __name__,
        environment,
        task="the process that looks at libraries and switches",
        remedy="run `backendcfg doctor`, which names what cannot be imported",
    )
    matter = {flag: plan.values[flag] for flag in plan.asked if flag not in plan.bitless}
    profile = Profile(
        name=shown_path(name), tier=plan.tier, order=list(plan.order), flags=plain(matter)
    )
    return Present.model_validate({**found, "profile": profile.model_dump()})


def testify() -> dict[str, Any]:
    """In the child: look at the machine, import what is installed, and read all of it back."""
    from backendcfg import session
    from backendcfg.session.shell import import_frameworks

    host = session.detect()
    import_frameworks()
    token = numerics_token()
    found: dict[str, Document] = {
        "python": Python(
            version=host.python.version,
            implementation=host.python.implementation,
            backendcfg=backendcfg.__version__,
            packages=host.packages,
        ),
        "machine": _machine(host, token),
        "numerics": Numerics(
            token=token,
            composed=FORMAT,
            parts={part: digest(values) for part, values in token.parts.items()},
            **{part: plain(token.parts[part]) for part in ("switches", "facts", "variables")},
        ),
    }
    return {part: one.model_dump() for part, one in found.items()} | {
        "libraries": {name: one.model_dump() for name, one in _libraries(host).items()}
    }


def _libraries(host: Host) -> dict[str, Library]:
    owners = {one.path: one.owner for one in host.libraries if one.owner != SYSTEM}
    versions = {**host.packages, "backendcfg": backendcfg.__version__}
    files: dict[str, dict[str, list[str]]] = {}
    for path, identity in libraries().items():
        package = package_of(path) or owners.get(os.path.realpath(path), SYSTEM)
        files.setdefault(package, {}).setdefault(os.path.basename(path), []).append(identity)
    return {
        package: Library(
            version=versions.get(package, ""),
            files={name: " ".join(sorted(each)) for name, each in sorted(of.items())},
        )
        for package, of in sorted(files.items())
    }


def package_of(path: str) -> str:
    """The package in whose folder, or in the folder of whose libraries, a file lies; or ""."""
    if path.startswith(os.path.dirname(backendcfg.__file__) + os.sep):
        return "backendcfg"
    found = _IN_PACKAGES.match(path)
    return found[1].removesuffix(".libs") if found else ""


def _machine(host: Host, token: Token) -> Machine:
    processor = token.parts["processor"]
    features = [one for one in processor["features"].split() if _ARITHMETIC.match(one)]
    return Machine(
        cpu=host.cpu.name,
        microarchitecture=host.cpu.microarchitecture,
        features=" ".join(features),
        caches=" ".join(processor["caches"]),
        usable=host.cpu.usable,
        gpus=[f"{one.name} {one.compute_capability}".strip() for one in host.gpus if one.visible],
        drivers=host.drivers,
    )
