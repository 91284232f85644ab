"""Names of BLIS kernel sets become the numbers of the file at hand, or an error."""

from __future__ import annotations

import pytest

from backendcfg.bridges import blis_architectures
from backendcfg.bridges.blis_architectures import number, numbers, survives
from backendcfg.errors import MissingLibraryError


def test_a_file_says_itself_what_its_numbers_mean(build):
    assert numbers(build("pool_blis")) == {"zen3": 0, "haswell": 1, "knl": 2, "generic": 3}


def test_a_name_becomes_the_number_of_this_version(build):
    assert number("zen3", [build("pool_blis")]) == "0"
    assert number("haswell", [build("pool_blis")]) == "1"


def test_kernels_that_a_file_was_built_without_are_refused_with_its_own_words(build):
    path = build("pool_blis")
    with pytest.raises(MissingLibraryError) as caught:
        number("knl", [path])
    assert caught.value.render() == (
        f"error[missing-library]: BLIS at {path} has no kernel set `knl`\n"
        "  note: a child process that tried it ended with status -6\n"
        "  note: it is built with: haswell, zen3\n"
        "  state: nothing was changed\n"
        "  help: name one that it is built with\n"
        '  help: set `blas.blis.arch_type = "auto"`'
    )


def test_an_unknown_name_is_refused(build):
    path = build("pool_blis")
    with pytest.raises(MissingLibraryError) as caught:
        number("zen9", [path])
    assert caught.value.notes[0] == "it does not know the name"


def test_files_that_number_differently_are_not_served_by_one_variable(build):
    paths = [build("pool_blis"), build("pool_blis", "NUMBER=2")]
    with pytest.raises(MissingLibraryError) as caught:
        number("zen3", paths)
    assert caught.value.message == (
        "the BLIS files here number `zen3` differently, and one variable serves them all"
    )
    assert caught.value.notes == (f"{paths[0]}: 0", f"{paths[1]}: 2")


def test_a_file_that_is_no_blis_is_refused(build):
    path = build("pool_mkl")
    with pytest.raises(MissingLibraryError) as caught:
        number("zen3", [path])
    assert caught.value.message == f"cannot ask {path} for its kernel sets"
    assert "undefined symbol: bli_arch_string" in caught.value.notes[0]


def test_a_child_that_hangs_is_given_up(build, monkeypatch):
    monkeypatch.setattr(blis_architectures, "SECONDS", 0)
    with pytest.raises(MissingLibraryError) as caught:
        numbers(build("pool_blis"))
    assert caught.value.notes == ("a child process that tried it did not end within 0 s",)


def test_a_preset_variable_does_not_reach_the_child(build, monkeypatch):
    monkeypatch.setenv("BLIS_ARCH_TYPE", "2")
    assert number("haswell", [build("pool_blis")]) == "1"


def test_whether_a_file_survives_a_text_is_tried_elsewhere(build):
    path = build("pool_blis")
    assert survives(path, "1") is True
    assert survives(path, "2") is False
