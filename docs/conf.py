"""The documentation as a site: `sphinx-build -W docs build/site`, with `pip install '.[docs]'`.

docs/index.rst orders the pages by kind of reader. The README of a folder is followed by the other
pages of the folder, docs/operations.md by those of docs/operations. A page that is nowhere, a link
that leads nowhere and a docstring that cannot be read are errors.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import backendcfg

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "backendcfg"
release = version = backendcfg.__version__
html_title = f"backendcfg {release}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4  # what GitHub makes of headings, for links to them
autodoc_default_options = {"members": True}
autodoc_typehints = "none"
autodoc_mock_imports = ["distributed", "lightning", "ray"]
default_role = "code"  # docstrings say `name`, as Markdown does
napoleon_custom_sections = ["Returns", "Yields"]  # ours begin with no type


def list_pages_of_folder(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the pages of a folder to the page that introduces it."""
    page = PurePosixPath(name)
    folder = page.parent if page.name == "README" else page
    below = [other for other in app.env.found_docs if PurePosixPath(other).parent == folder]
    if str(folder) != "." and below:
        others = sorted(f"/{other}" for other in below if other != name)
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *others, "```", ""])


def mark_examples(  # noqa: PLR0917 -- as Sphinx calls it
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make literal blocks of what a docstring indents after an empty line: it is code."""
    marked = [""]
    unindented = ""
    for line in lines:
        if line.startswith("    ") and not marked[-1] and unindented:
            marked += ["::", ""]
            unindented = ""
        elif line and not line.startswith(" "):
            unindented = line
        elif line:
            unindented = ""
        marked.append(line)
    lines[:] = marked


def setup(app: Sphinx) -> None:
    """Connect the two, the second before napoleon reads the docstring."""
    app.connect("source-read", list_pages_of_folder)
    app.connect("autodoc-process-docstring", mark_examples, priority=400)
