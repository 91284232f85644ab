"""What is recommended first depends on the purpose, and reduces precision only when asked."""

from pathlib import Path
from typing import get_args

import pytest

from backendcfg.load.stack import Request, load
from backendcfg.resolve.recommend import INFERENCE, REDUCING, SPEED, Purpose, recommend
from backendcfg.schema.describe import Kind
from backendcfg.schema.host import Host
from backendcfg.schema.profile import flags

PURPOSES = get_args(Purpose)
HOSTS = Path(__file__).parent.parent / "hosts"
NAMES = ("debug", "fast", "max-throughput", "reproducible", "reproducible-anywhere", "tf32-off")


def best(path, purpose=None):
    stacks = [load(Request(name=name, use_environment=False)) for name in NAMES]
    return recommend(stacks, Host.model_validate_json(path.read_text()), purpose)[0]


@pytest.mark.parametrize(
    "host",
    [
        "dgx-h100--openblas",
        "epyc-h200-two-visible--openblas",
        "mi300x--openblas",
        "cloud-vm-zen4-no-gpu--openblas",
        "macbook-m3-max-accelerate--native",
    ],
)
def test_what_is_first_depends_on_the_purpose(host):
    first = {purpose: best(HOSTS / f"{host}.json", purpose).name for purpose in (None, *PURPOSES)}
    assert first == {
        None: "reproducible",
        "training": "fast",
        "inference": "fast",
        "papers": "reproducible",
        "debugging": "debug",
    }


@pytest.mark.sweep(6)
@pytest.mark.parametrize("path", sorted(HOSTS.glob("*.json")), ids=lambda path: path.stem)
def test_precision_is_reduced_first_only_when_asked(path):
    for purpose in (None, "papers", "debugging"):
        assert not any("reduces precision" in reason for reason in best(path, purpose).reasons)
    assert [p for p in PURPOSES if best(path, p).name == "max-throughput"] == []


def test_every_value_that_is_weighed_is_one_of_its_flag():
    faster = {flag: {value: 1} for flag, value in {**SPEED, **INFERENCE}.items()}
    for flag, values in [*REDUCING.items(), *faster.items()]:
        kind = Kind.field(flags()[flag].info)
        known = {True, False} if kind.annotation is bool else kind.literals()
        assert kind.bound("le") is not None or set(values) & set(known), flag
