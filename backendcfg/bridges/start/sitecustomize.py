"""The start-up file of `backendcfg run`: imports backendcfg before the program's first line.

`run` puts this directory first on PYTHONPATH, so that every interpreter that the command starts,
at any depth, runs this file once from `site`. It then makes way for the `sitecustomize` that it
shadows. Any Python 3 may meet it, so it uses nothing newer than 3.6.
"""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader

HERE = os.path.dirname(os.path.abspath(__file__))
STARTUP = os.path.join(os.path.realpath(HERE), "..", "..", "startup.py")


def _is_here(entry: str) -> bool:
    return entry != "" and os.path.realpath(entry) == os.path.realpath(HERE)


def start() -> None:
    """Let backendcfg apply the profile of this process."""
    startup = type(sys)("_backendcfg_run")
    SourceFileLoader(startup.__name__, STARTUP).exec_module(startup)
    startup.start(required=True)


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
