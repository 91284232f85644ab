"""The start-up file of `backendcfg run`: imports backendcfg before the program's first line.

`run` puts this directory first on PYTHONPATH, so that every interpreter that the command starts,
at any depth, runs this file once from `site`. It then makes way for the `sitecustomize` that it
shadows. Any Python 3 may meet it, so it uses nothing newer than 3.6.
"""

import os
import signal
import sys
import traceback
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST = (3, 11)
# pip runs the last two by their paths while it builds a package.
SPARED = ("backendcfg", "ensurepip", "venv", "virtualenv", "__pip-runner__.py", "_in_process.py")


def _is_here(entry: str) -> bool:
    return entry != "" and os.path.realpath(entry) == os.path.realpath(HERE)


def _warn(text: str) -> None:
    sys.stderr.write("warning: backendcfg does not act in " + sys.executable + ": " + text + "\n")


def _spared() -> bool:
    """Whether a failure must not stop this program: installers, and backendcfg itself."""
    words = iter(getattr(sys, "orig_argv", sys.argv)[1:])
    name = ""
    for word in words:
        if word in ("-W", "-X"):
            next(words, "")
        elif word == "-m" or not word.startswith("-"):
            name = os.path.basename(next(words, "") if word == "-m" else word)
            break
        elif word == "-c":
            break
    return name in SPARED or (name.startswith("pip") and not name[3:].strip("0123456789."))


def _stop(text: str, status: int) -> None:
    """End the process: `site` would swallow an exception, and a SystemExit is a fatal error."""
    sys.stderr.write(text.rstrip("\n") + "\n")
    if _spared():
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def start() -> None:
    """Let backendcfg apply the profile of this process."""
    if sys.version_info < OLDEST:
        _warn("it needs Python 3.11 or newer")
        return
    try:
        import backendcfg  # noqa: F401
    except ImportError as error:
        _warn(str(error))
    except KeyboardInterrupt:
        # `site` would call it a fatal error of the interpreter; a program ends by its signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except Exception as error:
        if hasattr(error, "render") and hasattr(error, "exit_code"):
            _stop(error.render(), error.exit_code)
        else:
            _stop("".join(traceback.format_exc()) + "error[internal]: backendcfg failed", 70)


def chain() -> None:
    """Run the `sitecustomize` that this one shadows, as `site` would have done."""
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None or _is_here(os.path.dirname(spec.origin or "")):
        return
    module = module_from_spec(spec)
    # The import system keeps what it finds here when this file is done.
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if not _is_here(entry)]
start()
chain()
