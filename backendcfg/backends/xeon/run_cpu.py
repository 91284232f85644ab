"""Start instances of a program, each bound to cores of its own, with PyTorch's options.

    python -m backendcfg.backends.xeon.run_cpu --ninstances 2 train.py --epochs 3

The options are those of `python -m torch.backends.xeon.run_cpu` of PyTorch 2.13; PyTorch is not
needed, nor is numactl. docs/instances.md lists what differs. `backendcfg run PROFILE --instances 2`
does the same under a profile.
"""

from __future__ import annotations

import logging
import shlex
import sys
from argparse import REMAINDER, ArgumentParser, RawTextHelpFormatter
from typing import TYPE_CHECKING

from backendcfg import environ
from backendcfg.errors import BackendCfgError, InvalidArgumentError
from backendcfg.launch import launcher
from backendcfg.launch.arrangement import Request, listed

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from backendcfg.launch.launcher import Preload

__all__ = ["create_args", "format_str", "logger", "main"]

format_str = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"
logger = logging.getLogger(__name__)

FLAGS: dict[str, dict[str, str]] = {
    "": {
        "--multi-instance": "one instance per memory node, unless their number is given",
    },
    "Memory Allocator Parameters": {
        "--enable-tcmalloc": "preload tcmalloc",
        "--enable-jemalloc": "preload jemalloc",
        "--use-default-allocator": "preload no allocator",
    },
    "IOMP Parameters": {
        "--disable-iomp": "do not preload Intel's OpenMP runtime",
    },
    "Multi-instance Parameters": {
        "--skip-cross-node-cores": "give no instance cores of two nodes",
        "--latency-mode": "instances of four cores, on all cores",
        "--throughput-mode": "one instance per node, on all cores",
        "--use-logical-core": "use every logical processor rather than one of each core",
        "--disable-numactl": "do not bind memory",
        "--disable-taskset": "together with --disable-numactl: bind nothing",
    },
}
"""Switches by group; each may also be written with underscores."""

NUMBERS = {
    "--ncores-per-instance": "cores of each instance",
    "--ninstances": "number of instances",
    "--rank": "start only this instance of them",
    "--node-id": "use only the cores of this memory node",
}
"""Numbers; -1 is as good as none."""


def create_args(parser: ArgumentParser | None = None) -> ArgumentParser:
    """Add the options to a parser, a new one by default, and return it."""
    if parser is None:
        parser = ArgumentParser(description=__doc__, formatter_class=RawTextHelpFormatter)
    for title, flags in FLAGS.items():
        group = parser.add_argument_group(title) if title else parser
        for name, text in flags.items():
            group.add_argument(*_spellings(name), action="store_true", help=text)
        if title.startswith("Multi"):
            for name, text in NUMBERS.items():
                group.add_argument(*_spellings(name), default=-1, type=int, metavar="N", help=text)
            group.add_argument(
                "--core-list",
                "--core_list",
                metavar="LIST",
                help='cores to use: "0, 1, 2" or "0-2"',
            )
            group.add_argument(
                "--log-path", "--log_path", default="", metavar="DIR", help="folder for log files"
            )
            group.add_argument(
                "--log-file-prefix",
                "--log_file_prefix",
                default="run",
                metavar="NAME",
                help="what log files and lines begin with",
            )
    parser.add_argument(
        "-m", "--module", action="store_true", help="the program is a module, as for python -m"
    )
    parser.add_argument(
        *_spellings("--no-python"), action="store_true", help="the program is no Python script"
    )
    parser.add_argument("program", help="the program")
    parser.add_argument("program_args", nargs=REMAINDER, help="its arguments")
    return parser


def main(args: Namespace) -> int:
    """Start the instances, wait for all, and return the exit status.

    It is 0, or that of the first instance that failed, after which the others were ended; 128 and
    its number where a signal ended it. In PyTorch's launcher a failure leaves no status.

    Raises:
        InvalidArgumentError: the options contradict each other, or this machine lacks the cores.
        CommandNotFoundError: there is no such program.
        StateUnwritableError: a log file cannot be written.
    """
    options = _options(args)
    launch = launcher.prepare(_command(args), options, dict, environ.copy())
    for note in launch.notes:
        logger.warning("%s", note)
    for share in launch.shares:
        logger.info("%s: %s", share, shlex.join(_command(args)))
    ended = launcher.start(launch, options)
    if told := launcher.told(ended, launch):
        logger.error("%s", told)
    return ended.status


def _options(args: Namespace) -> launcher.Options:
    if args.latency_mode and args.throughput_mode:
        raise InvalidArgumentError("give --latency-mode or --throughput-mode, not both")
    if args.enable_tcmalloc and args.enable_jemalloc:
        raise InvalidArgumentError("give --enable-tcmalloc or --enable-jemalloc, not both")
    nothing = args.ninstances == args.ncores_per_instance == -1 and not args.core_list
    throughput = args.throughput_mode or (args.multi_instance and nothing)
    local = environ.foreign(["LOCAL_WORLD_SIZE", "LOCAL_RANK"])
    request = Request(
        instances=_given(args.ninstances),
        cores=_given(args.ncores_per_instance),
        node=_given(args.node_id),
        processors=listed(args.core_list or None),
        rank=_given(args.rank),
        mode="latency" if args.latency_mode else "throughput" if throughput else "",
        logical=args.use_logical_core,
        skip_cross_node=args.skip_cross_node_cores,
        part=(int(local.get("LOCAL_RANK", 0)), int(local.get("LOCAL_WORLD_SIZE", 1))),
    )
    return launcher.Options(
        request,
        preload=_preloads(args),
        processors=not (args.disable_numactl and args.disable_taskset),
        memory=not args.disable_numactl,
        log_path=args.log_path,
        log_prefix=args.log_file_prefix,
    )


def _preloads(args: Namespace) -> tuple[Preload, ...]:
    allocator: Preload | None = None
    if args.enable_tcmalloc:
        allocator = "tcmalloc"
    elif args.enable_jemalloc:
        allocator = "jemalloc"
    elif not args.use_default_allocator:
        kinds: tuple[Preload, ...] = ("tcmalloc", "jemalloc")
        allocator = next((kind for kind in kinds if launcher.find(kind, environ.copy())), None)
        if allocator is None:
            logger.warning("neither tcmalloc nor jemalloc is installed, so neither is preloaded")
    runtime: tuple[Preload, ...] = () if args.disable_iomp else ("iomp5",)
    return (allocator, *runtime) if allocator else runtime


def _command(args: Namespace) -> list[str]:
    """The words of one instance.

    Raises:
        InvalidArgumentError: the program is no Python script, and nothing says so.
    """
    if args.no_python:
        return [args.program, *args.program_args]
    if not args.module and not args.program.endswith(".py"):
        raise InvalidArgumentError(
            f"`{args.program}` is not a Python script",
            helps=["write --no-python before a program that is none, and -m before a module"],
        )
    module = ["-m"] if args.module else []
    return [sys.executable, "-u", *module, args.program, *args.program_args]


def _spellings(name: str) -> list[str]:
    other = "--" + name[2:].replace("-", "_")
    return list(dict.fromkeys([name, other]))


def _given(number: int) -> int | None:
    return None if number == -1 else number


def _run(words: Sequence[str] | None = None) -> int:
    """The command: errors as text, and the exit status."""
    logging.basicConfig(level=logging.INFO, format=format_str)
    try:
        return main(create_args().parse_args(words))
    except BackendCfgError as error:
        sys.stderr.write(error.render() + "\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(_run())
