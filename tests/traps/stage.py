"""Plays the scenes of one test file, each in a forked copy of a process where nothing happened yet.

A scene is a function without arguments whose name starts with `bare_` or `held_` and that returns
JSON data. What a file names in PRELOADED is imported once, before the forks: PyTorch takes a
second, a fork a few milliseconds, and whatever a scene breaks ends with its process.

    python stage.py FILE bare|held
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback


def play(scene):
    """What a scene returns in a process of its own, as `{"value": ...}` or `{"error": ...}`."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            told = json.dumps({"value": scene()})
        except BaseException:
            told = json.dumps({"error": traceback.format_exc()})
        with os.fdopen(writer, "w") as stream:
            stream.write(told)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        told = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return json.loads(told) if told else {"error": f"the process ended with status {status}"}


def main(path, kind):
    spec = importlib.util.spec_from_file_location("scenes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if kind == "held":
        import backendcfg

        # Detected once for all scenes.
        backendcfg.detect()
    for name in module.PRELOADED:
        importlib.import_module(name)
    scenes = {name: each for name, each in vars(module).items() if name.startswith(f"{kind}_")}
    answers = {name.removeprefix(f"{kind}_"): play(scene) for name, scene in scenes.items()}
    if kind == "bare":
        ours = [name for name in sys.modules if name.partition(".")[0] == "backendcfg"]
        assert not ours, f"a bare process has {ours}"
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
