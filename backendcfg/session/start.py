"""What happens when `backendcfg` is imported: the profile that is in force is applied."""

from __future__ import annotations

import os
import sys

from backendcfg import environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def is_command_line() -> bool:
    """Whether this interpreter runs the `backendcfg` command.

    The command must work when the active profile does not, and it computes nothing itself.
    """
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word.startswith("-m"):
            return (word[2:] or next(words, "")) == "backendcfg"
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(words, "")
        elif word == "-c":
            return False
        elif not word.startswith("-"):
            return os.path.basename(word) in ("backendcfg", "backendcfg.exe")
    return False


def takes_over() -> bool:
    """Whether this process is about to take over what is in force in its parent."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and hasattr(module.current_process(), "_backendcfg_given")


def start(capture_at_exit: Callable[[str], None]) -> None:
    """Apply the profile in force, if there is one.

    Args:
        capture_at_exit: arranges that this process leaves the state of its switches in a folder,
            for `backendcfg capture`.

    Raises:
        BackendCfgError: a profile is in force and cannot be applied; a wrong name never falls
            back to none.
    """
    if not is_command_line() and (folder := environ.CAPTURE.read()):
        environ.current().pop(environ.CAPTURE.name)
        capture_at_exit(folder)
        if not environ.STARTED_BY.read():
            return  # what is captured is what the program does by itself
    if environ.disabled() or is_command_line() or takes_over():
        return
    if environ.INHERIT.read() is not None:
        from backendcfg.session.inheritance import by_variable

        if by_variable():
            return
    from backendcfg.session.choice import chosen

    choice = chosen()
    if choice is not None:
        from backendcfg.session.process import install_choice

        install_choice(choice)
