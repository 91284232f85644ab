"""`python -m backendcfg` is the command line."""

import sys

from backendcfg.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
