"""Mistakes on the command line: our form, the nearest name, exit code 2."""

import json

import pytest

NAMES = [
    (
        ["stats"],
        "`backendcfg stats` is not a command",
        ["did you mean `status`?", "run `backendcfg --help` to list the commands"],
    ),
    (
        ["frobnicate"],
        "`backendcfg frobnicate` is not a command",
        ["run `backendcfg --help` to list the commands"],
    ),
    (
        ["plan", "--jsn"],
        "unknown option `--jsn` of `backendcfg plan`",
        ["did you mean `--json`?", "run `backendcfg plan --help` for what it accepts"],
    ),
    (
        ["--colour"],
        "unknown option `--colour` of `backendcfg`",
        ["did you mean `--no-color`?", "run `backendcfg --help` for what it accepts"],
    ),
    (
        ["diff", "fast"],
        "`backendcfg diff` needs B",
        ["run `backendcfg diff --help` for what it accepts"],
    ),
    (
        ["env", "--format", "yaml"],
        "`backendcfg env`: --format: `yaml` is not one of `sh`, `dotenv`, `json`",
        ["run `backendcfg env --help` for what it accepts"],
    ),
    (
        ["plan", "fast", "slow"],
        "`backendcfg plan`: got unexpected extra argument (slow)",
        ["run `backendcfg plan --help` for what it accepts"],
    ),
    (
        ["plan", "--set", "threads.count"],
        "`--set threads.count` is not of the form flag=value",
        ["write for example `--set threads.count=4`"],
    ),
    (
        ["plan", "--set", "threads.count=4", "--set", "threads.count = 5"],
        "`--set threads.count` is given twice: 4 and 5",
        ["give each flag once"],
    ),
    (
        ["run", "tf32-off", "--save-ranks", "", "--", "true"],
        "`--save-ranks ` names no folder",
        ["give one that all ranks share: `--save-ranks ranks`"],
    ),
    (
        ["run", "tf32-off", "--save-ranks", "--", "true"],
        "`--save-ranks --` names no folder",
        ["give one that all ranks share: `--save-ranks ranks`"],
    ),
    (
        ["fleet", "plan"],
        "`backendcfg fleet plan` needs PROFILE and HOSTS",
        ["write for example `backendcfg fleet plan reproducible hosts/*.json`"],
    ),
    (
        ["fleet", "plan", "fast"],
        "`backendcfg fleet plan` needs HOSTS",
        ["write for example `backendcfg fleet plan reproducible hosts/*.json`"],
    ),
    (
        ["fleet", "report"],
        "`backendcfg fleet report` needs DIR",
        ["give the folder of `backendcfg run --save-ranks DIR`"],
    ),
    (
        ["fleet", "report", "ranks", "others"],
        "`backendcfg fleet report` takes one DIR",
        ["give the folder of `backendcfg run --save-ranks DIR`"],
    ),
    (
        ["fleet", "report", "ranks", "--set", "threads.count=4"],
        "`backendcfg fleet report` takes no `--set`",
        ["write `backendcfg fleet report DIR`, and `-o FILE` for a page of HTML"],
    ),
    (
        ["fleet", "report", "ranks", "--ranks", "1"],
        "`backendcfg fleet report` takes no `--ranks`",
        ["write `backendcfg fleet report DIR`, and `-o FILE` for a page of HTML"],
    ),
    (
        ["run"],
        "`backendcfg run` needs a command",
        [
            "write `backendcfg run reproducible -- python train.py`",
            "or `backendcfg run -- python train.py` for the profile in force here",
        ],
    ),
    (
        ["prove", "--runs", "3", "--", "python", "a b.py"],
        "`backendcfg prove` needs PROFILE before `--`",
        ["write `backendcfg prove PROFILE -- python 'a b.py'`"],
    ),
    (
        ["compare", "fast", "--", "python", "x.py"],
        "`backendcfg compare` needs A B before `--`",
        ["write `backendcfg compare A B -- python x.py`"],
    ),
    (
        ["run", "fast"],
        "`backendcfg run` needs a command",
        [
            "write `backendcfg run fast -- python train.py`",
            "or `backendcfg run -- python train.py` for the profile in force here",
        ],
    ),
]


@pytest.mark.parametrize(("words", "message", "helps"), NAMES, ids=lambda v: "-".join(v)[:40])
def test_a_mistake_is_named_with_the_nearest_name(words, message, helps, call):
    result = call(*words)
    assert (result.code, result.out) == (2, "")
    lines = [f"error[usage]: {message}", "  state: nothing was changed"]
    assert [*lines, *(f"  help: {text}" for text in helps)] == result.err.splitlines()


@pytest.mark.parametrize("words", [["--json", "stats"], ["plan", "--nope", "--json"]])
def test_a_mistake_of_parsing_obeys_json_wherever_it_stands(words, call):
    result = call(*words)
    assert (result.code, result.err) == (2, "")
    assert json.loads(result.out)["error"]["code"] == "usage"


def test_json_after_the_command_of_run_belongs_to_the_command(call):
    result = call("run", "no-such-profile", "python", "--json")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error[unknown-profile]")


def test_a_variable_that_nobody_reads_is_an_error_for_every_command(call, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_PROFIL", "fast")
    result = call("status")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[unknown-variable]: environment variable BACKENDCFG_PROFIL is not one that "
        "backendcfg reads\n"
        "  state: nothing was changed\n"
        "  help: did you mean BACKENDCFG_PROFILE?\n"
        "  help: run `backendcfg doctor` to list every variable that is read\n"
    )


def test_help_lists_every_verb_under_a_section(call):
    from backendcfg.cli.group import verb_names

    result = call("--help")
    assert (result.code, result.err) == (0, "")
    listed = [line.split()[0] for line in result.out.splitlines() if line.startswith("  ")]
    assert [name for name in verb_names() if name not in listed] == []


def test_without_words_the_overview_is_shown(call):
    result = call()
    assert call("--help") == result
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: backendcfg [OPTIONS] COMMAND [ARGS]...\n")


def test_every_verb_has_help_in_one_line(call):
    import click

    from backendcfg.cli.main import group

    context = click.Context(group, info_name="backendcfg")
    long = {
        name: text
        for name in group.list_commands(context)
        if len(text := group.get_command(context, name).get_short_help_str(limit=200)) > 72
    }
    assert long == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("schema", "validate --schema"),
        ("show", "plan PROFILE --toml"),
        ("why-not", "plan PROFILE --why-not"),
    ],
)
def test_an_old_name_says_what_does_the_same_now(old, new, call):
    result = call(old, "fast")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"error[usage]: `backendcfg {old}` is `backendcfg {new}` now\n"
        "  state: nothing was changed\n"
        f"  help: write `backendcfg {new}`\n"
    )


def test_options_that_do_not_go_together_are_refused(call, host):
    assert call("plan", "fast", "--toml", "--host", host).err.startswith(
        "error[usage]: `backendcfg plan --toml` takes nothing but a profile\n"
    )
    assert call("validate", "--schema", "host", "x.toml").err.startswith(
        "error[usage]: `backendcfg validate --schema` takes no file\n"
    )
    assert call("plan", "--toml").err.startswith(
        "error[usage]: no profile is named, and none is in force here\n"
    )
