"""Variables after profiles that mean by a text what no text means as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys

CODE = """
import json, os
import backendcfg
def changed():
    return {
        name: os.environ.get(name)
        for name in {*before, *os.environ}
        if before.get(name) != os.environ.get(name) and not name.startswith("BACKENDCFG_")
    }
before, seen = dict(os.environ), []
some = {"threads.count": 1, "threads.dynamic": False}
# What the libraries do where nothing is set.
default = {"threads.count": len(os.sched_getaffinity(0)), "threads.dynamic": True}
for first, second in ((some, default), (default, some)):
    backendcfg.apply(settings=first)
    backendcfg.apply(settings=second)
    backendcfg.undo(), backendcfg.undo()
    seen.append(changed())
    backendcfg.apply(settings=first)
    backendcfg.apply(settings=second)
    backendcfg.apply(settings={"log.level": "error"})
    seen.append(changed())
    backendcfg.undo(), backendcfg.undo(), backendcfg.undo()
print(json.dumps(seen))
"""


def test_a_variable_that_was_unset_is_unset_again_and_one_that_was_set_has_its_own_text(tmp_path):
    for preset in ({}, {"NPROC": "1", "MKL_DYNAMIC": "true", "OMP_DYNAMIC": "0"}):
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            cwd=tmp_path,
            env={**os.environ, **preset},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [{}, {}, {}, {}]
