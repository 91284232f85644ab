"""Who brought a shared library, judged by its place alone. Standard library only."""

from __future__ import annotations

import os
import re

from backendcfg.catalogue.cpu import LIBRARIES
from backendcfg.catalogue.frameworks import SKLEARN

_PACKAGE = r"/(?:site|dist)-packages/([\w-]+?)(?:\.libs)?/"
_BUNDLE = r"/([\w-]+)\.libs/[^/]+$"


def owner_of(path: str, prefix: str) -> str:
    """Who brought the file: a distribution's name, "conda" or "system".

    Args:
        path: absolute.
        prefix: the environment's directory, as `sys.prefix`.
    """
    found = re.search(_PACKAGE, path) or re.search(_BUNDLE, path)
    if found:
        name = found.group(1)
        return SKLEARN.packages[0] if name == SKLEARN.name else name.replace("_", "-")
    if path.startswith((os.path.join(prefix, ""), os.path.join(os.path.realpath(prefix), ""))):
        if os.path.isdir(os.path.join(prefix, "conda-meta")):
            return "conda"
        name = os.path.basename(path)
        # Wheels that install outside their package.
        return next(
            (
                each.listed[0]
                for each in LIBRARIES
                if each.listed and name.startswith(each.globs[0].rstrip("*"))
            ),
            "system",
        )
    return "system"
