import subprocess
from pathlib import Path

import pytest
from once import once

SOURCE = Path(__file__).resolve().parents[2] / "native" / "fakes" / "fake.c"
KINDS = {
    "lp64": ["INTEGER=int32_t", "PREFIX=", "SUFFIX="],
    "ilp64": ["INTEGER=int64_t", "PREFIX=scipy_", "SUFFIX=64_"],
    "without_symbol": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "WITHOUT_ZGEMV"],
    "wrong": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "WRONG"],
    "talkative": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "TALKATIVE"],
    "deadly": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "DEADLY"],
}


@pytest.fixture(scope="session")
def fake():
    """Compiles a test library once; `fake("lp64", "blis")` is one under another file name."""

    def compiled(kind, name="fake"):
        file = f"lib{name}_{kind}.so"

        def make(folder):
            if kind == "foreign":
                (folder / file).write_text("not a library\n")
                return
            defines = [f"-D{define}" for define in KINDS[kind]]
            command = ["cc", "-shared", "-fPIC", "-O1", *defines, "-o", folder / file, SOURCE]
            subprocess.run(command, check=True)

        return str(once(repr(("dispatch", kind, name)), make) / file)

    return compiled


@pytest.fixture(name="stored")
def _stored(tmp_path, monkeypatch):
    """Stores a calibration of this machine with the given times, and returns the table."""
    from backendcfg.dispatch import calibration
    from backendcfg.dispatch.calibration import Measurable, Measured, Table

    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path / "cache"))

    def stored(paths, times, threads=1, pools=None, **changes):
        """`times` is `{operation: {size class: {provider: seconds}}}`."""
        libraries = {
            name: Measurable(path, "1.0", calibration.identity(path), (pools or {}).get(name, name))
            for name, path in paths.items()
        }
        measured = {
            operation: {
                size: {name: Measured(seconds, 0.01, 7) for name, seconds in row.items()}
                for size, row in rows.items()
            }
            for operation, rows in times.items()
        }
        digest, processor = calibration.machine()
        facts = {"machine": digest, "processor": processor, "threads": threads, "taken": 1.8e9}
        facts |= {"libraries": libraries, "times": measured, "environment": calibration.kernels()}
        table = Table(**{**facts, **changes})
        calibration.write(table)
        return table

    return stored
