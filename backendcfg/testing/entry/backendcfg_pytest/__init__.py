"""What pytest loads in every environment that has backendcfg: two options, and nothing else.

Importing `backendcfg` applies the profile in force, so this stands outside that package, and loads
it only for a run that asks for it by an option, a setting or a marker.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest

MARKER = "backendcfg(profile): run the test with this profile of backendcfg in force."


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and the settings that stand for them."""
    group = parser.getgroup("backendcfg", "numeric switches")
    group.addoption(
        "--backendcfg",
        metavar="PROFILE",
        default=None,
        help="Run all tests with this profile of backendcfg in force.",
    )
    group.addoption(
        "--backendcfg-guard",
        action="store_true",
        default=None,
        help="Fail a test that leaves a numeric switch changed, and put the switch back.",
    )
    parser.addini("backendcfg_profile", "As --backendcfg.", default="")
    parser.addini("backendcfg_guard", "As --backendcfg-guard.", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin itself, if something asks for it."""
    config.addinivalue_line("markers", MARKER)
    profile = config.getoption("backendcfg") or config.getini("backendcfg_profile")
    guard = config.getoption("backendcfg_guard")
    if guard is None:
        guard = config.getini("backendcfg_guard")
    if not (profile or guard):
        return
    from backendcfg.testing.plugin import Suite

    Suite(config, profile, guard=guard).register()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Register what runs a marked test under its profile."""
    if item.get_closest_marker("backendcfg") is not None:
        from backendcfg.testing.plugin import Marked

        Marked.register(item.config)
