"""A process that commits a profile, for tests that end it anywhere or run many at once."""

from __future__ import annotations

import sys

from generation_fixtures import commit

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(count):
    print(commit(path or None, f"{name}-{number}" if count > 1 else name), flush=True)
