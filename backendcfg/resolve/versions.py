"""Version ranges: whether a version is in one, and how a range reads."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

_WORDS = {
    ">=": "{} or newer",
    "<=": "{} or older",
    ">": "newer than {}",
    "<": "older than {}",
    "==": "{}",
    "!=": "other than {}",
    "~=": "{} or a compatible release",
}


def parsed(text: str) -> Version | None:
    """A version, or None when the text is not one."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def within(text: str, bounds: str) -> bool:
    """Whether a version lies in a range; what cannot be compared does not."""
    version = parsed(text)
    try:
        # Drivers and nightly builds are pre-releases to the standard and are what is here.
        return version is not None and SpecifierSet(bounds).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def in_words(bounds: str) -> str:
    """A range as people say it: ">=8.0" is "8.0 or newer"."""
    try:
        ranges = SpecifierSet(bounds)
    except InvalidSpecifier:
        return f'in the range "{bounds}", which is not a version range'
    ordered = sorted(
        ranges,
        key=lambda one: (
            bounds.index(one.operator + one.version) if one.operator + one.version in bounds else 0
        ),
    )
    return " and ".join(_WORDS[one.operator].format(one.version) for one in ordered)
