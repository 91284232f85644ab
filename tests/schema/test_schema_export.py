"""What is generated from the schema is what is in the tree, and editors can use it."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from backendcfg.load.locations import profile_files, shipped_dir
from backendcfg.schema import export
from backendcfg.schema.host import Host
from backendcfg.schema.plan import Plan
from backendcfg.schema.profile import flags

ROOT = Path(__file__).resolve().parents[2]
PROFILES = list(profile_files(shipped_dir()))


@pytest.fixture(scope="module")
def profile_schema():
    return json.loads(export.json_schema("profile"))


def test_the_files_in_the_tree_are_what_is_generated_now(capsys):
    assert export.main(["--check"], ROOT) == 0, capsys.readouterr().out


def test_a_stale_file_is_named(capsys, monkeypatch):
    monkeypatch.setattr(export, "documents", lambda: {"schemas/profile.json": "stale"})
    assert export.main(["--check"], ROOT) == 1
    assert capsys.readouterr().out == (
        "schemas/profile.json is not what `python -m backendcfg.schema.export` writes\n"
    )


@pytest.mark.parametrize("name", sorted(export.DOCUMENTS))
def test_a_schema_is_a_json_schema(name):
    schema = json.loads(export.json_schema(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:backendcfg:schema:1:{name}"
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_shipped_profile_meets_the_schema_that_it_names(path, profile_schema):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#:schema ../schemas/profile.json\n")
    jsonschema.validate(tomllib.loads(text), profile_schema)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "text",
    [
        "threads.count = '8'",
        "cudnn.benchmark = 1",
        "cudnn.benchmark = 'on'",
        "cudnn.benchmrk = true",
        "bogus = 1",
        "blas.library = 'mkk'",
        "fp32_precision = 'TF32'",
        "schema = 2",
        "when = 3",
        "schema_version = 1",
        "requires.libraries.numpy = '2'",
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(text, profile_schema):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), profile_schema)


@pytest.mark.parametrize(
    "text",
    [
        "blas.library = 'mkl'",
        "blas.library = { require = 'mkl' }",
        "extends = 'a'",
        "extends = ['a', 'b']",
        "threads.count = 'auto'",
        "[[when]]\ngpu.vendor = 'amd'\nflags.cudnn.benchmark = true",
    ],
)
def test_the_schema_takes_what_the_loader_takes(text, profile_schema):
    jsonschema.validate(tomllib.loads(text), profile_schema)


def test_editors_can_show_what_each_flag_does(profile_schema):
    described = json.dumps(profile_schema)
    missing = [
        name for name, flag in flags().items() if json.dumps(flag.flag.summary) not in described
    ]
    assert missing == []


def test_a_plan_and_a_host_have_fields_for_the_schema_version():
    assert {"schema"} <= set(Host.model_json_schema()["properties"])
    assert {"schema"} <= set(Plan.model_json_schema()["properties"])


def test_the_manual_has_a_row_for_every_flag_with_its_variable():
    manual = export.manual()
    for name in flags():
        assert f"| `{name}` |" in manual
        assert f"`BACKENDCFG_{name.upper().replace('.', '_')}`" in manual


def test_the_tables_of_the_manual_are_tables():
    for line in export.manual().splitlines():
        if line.startswith("| `") and "BACKENDCFG_" in line.rsplit("|", 2)[1]:
            assert line.replace("\\|", "").count("|") == 7, line
