"""Cells run by a real kernel; and the notebook in docs/, run anew.

    python tests/notebook/kernels.py --write

writes what its cells show now. A cell tagged `this-machine` shows something else on every machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class Kernel:
    """A kernel of this interpreter, with directories of its own; it runs inside `with`."""

    def __init__(self, world, **variables):
        names = ("CONFIG", "SYSTEM", "STATE", "CACHE")
        ours = {f"BACKENDCFG_{name}_DIR": f"{world}/{name.lower()}" for name in names}
        theirs = {
            f"JUPYTER_{name}_DIR": f"{world}/jupyter" for name in ("CONFIG", "DATA", "RUNTIME")
        }
        theirs["IPYTHONDIR"] = f"{world}/ipython"
        resources = {"metadata": {"path": str(world)}}
        # Sockets in files, whose paths have to be short: TCP ports are picked, let go, and opened by
        # the kernel a second later, when another process may have them.
        self._sockets = tempfile.TemporaryDirectory()
        where = {"transport": "ipc", "connection_file": f"{self._sockets.name}/kernel.json"}
        self._client = NotebookClient(
            nbformat.v4.new_notebook(metadata=METADATA),
            resources=resources,
            config=Config(ConnectionFileMixin=where),
            timeout=120,
            # By default, output that comes more than four seconds after a cell's end is dropped.
            iopub_timeout=120,
            raise_on_iopub_timeout=True,
            allow_errors=True,
            record_timing=False,
        )
        self._running = self._client.setup_kernel(env={**os.environ, **ours, **theirs, **variables})

    def __enter__(self):
        self._running.__enter__()
        return self

    def __exit__(self, *error):
        with self._sockets:
            return self._running.__exit__(*error)

    def run(self, cells):
        """The cells with what they show now."""
        done = self._client.nb.cells
        for cell in cells:
            done.append(nbformat.from_dict(cell))
            self._client.execute_cell(done[-1], len(done) - 1)
        return done[len(done) - len(cells) :]

    def shows(self, *sources):
        """What each cell shows, as text: streams, values, errors."""
        done = self.run([nbformat.v4.new_code_cell(source) for source in sources])
        return ["".join(map(as_text, cell.outputs)) for cell in done]


def as_text(output):
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.data["text/plain"] + "\n"


def main():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as world, Kernel(world) as kernel:
        notebook.cells = kernel.run(notebook.cells)
    if sys.argv[1:] == ["--write"]:
        nbformat.write(notebook, NOTEBOOK)
    else:
        for cell in notebook.cells:
            print("".join(map(as_text, cell.get("outputs", []))))


if __name__ == "__main__":
    main()
