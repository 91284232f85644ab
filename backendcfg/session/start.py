"""What happens when `backendcfg` is imported: the profile that is in force is applied."""

from __future__ import annotations

import os
import sys

from backendcfg import environ


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


def start() -> None:
    """Apply the profile in force, if there is one.

    Raises:
        BackendCfgError: a profile is in force and cannot be applied; a wrong name never falls
            back to none.
    """
    if environ.disabled() or is_command_line():
        return
    from backendcfg.session.choice import chosen, compiled

    choice = chosen()
    if choice is not None:
        from backendcfg.session.process import install

        install(compiled(choice), choice.source)
