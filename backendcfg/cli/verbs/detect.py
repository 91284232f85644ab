"""`backendcfg detect`: what this machine has, as a table or as the host document."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import refuse_unwritable
from backendcfg.cli.output import block, current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.schema.host import Gpu, Host, Library


@verb("detect", "Look", interrupted="the file of --capture is as it was, or whole")
@click.option(
    "--capture",
    metavar="FILE",
    type=click.Path(),
    help="Also write the host to FILE, for `--host FILE` on any machine; %h is this one's name.",
)
def command(capture: str | None) -> None:
    """Show the processors, GPUs, libraries and limits that are here."""
    from backendcfg import session
    from backendcfg.cli.sources import HOST_MARK, write_host

    if capture is not None:
        capture = _own_file(capture)
        refuse_unwritable(capture, "host", HOST_MARK, "--capture", "nothing was changed")
    host = session.detect()
    if capture is not None:
        write_host(host, capture)
        current().note(f"wrote {capture}")
    current().answer(host.model_dump(mode="json", by_alias=True), _lines(host))


def _own_file(path: str) -> str:
    """A path with the machine's name for %h, whose folder all machines may make at once."""
    if "%h" in path:
        path = path.replace("%h", os.uname().nodename)
        with suppress(OSError):  # writing the file says what is wrong
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return path


def _lines(host: Host) -> Iterator[str]:
    from backendcfg.resolve.words import size

    system, cpu = host.system, host.cpu
    distribution = f", {system.distribution}" if system.distribution else ""
    libc = f", {system.libc}" if system.libc else ""
    yield from block("system", [f"{system.os} {system.release}{distribution}{libc}"], "bold")
    yield from block("python", [f"{host.python.implementation} {host.python.version}"], "bold")
    yield from block(
        "cpu",
        [
            f"{cpu.name}, {cpu.architecture}, {cpu.microarchitecture}",
            f"{cpu.usable} of {cpu.logical} processors usable, {cpu.physical} cores"
            + (f" ({'; '.join(cpu.limits)})" if cpu.limits else ""),
        ],
        "bold",
    )
    limit = f", limited to {size(host.memory.limit)}" if host.memory.limit else ""
    yield from block("memory", [size(host.memory.total) + limit], "bold")
    yield from block("gpus", [_gpu(gpu) for gpu in host.gpus] or ["none"], "bold")
    yield from block("drivers", [f"{k} {v}" for k, v in sorted(host.drivers.items())], "bold")
    yield from block(
        "packages", [", ".join(f"{k} {v}" for k, v in sorted(host.packages.items()))], "bold"
    )
    yield from block("libraries", [_library(library) for library in host.libraries], "bold")
    yield from block(
        "variables", [f"{name}={value}" for name, value in sorted(host.environment.items())], "bold"
    )
    broken = [probe for probe in host.probes if probe.outcome == "broken"]
    yield from block(
        "broken",
        [f"{probe.probe}: {probe.path or 'probe'}: {probe.reason}" for probe in broken],
        "bold",
        "red",
    )
    absent = [probe.probe for probe in host.probes if probe.outcome == "absent"]
    if absent:
        yield from block("absent", [", ".join(absent)], "bold")


def _gpu(gpu: Gpu) -> str:
    from backendcfg.resolve.words import size

    facts = [gpu.name]
    if gpu.compute_capability:
        facts.append(f"compute capability {gpu.compute_capability}")
    elif gpu.architecture:
        facts.append(gpu.architecture)
    if gpu.memory:
        facts.append(size(gpu.memory))
    return f"{gpu.index}: {', '.join(facts)}{'' if gpu.visible else ' (hidden by a variable)'}"


def _library(library: Library) -> str:
    facts = [f"{library.owner}'s" if library.owner != "system" else "system", library.kind]
    details = (library.version, library.interface, library.threading, library.core_type)
    facts += [detail for detail in details if detail]
    return f"{' '.join(facts)}: {library.path}"
