"""A file that cannot be read as TOML text says so, with a place where there is one."""

import os

import pytest

from backendcfg.errors import BackendCfgError, TomlSyntaxError, UnreadableFileError
from backendcfg.load.document import read_profile
from backendcfg.load.text import read_text
from backendcfg.startup import LARGEST


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write bytes to x.toml in the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(content):
        (tmp_path / "x.toml").write_bytes(content)
        return "x.toml"

    return write


def rendered(path):
    with pytest.raises(BackendCfgError) as raised:
        read_profile(path)
    return raised.value.render()


def test_a_missing_file_is_an_error(written):
    assert rendered("none.toml") == (
        "error[unreadable-file]: cannot read none.toml: no such file or directory\n"
        "  state: nothing was changed"
    )


def test_a_directory_with_the_name_of_a_profile_is_an_error(written, tmp_path):
    (tmp_path / "x.toml").mkdir()
    assert rendered("x.toml").startswith(
        "error[unreadable-file]: cannot read x.toml: it is a directory\n"
    )


def test_a_link_to_nothing_says_where_it_leads(written, tmp_path):
    (tmp_path / "x.toml").symlink_to("gone.toml")
    assert "it is a link to gone.toml, which does not exist" in rendered("x.toml")


def test_a_link_to_itself_is_an_error(written, tmp_path):
    (tmp_path / "x.toml").symlink_to("x.toml")
    assert "too many levels of symbolic links" in rendered("x.toml")


def test_a_pipe_is_refused_without_waiting_for_its_writer(written, tmp_path):
    os.mkfifo(tmp_path / "x.toml")
    assert "cannot read x.toml: it is not a plain file" in rendered("x.toml")


def test_a_device_is_refused(written):
    assert "cannot read /dev/zero: it is not a plain file" in rendered("/dev/zero")


def test_a_name_with_a_zero_byte_is_refused(written):
    assert "cannot be the name of a file" in rendered("a\0b.toml")


def test_a_forbidden_file_is_an_error(written, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    written(b"")
    monkeypatch.setattr(os, "open", refuse)
    assert rendered("x.toml").startswith(
        "error[unreadable-file]: cannot read x.toml: permission denied\n"
    )


def test_a_disk_that_fails_while_reading_is_an_error(written, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    written(b"")
    monkeypatch.setattr(os, "read", fail)
    assert "cannot read x.toml: input/output error" in rendered("x.toml")


def test_a_file_of_fifty_megabytes_is_refused_before_it_is_read(written, tmp_path, monkeypatch):
    with open(tmp_path / "x.toml", "wb") as handle:
        handle.truncate(50_000_000)
    monkeypatch.setattr(os, "read", lambda *_: pytest.fail("it was read"))
    assert rendered("x.toml") == (
        "error[unreadable-file]: cannot read x.toml: "
        "it has 50,000,000 bytes, and may have 1,048,576\n"
        "  state: nothing was changed"
    )


def test_a_file_that_grows_while_it_is_read_is_refused(written, monkeypatch):
    written(b"")
    monkeypatch.setattr(os, "read", lambda _, count: b"#" * count)
    assert "it has 1,048,577 bytes" in rendered("x.toml")


def test_the_largest_file_is_read(written):
    assert len(read_text(written(b"#" * LARGEST)).text) == LARGEST


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"\xef\xbb\xbf", "UTF-8 with a byte order mark"),
        (b"\xff\xfe", "UTF-16"),
        (b"\xfe\xff", "UTF-16"),
    ],
)
def test_a_byte_order_mark_is_an_error_that_says_how_to_save(written, mark, encoding):
    assert rendered(written(mark + b"schema = 1\n")) == (
        f"error[unreadable-file]: x.toml is {encoding}; TOML is plain UTF-8\n"
        "  --> x.toml:1:1\n"
        "  state: nothing was changed\n"
        "  help: save it as UTF-8 without a byte order mark"
    )


def test_bytes_that_are_not_utf8_have_a_place(written):
    assert rendered(written("# für\nschema = 1 # f".encode() + b"\xfcr\n")) == (
        "error[unreadable-file]: x.toml is not UTF-8 text: byte 0xfc at line 2\n"
        "  --> x.toml:2:15\n"
        "   |\n"
        " 2 | schema = 1 # für\n"
        "   |               ^ not UTF-8 from here\n"
        "  state: nothing was changed\n"
        "  help: save it as UTF-8, or give a TOML file"
    )


def test_a_zero_byte_means_binary(written):
    assert rendered(written(b"a = 1\n\0")).startswith(
        "error[unreadable-file]: x.toml is binary: it has a zero byte\n  --> x.toml:2:1\n"
    )


def test_crlf_is_read_as_every_other_newline(written):
    path = written(b'schema = 1\r\ndescription = "x"\r\nlog.level = "debug"\r\n')
    (assignment,) = read_profile(path).assignments
    place = assignment.place
    assert (place.line, place.column, place.source) == (3, 13, 'log.level = "debug"')


def test_a_carriage_return_alone_is_not_a_newline(written):
    assert rendered(written(b"schema = 1\rlog = 1\n")).endswith(
        "help: end lines with a newline, or a carriage return and a newline"
    )


@pytest.mark.parametrize("there", ["parent", "root"])
def test_a_place_is_named_from_the_working_directory(written, tmp_path, monkeypatch, there):
    written(b"=")
    monkeypatch.chdir(tmp_path.parent if there == "parent" else "/")
    with pytest.raises(TomlSyntaxError) as raised:
        read_profile(tmp_path / "x.toml")
    # In the root directory a path without its slash would look relative.
    named = f"{tmp_path.name}/x.toml" if there == "parent" else f"{tmp_path}/x.toml"
    assert str(raised.value.spans[0]) == f"{named}:1:1"


def test_an_empty_file_is_a_profile_that_sets_nothing(written):
    assert read_profile(written(b"")).assignments == ()


def test_an_unreadable_file_exits_with_2(written):
    with pytest.raises(UnreadableFileError) as raised:
        read_profile("none.toml")
    assert raised.value.exit_code == 2
