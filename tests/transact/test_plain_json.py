"""JSON without `import json`: the same results, the same errors, and no regular expressions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from backendcfg import plain_json

VALUES = (
    [1, "é\n\\", None, True, {"x": [1.5, -2, {}], "y": float("inf")}],
    "text",
    {},
    ("a", ["b", ()]),
    {"nested": {"deep": [{"deeper": 1e300}]}},
)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_it_writes_and_reads_what_json_does(value):
    assert plain_json.dumps(value) == json.dumps(value)
    assert plain_json.loads(json.dumps(value) + "\n") == json.loads(json.dumps(value))


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nul", "[1] x", '{"a":1', "2\x0b"])
def test_what_is_no_json_is_refused_as_json_does(text):
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as found:
        plain_json.loads(text)
    assert str(found.value) == str(expected.value)


def test_what_json_cannot_say_is_refused():
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        plain_json.dumps([{1}])


def test_it_loads_neither_json_nor_regular_expressions():
    code = (
        "import sys; from backendcfg import plain_json; before = set(sys.modules)\n"
        "assert plain_json.loads(plain_json.dumps({'a': [1]})) == {'a': [1]}\n"
        "assert not {'json', 're'} & (set(sys.modules) - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000], ids=["arrays", "objects"])
def test_what_is_nested_too_deeply_is_a_value_error(text):
    with pytest.raises(ValueError, match="it is nested too deeply"):
        plain_json.loads(text)
