"""The console entry: an interrupt while the command line is still being imported is one, too."""

from __future__ import annotations

import sys


def main() -> int:
    """Import the command line and run it; see `backendcfg.cli.main`."""
    try:
        from backendcfg.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n  state: nothing was changed\n")
        return 130
    return run()
