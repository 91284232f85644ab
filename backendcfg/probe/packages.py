"""Versions of installed distributions that compute, without importing any of them."""

from __future__ import annotations

import re
from importlib import metadata

from backendcfg.catalogue.cpu import LIBRARIES
from backendcfg.catalogue.frameworks import FRAMEWORKS

# By import name; the first distribution that is installed answers.
_DISTRIBUTIONS = {
    **{each.name: each.packages for each in FRAMEWORKS if each.in_host},
    **{name: packages for each in LIBRARIES for name, packages in each.modules.items()},
}


def versions() -> dict[str, str]:
    """Installed versions by import name, sorted."""
    found = {}
    for name, distributions in sorted(_DISTRIBUTIONS.items()):
        for distribution in distributions:
            if version := _version(distribution):
                found[name] = version
                break
    return found


def _version(distribution: str) -> str:
    """The installed version; "" when it is not installed or half installed."""
    try:
        installed = metadata.distribution(distribution)
        text = installed.read_text("METADATA") or installed.read_text("PKG-INFO") or ""
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return ""
    # `installed.version` would parse the whole description as an e-mail: 8 ms for all of them.
    version = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
    return version.group(1) if version else ""
