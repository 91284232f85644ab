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

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class Kernel:
    """A kernel of this interpreter, with directories of its own."""

    def __init__(self, world):
        names = ("CONFIG", "SYSTEM", "STATE", "CACHE")
        ours = {f"BACKENDCFG_{name}_DIR": f"{world}/{name.lower()}" for name in names}
        theirs = {
            f"JUPYTER_{name}_DIR": f"{world}/jupyter" for name in ("CONFIG", "DATA", "RUNTIME")
        }
        self.environment = {**os.environ, **ours, **theirs, "IPYTHONDIR": f"{world}/ipython"}
        self.world = world

    def run(self, notebook):
        """A notebook with what its cells show now."""
        notebook = nbformat.from_dict({**notebook, "metadata": METADATA})
        client = NotebookClient(notebook, timeout=120, allow_errors=True, record_timing=False)
        client.resources["metadata"] = {"path": str(self.world)}
        with client.setup_kernel(env=self.environment):
            for number, cell in enumerate(notebook.cells):
                client.execute_cell(cell, number)
        notebook.metadata = nbformat.from_dict(METADATA)
        return notebook

    def shows(self, *sources):
        """What each cell shows, as text: streams, values, errors."""
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        done = self.run(nbformat.v4.new_notebook(cells=cells))
        return ["".join(map(as_text, cell.outputs)) for cell in done.cells]


def as_text(output):
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.data["text/plain"] + "\n"


def main():
    committed = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as world:
        done = Kernel(world).run(committed)
    if sys.argv[1:] == ["--write"]:
        nbformat.write(done, NOTEBOOK)
    else:
        print(*("".join(map(as_text, cell.get("outputs", []))) for cell in done.cells), sep="\n")


if __name__ == "__main__":
    main()
