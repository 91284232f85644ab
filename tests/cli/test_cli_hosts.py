"""Captured hosts as files: every one in the tests, and one of a machine with a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from backendcfg.cli.sources import read_host, write_host
from backendcfg.errors import InvalidHostError

HOSTS = sorted((Path(__file__).parents[1] / "hosts").glob("*.json"))


def test_a_captured_host_does_not_say_the_name_of_its_machine(tmp_path):
    host = read_host(str(HOSTS[0]))
    named = host.model_copy(update={"system": host.system.model_copy(update={"name": "secret"})})
    write_host(named, str(tmp_path / "host.json"))
    assert "secret" not in (tmp_path / "host.json").read_text()
    assert read_host(str(tmp_path / "host.json")) == host


def test_a_byte_order_mark_before_a_host_is_no_fault(tmp_path):
    (tmp_path / "host.json").write_text(HOSTS[0].read_text(), encoding="utf-8-sig")
    assert read_host(str(tmp_path / "host.json")) == read_host(str(HOSTS[0]))


@pytest.mark.parametrize(
    ("text", "place"), [("[\n", ":2:1"), ("", ":1:1"), ('{"a": 1,\x0b}', ":1:9")]
)
def test_what_is_no_json_is_refused_at_its_place(text, place, tmp_path):
    (tmp_path / "host.json").write_text(text)
    with pytest.raises(InvalidHostError) as raised:
        read_host(str(tmp_path / "host.json"))
    assert f"host.json{place}\n" in raised.value.render()


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_every_captured_host_is_read_and_written_alike(path, tmp_path):
    host = read_host(str(path))
    write_host(host, str(tmp_path / "host.json"))
    assert (tmp_path / "host.json").read_text() == path.read_text()
    assert host.system.name == ""


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_every_captured_host_is_possible(path):
    host = read_host(str(path))
    assert 1 <= host.cpu.usable <= host.cpu.logical
    assert host.cpu.physical <= host.cpu.logical
    assert bool(host.cpu.limits) == (host.cpu.usable < host.cpu.logical)
    assert host.cpu.lineage[0] == host.cpu.microarchitecture
    assert len({library.path for library in host.libraries}) == len(host.libraries)
    assert {probe.probe for probe in host.probes} >= {"cpu", "nvidia", "amd", "apple", "openblas"}
    providers = {library.provider for library in host.libraries} | {"native", "reference"}
    assert path.stem.partition("--")[2] in providers


def test_there_are_hosts():
    assert len(HOSTS) >= 12
