"""Rows as lines and as HTML."""

from xml.etree import ElementTree as ET

from backendcfg.ops import trace
from backendcfg.tables import MOST_ROWS, aligned, html


def test_lines_have_their_cells_in_columns_and_end_without_spaces():
    assert aligned([("a", "bb", "c"), ("aaa", "b", "")]) == ["a    bb  c", "aaa  b"]
    assert aligned([]) == []


def test_html_is_whole_and_every_text_is_escaped():
    text = html("a < b", ("x & y", "z"), [("<script>", '"'), ("1", "2")], ["<b>"])
    root = ET.fromstring(f"<div>{text}</div>")
    assert root.findtext("table/caption") == "a < b"
    assert [[cell.text for cell in row] for row in root.iter("tr")] == [
        ["x & y", "z"],
        ["<script>", '"'],
        ["1", "2"],
    ]
    assert root.findtext("p") == "<b>"


def test_a_long_table_is_cut_and_says_so():
    text = html("many", ("n",), [(str(number),) for number in range(MOST_ROWS + 5)])
    assert text.count("<tr>") == MOST_ROWS + 1
    assert text.endswith("<p>and 5 more</p>")


def test_without_rows_there_is_a_title():
    assert html("nothing", ("a",), []) == "<table>\n<caption>nothing</caption>\n</table>"


def test_a_long_trace_shows_its_first_calls():
    calls = trace(most=100)
    calls._calls += [("matmul", (4, 4), "float64", "native", "first")] * (MOST_ROWS + 3)
    calls.left_out = 2
    *_, more, left = repr(calls).splitlines()
    assert more == "and 3 more; `print` shows all of them"
    assert left == "and 2 more, which were not kept"
    assert len(str(calls).splitlines()) == MOST_ROWS + 4
