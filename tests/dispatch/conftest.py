import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "native" / "doubles" / "double.c"
KINDS = {
    "lp64": ["INTEGER=int32_t", "PREFIX=", "SUFFIX="],
    "ilp64": ["INTEGER=int64_t", "PREFIX=scipy_", "SUFFIX=64_"],
    "without_symbol": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "WITHOUT_ZGEMV"],
    "wrong": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "WRONG"],
    "talkative": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "TALKATIVE"],
    "deadly": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "DEADLY"],
}


@pytest.fixture(scope="session")
def double(tmp_path_factory):
    """Compiles a test library once; `double("lp64", "blis")` is one under another file name."""
    folder = tmp_path_factory.mktemp("doubles")

    def compiled(kind, name="double"):
        file = folder / f"lib{name}_{kind}.so"
        if kind == "foreign":
            file.write_text("not a library\n")
        elif not file.exists():
            defines = [f"-D{define}" for define in KINDS[kind]]
            command = ["cc", "-shared", "-fPIC", "-O1", *defines, "-o", file, SOURCE]
            subprocess.run(command, check=True)
        return str(file)

    return compiled
