"""Starts this interpreter under the profile that is in force. Written by `backendcfg autoload on`.

`backendcfg autoload off` removes it, together with the `.pth` file beside it that runs it.
BACKENDCFG_DISABLE=1 switches it off. It is a copy of `backendcfg/session/interpreter_start.py`.

Where nothing is active it imports nothing. Else it waits until `site` has added every folder to
the path, which is when it looks for `sitecustomize`, and imports backendcfg, which applies what is
active. Any Python 3 may meet it, so it uses nothing newer than 3.6.
"""

import os
import sys

OLDEST = (3, 11)
PREFIX = "BACKENDCFG_"
# Of the variables of ours, those that put nothing in force; the others name a profile or a flag.
SILENT = (
    "BACKENDCFG_CONFIG_DIR",
    "BACKENDCFG_SYSTEM_DIR",
    "BACKENDCFG_STATE_DIR",
    "BACKENDCFG_CACHE_DIR",
    "BACKENDCFG_STARTED_BY",
    "BACKENDCFG_CARRIED",
    "BACKENDCFG_DISABLE",
)
# pip runs the last two by their paths while it builds a package.
INSTALLERS = {"ensurepip", "venv", "virtualenv", "__pip-runner__.py", "_in_process.py"}
# Set while pip or another front end builds a package: compilers and build systems ask Python then.
BUILDING = ("PIP_BUILD_TRACKER", "_PYPROJECT_HOOKS_BUILD_BACKEND", "PEP517_BUILD_BACKEND")


def disabled() -> bool:
    """Whether BACKENDCFG_DISABLE turns everything off, or a package is being built."""
    if os.environ.get(PREFIX + "DISABLE", "") not in ("", "0"):  # noqa: TID251
        return True
    return any(name in os.environ for name in BUILDING)  # noqa: TID251


def is_spared(words: "list[str]") -> bool:
    """Whether the interpreter runs an installer, or backendcfg's own command line.

    Args:
        words: the command line, the interpreter first.
    """
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, "")
        elif word.startswith("-c"):
            # What pip wraps around a setup.py.
            return "pip-setuptools-caller" in (word[2:] or next(rest, ""))
        elif word.startswith("-m"):
            return _is_installer((word[2:] or next(rest, "")).split(".")[0])
        elif not word.startswith("-"):
            return _is_installer(os.path.basename(word))
    return False


def _is_installer(name: str) -> bool:
    versioned_pip = name.startswith("pip") and not name[3:].strip("0123456789.")
    return versioned_pip or name == "backendcfg" or name in INSTALLERS


def is_active() -> bool:
    """Whether a profile is in force for a process that starts here, or it cannot be told."""
    for name in os.environ:  # noqa: TID251
        # Looking up takes longer than looking over, so few are.
        if name.startswith(PREFIX) and name not in SILENT and os.environ[name]:  # noqa: TID251
            return True
    try:
        # Not `open` alone, which takes longer to find that there is no file.
        with os.fdopen(os.open(index(), os.O_RDONLY), "rb") as file:
            lines = os.fsdecode(file.read()).split("\n")
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = "/"
    if not lines[0].startswith("backendcfg 1 ") or lines[-1] or set(here) & set("\\\t\r\n"):
        return True
    return any(_governs(line.split("\t"), here) for line in lines[1:-1])


def _governs(row: "list[str]", here: str) -> bool:
    """Whether a row of the index is damaged, or makes a profile active for this folder."""
    if len(row) != 5:
        return True
    path = row[2].rstrip("/")
    return row[0] != "0" and (path == "*user*" or (here + "/").startswith(path + "/"))


def index() -> str:
    """The file that says what is active, as `backendcfg.transact.generations` places it."""
    base = os.environ.get(PREFIX + "STATE_DIR", "")  # noqa: TID251
    if not base:
        home = os.environ.get("XDG_STATE_HOME", "")  # noqa: TID251
        if not os.path.isabs(home):
            home = os.path.expanduser("~/.local/state")
        base = os.path.join(home, "backendcfg")
    host = os.uname().nodename.replace("/", "_") or "localhost"
    return os.path.join(base, host if host.strip(".") else "localhost", "v1", "active")


def start() -> None:
    """Let backendcfg apply what is in force.

    A failure ends the process when BACKENDCFG_PROFILE asks for a profile; else it is one line.
    """
    if sys.version_info < OLDEST:
        _say("warning: backendcfg does not act in " + sys.executable + ": it needs Python 3.11")
        return
    try:
        import backendcfg  # noqa: F401
    except KeyboardInterrupt:
        import signal

        # `site` would call it a fatal error of the interpreter; a program ends by its signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except Exception as error:
        if getattr(error, "name", "") == "backendcfg":
            return  # it was uninstalled
        if os.environ.get(PREFIX + "PROFILE"):  # noqa: TID251
            _stop(error)
        what = str(error).split("\n")[0] or type(error).__name__
        _say(
            "warning: what is active was not applied to this process: "
            + what
            + "; `backendcfg status` says more, BACKENDCFG_DISABLE=1 starts without it"
        )


def _stop(error: Exception) -> None:
    """End the process: `site` would swallow an exception."""
    if hasattr(error, "render") and hasattr(error, "exit_code"):
        _say(error.render())
        status = error.exit_code
    else:
        import traceback

        _say("".join(traceback.format_exc()) + "error[internal]: backendcfg failed")
        status = 70
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text.rstrip("\n") + "\n")


def _when_path_is_complete() -> None:
    """Start when `site` looks for `sitecustomize`, which is the last thing that it does."""

    class Finder:
        """A finder that finds nothing."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "sitecustomize":
                # Also those of other folders: the user's and the environment's may both have one.
                ours = type(self).__module__
                sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != ours]
                start()

    sys.meta_path.insert(0, Finder())


def begin() -> None:
    """Start, now or when the path is complete, unless there is nothing to start."""
    if sys.flags.ignore_environment or not is_active():
        return
    if disabled() or is_spared(getattr(sys, "orig_argv", [])):
        return
    if "sitecustomize" in sys.modules:
        start()
    else:
        _when_path_is_complete()


if __name__ == "_backendcfg_autoload":
    begin()
