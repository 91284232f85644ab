"""What pytest loads in every environment that has backendcfg: three options, and nothing else.

Importing `backendcfg` applies the profile in force, so this stands outside that package, and loads
it only for a run that has a profile: by an option, a setting, a marker, or in force where it runs.
"""

from __future__ import annotations

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
    group.addoption(
        "--backendcfg-prove",
        metavar="N",
        default=None,
        help="Run each test that is marked with a profile N times under it, in processes of its"
        " own, and fail it where a run prints or records something else.",
    )
    parser.addini("backendcfg_profile", "As --backendcfg.", default="")
    parser.addini("backendcfg_guard", "As --backendcfg-guard.", type="bool", default=False)
    parser.addini("backendcfg_prove", "As --backendcfg-prove.", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin itself, if something asks for it."""
    config.addinivalue_line("markers", MARKER)
    profile = config.getoption("backendcfg") or config.getini("backendcfg_profile")
    guard = config.getoption("backendcfg_guard")
    if guard is None:
        guard = config.getini("backendcfg_guard")
    runs = config.getoption("backendcfg_prove")
    if runs is None:
        runs = config.getini("backendcfg_prove")
    suite = profile or guard or _is_in_force()
    if not (suite or runs):
        return
    try:
        from backendcfg.testing.plugin import Suite

        if runs:
            from backendcfg.testing.proving import Prover

            Prover(config, runs).register()
    except Exception as error:
        if hasattr(error, "render"):  # an error of ours: what is asked for or in force is wrong
            raise pytest.UsageError(error.render()) from error
        raise
    if suite:
        Suite(config, profile, guard=guard).register()


def _is_in_force() -> bool:
    """Whether a profile may be in force here, a project's file included."""
    try:
        import _backendcfg_startup as startup
    except ImportError:  # backendcfg is on PYTHONPATH only
        return False
    return (
        startup.may_have_profile(committed=True)[0]
        and not startup.disabled()
        and not startup.is_off()
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Whether backendcfg is off, or a project is another user's, as in a container."""
    try:
        import _backendcfg_startup as startup
    except ImportError:
        return []
    if startup.is_turned_off():
        return ["backendcfg: turned off by BACKENDCFG_DISABLE"]
    path, theirs = startup.project_of_another(startup.working_directory())
    whose = "it" if theirs == path else repr(theirs)
    return [f"backendcfg: {path!r} does not count: {whose} is another user's"] if path else []


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Register what runs a marked test under its profile, unless it is proven.

    After its fixtures are set up: they may mark it, too, and so may a `conftest.py`.
    """
    if item.get_closest_marker("backendcfg") is None:
        return
    if (prover := item.config.pluginmanager.get_plugin("backendcfg-prover")) is not None:
        prover.refuse_unproven(item)
    else:
        from backendcfg.testing.plugin import Marked

        Marked.register(item.config)
