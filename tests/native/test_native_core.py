"""What CMake knows of the native sources.

The core's own tests are plain C programs, which CMake builds and ctest runs, as they are and under
the sanitizers: `.ci/run native`.
"""

import re
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "native"


def words(path):
    return set(re.findall(r"[\w./]+", (NATIVE / path).read_text()))


def test_every_source_is_built():
    sources = {str(path.relative_to(NATIVE)) for path in NATIVE.glob("src/**/*.c")}
    assert len(sources) > 40
    assert sources - words("CMakeLists.txt") == set()


def test_every_program_is_run():
    programs = {path.stem.removeprefix("test_") for path in NATIVE.glob("tests/test_*.c")}
    assert len(programs) > 9
    assert programs - words("tests/CMakeLists.txt") == set()
