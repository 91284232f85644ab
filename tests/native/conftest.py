import pytest

from backendcfg import _native


@pytest.fixture
def callbacks():
    """Binds callbacks for one test; afterwards they are what they were, and so is the base."""
    names = ("enter_switches", "leave_switches", "misplaced", "decorate", "aenter", "aexit")
    before = _native.bind(**dict.fromkeys(names))
    yield _native.bind
    _native.bind(**before)
