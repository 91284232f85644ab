"""The command line, as `backendcfg` and as `python -m backendcfg`.

An interrupt while it is still being imported is one, too.
"""

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


if __name__ == "__main__":
    sys.exit(main())
