"""Captured hosts; the file names say which library serves: `<machine>--<provider>.json`."""

from pathlib import Path

import pytest
from resolve_builders import a_stack

from backendcfg.errors import MachineError
from backendcfg.load.stack import Request, load
from backendcfg.resolve.explain import why_not
from backendcfg.resolve.plan import resolve
from backendcfg.resolve.recommend import recommend
from backendcfg.schema.host import Host

pytestmark = pytest.mark.sweep

HOSTS = sorted((Path(__file__).parent.parent / "hosts").glob("*.json"))
SHIPPED = sorted(
    path.stem for path in (Path(__file__).parent.parent.parent / "profiles").glob("*.toml")
)


def read(path):
    return Host.model_validate_json(path.read_text())


def shipped(name):
    return load(Request(name=name, use_environment=False))


def test_there_are_hosts():
    assert len(HOSTS) >= 12, "an empty glob would pass silently"


def test_there_are_profiles():
    assert len(SHIPPED) >= 6


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_the_name_says_what_is_chosen(path):
    _, expected = path.stem.split("--")
    plan = resolve(a_stack(), read(path))
    assert plan.entry("blas.library").value == expected


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_resolves_or_says_what_the_machine_lacks(name, path):
    stack, host = shipped(name), read(path)
    reasons = why_not(stack, host)
    if reasons.fits:
        assert resolve(stack, host).tier == resolve(stack, host).entry("determinism.tier").value
    else:
        with pytest.raises(MachineError) as caught:
            resolve(stack, host)
        assert caught.value.message == reasons.refusals[0].message


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_some_shipped_profile_fits_every_host(path):
    best = recommend([shipped(name) for name in SHIPPED], read(path))[0]
    assert best.fits


@pytest.mark.parametrize(
    ("name", "vendor", "route"),
    [
        ("fast", "amd", "float32"),
        ("fast", "intel", "keep"),
        ("max-throughput", "amd", "keep"),
        ("reproducible", "amd", "keep"),
    ],
)
def test_products_of_float32_are_ours_under_fast_on_amd_with_avx512(name, vendor, route):
    found = {
        resolve(shipped(name), host).entry("route.torch.matmul").value
        for host in map(read, HOSTS)
        if host.cpu.vendor == vendor and "avx512f" in host.cpu.features
    }
    assert found == {route}
