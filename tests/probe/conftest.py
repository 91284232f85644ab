"""Small libraries compiled on the spot, and file trees that look like other machines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from once import once

from backendcfg.probe import loaded

FAKES = Path(__file__).parents[2] / "native" / "fakes"


@pytest.fixture(autouse=True)
def _only_its_own_libraries(monkeypatch, tmp_path, tmp_path_factory):
    """Libraries that other tests compiled stay in the process for good; here they are not seen."""
    mapped, others = loaded.mapped_files, str(tmp_path_factory.getbasetemp())

    def own(*arguments):
        paths = mapped(*arguments)
        return [p for p in paths if not p.startswith(others) or p.startswith(str(tmp_path))]

    monkeypatch.setattr(loaded, "mapped_files", own)


@pytest.fixture
def compiled(tmp_path):
    """`compiled("lib/libopenblas.so", "OPENBLAS", SUFFIX="64_")`: a path below tmp_path."""

    def build(place, *features, source="probe_library", **values):
        flags = [f"-D{name}" for name in features]
        flags += [f"-D{name}={value}" for name, value in values.items()]
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
        command.append(str(FAKES / f"{source}.c"))

        def make(folder):
            subprocess.run([*command, "-o", folder / "it.so"], check=True)

        made = once(repr(command), make) / "it.so"
        target = tmp_path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(made.read_bytes())
        return str(target)

    return build


@pytest.fixture
def tree(tmp_path):
    """`tree({"proc/cpuinfo": text})`: a root directory with these files."""

    def build(files):
        root = tmp_path / "root"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(root)

    return build
