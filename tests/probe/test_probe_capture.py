"""Hosts as files: written whole, read strictly, refused in our own words."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backendcfg.errors import InvalidHostError, StateUnwritableError
from backendcfg.probe.capture import read, write
from backendcfg.schema.host import Absent, Cpu, Gpu, Host, Interpreter, Memory, System

HOSTS = sorted((Path(__file__).parents[1] / "hosts").glob("*.json"))
WRITE = "run `backendcfg detect --capture FILE` to write a host"


@pytest.fixture
def host():
    return Host(
        system=System(os="linux", name="secret-machine"),
        python=Interpreter(version="3.12.3"),
        cpu=Cpu(
            vendor="amd",
            name="AMD EPYC 9654",
            architecture="x86_64",
            microarchitecture="zen4",
            lineage=("zen4", "zen3"),
            logical=192,
            physical=96,
            usable=192,
        ),
        memory=Memory(total=1 << 40),
        gpus=(Gpu(index=0, vendor="nvidia", name="Tesla T4", compute_capability="7.5"),),
        probes=(Absent(probe="amd", reason="none"),),
    )


@pytest.fixture
def data(host):
    return json.loads(host.model_dump_json(by_alias=True))


@pytest.fixture
def refused(tmp_path):
    def read_text(text):
        path = tmp_path / "host.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(InvalidHostError) as caught:
            read(path)
        return caught.value.render().replace(str(tmp_path) + os.sep, "")

    return read_text


def test_a_host_comes_back_as_it_was_without_the_machines_name(host, tmp_path):
    write(host, tmp_path / "host.json")
    back = read(tmp_path / "host.json")
    assert back.system.name == ""
    assert back == host.model_copy(update={"system": System(os="linux")})
    assert "secret-machine" not in (tmp_path / "host.json").read_text()


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(host, tmp_path, monkeypatch):
    target = tmp_path / "host.json"
    target.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StateUnwritableError) as caught:
        write(host, target)
    assert caught.value.message == (
        f"the host cannot be written to {target}: No space left on device"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["host.json"]
    assert target.read_text() == "old"


def test_a_directory_that_is_not_there_is_said(host, tmp_path):
    with pytest.raises(StateUnwritableError, match="No such file or directory"):
        write(host, tmp_path / "none" / "host.json")


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(InvalidHostError) as caught:
        read(tmp_path / "none.json")
    assert caught.value.message == (
        f"cannot read the host {tmp_path / 'none.json'}: no such file or directory"
    )


def test_a_directory_is_said(tmp_path):
    with pytest.raises(InvalidHostError) as caught:
        read(tmp_path)
    assert caught.value.message == f"cannot read the host {tmp_path}: is a directory"


def test_text_that_is_not_json_is_shown_with_its_place(refused):
    assert refused('{"schema": 1,\n "cpu": }\n') == (
        "error[invalid-host]: host.json is not JSON\n"
        "  --> host.json:2:9\n"
        "   |\n"
        ' 2 |  "cpu": }\n'
        "   |         ^ expecting value\n"
        "  state: nothing was changed\n"
        f"  help: {WRITE}"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "host.json is not JSON"),
        (b"\xff\xfe\x00", "host.json is not a host: it is not UTF-8 text"),
        ("[" * 200_000, "host.json is not a host: it is nested too deeply"),
        ("[1]", "host.json is not a host: it holds an array, not an object"),
        ("null", "host.json is not a host: it holds null, not an object"),
        ('"text"', 'host.json is not a host: it holds the string "text", not an object'),
        (b" " * (17 * 2**20), "host.json is not a host: it is larger than 16 MiB"),
        ("{}", "host.json has no `schema`; this release of backendcfg reads schema 1"),
        (
            '{"schema": 2}',
            "host.json has schema 2; this release of backendcfg reads schema 1",
        ),
        (
            '{"schema": true}',
            "host.json has schema True; this release of backendcfg reads schema 1",
        ),
        (
            '{"schema": "1"}',
            "host.json has schema '1'; this release of backendcfg reads schema 1",
        ),
    ],
)
def test_what_is_no_host_is_said_in_a_line(refused, text, why):
    assert refused(text).splitlines()[0] == f"error[invalid-host]: {why}"


def test_every_fault_is_said_with_its_place(data, refused):
    del data["cpu"]["usable"]
    data["gpus"][0]["nmae"] = "x"
    data["gpus"][0]["memory"] = "16 GB"
    data["system"]["os"] = "beos"
    data["libraries"] = {}
    data["probes"][0]["outcome"] = "perhaps"
    data["memory"] = 5
    data["cpu"]["logical"] = 1.5
    assert refused(json.dumps(data)) == (
        "error[invalid-host]: host.json is not a host: 8 faults in it\n"
        "  note: `system.os` must be 'linux', 'macos', 'windows' or 'other', not \"beos\"\n"
        "  note: `cpu.logical` must be an integer, not the number 1.5\n"
        "  note: `cpu.usable` is missing\n"
        "  note: `memory` must be an object, not the integer 5\n"
        '  note: `gpus[0].memory` must be an integer, not the string "16 GB"\n'
        "  note: `gpus[0].nmae` is not a key of a host\n"
        "  note: `libraries` must be an array, not an object\n"
        "  note: `probes[0].outcome` must be 'found', 'absent' or 'broken'\n"
        "  state: nothing was changed\n"
        f"  help: {WRITE}"
    )


def test_a_fault_in_a_probe_has_the_place_that_is_in_the_file(data, refused):
    del data["probes"][0]["reason"]
    assert "  note: `probes[0].reason` is missing\n" in refused(json.dumps(data))


def test_many_faults_are_counted(data, refused):
    data["gpus"] = [{"index": n} for n in range(10)]
    lines = refused(json.dumps(data)).splitlines()
    assert lines[0] == "error[invalid-host]: host.json is not a host: 20 faults in it"
    assert lines[9] == "  note: and 12 more"


def test_a_byte_order_mark_is_no_fault(host, tmp_path):
    text = host.model_dump_json(by_alias=True)
    (tmp_path / "host.json").write_text(text, encoding="utf-8-sig")
    assert read(tmp_path / "host.json") == host


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_every_captured_host_is_read_and_written_alike(path, tmp_path):
    host = read(path)
    write(host, tmp_path / "host.json")
    assert (tmp_path / "host.json").read_text() == path.read_text()
    assert host.system.name == ""


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_every_captured_host_is_possible(path):
    host = read(path)
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
