"""The report: data that is read back, the page for each verb, and a browser that shows it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

import backendcfg
from backendcfg import errors
from backendcfg.audit.evidence.compare import Comparison, Why
from backendcfg.audit.evidence.float64 import Bits, Float64
from backendcfg.audit.evidence.measure import Measured
from backendcfg.audit.evidence.outputs import Deviation, Distance, Part
from backendcfg.audit.evidence.pairs import ratio
from backendcfg.audit.evidence.probes import Precision
from backendcfg.audit.evidence.prove import Difference, Proof
from backendcfg.audit.evidence.recorded import Between
from backendcfg.audit.evidence.served import Served
from backendcfg.audit.evidence.twice import Twice, Unlike
from backendcfg.audit.evidence.why import Parted, Search
from backendcfg.audit.report import charts, page
from backendcfg.audit.report.data import About, Against, Compared, Drift, Proved, Verified
from backendcfg.audit.trace.reading import Followed
from backendcfg.audit.verify import Reading, Verification
from backendcfg.cli.main import main

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[31m\u202e\ud800&\"'"
)


def proved(text="loss", *, equal=False):
    """A proof with something of everything; `text` stands wherever a program chooses words."""
    numbers = Distance("numbers differ", 4, (), 1, 2e-7, ("0.5", "0.6"), 3)
    odd = Difference(
        2, True, numbers, (Deviation(text, f"{text}: other bytes"),), (Deviation(text, text),)
    )
    words = Distance("text differs", first=('"a"', f'"{text}"'), line=2)
    other = Difference(3, False, words, (), (), ("threads = 1",))
    proof = Proof(
        text,
        4,
        4,
        2,
        ("addresses", text),
        (Part("time", text, 9),),
        0.53,
        (odd, other),
        7,
        (text,),
        {"threads": 1},
    )
    step = Parted(
        operation=text,
        other=text,
        index=27,
        stream="0-0",
        place=text,
        shapes=("float32[10, 256]",),
        same_inputs=True,
        elements=2560,
        differing=454,
        apart=2e-7,
        cause="surroundings",
        settings=("threads 2 -> 1",),
        replays=14,
        cure={"threads.count": 2, text: text},
        length=300,
        followed=(
            Followed(27, text, 2e-7),
            Followed(28, "mm", 0.0),
            Followed(29, "exp", 1e-3),
            Followed(30, "log", None),
        ),
    )
    if equal:
        return Proved(About("prove", ("python", text)), Proof("fast", 4, 1, 0, (), (), 0.5, ()), "")
    return Proved(
        About("prove", ("python", text)),
        proof,
        "run-to-run",
        Twice(500, (Unlike(text, 3, text, ()),), 0.006),
        Search((step,), text, 300),
        {"threads.count": 2},
        Against((text,), (Drift("libraries.numpy", "2.0", text),)),
    )


def compared(text="fast"):
    """A comparison in which B is faster, with the flags that make it so."""
    faster = ratio([2.0, 1.0, 1.1, 2.1, 2.2, 1.0, 1.0, 2.0])
    same = ratio([1.0] * 8)
    output = Distance("numbers differ", 3, (), 1, 1e-3, ("1", "2"), 1)
    comparison = Comparison(
        "nothing", text, 2, faster, same, same, output, Between(3, (text,), (text,))
    )
    why = Why({text: faster}, {"jax.x": text}, (text,))
    exact = Bits(5, 22, 20, "train.py:3", 0)
    float64 = Float64(
        {text: exact, "aten.add": exact, "mine.op": Bits(0, 0, 0, "", 2)},
        {text: Bits(5, 8, 7, text, 0), "aten.add": exact},
    )
    return Compared(About("compare", ("python", text)), comparison, why, float64)


def verified(text="ok"):
    """A verification in which one library computes with fewer bits than granted."""
    readings = (
        Reading("flag", text, 1, 1, "ok"),
        Reading("flag", "switch", True, text, "differs", text),
    )
    measured = (
        Measured("torch.mm", "cuda:0", "float32", Precision("float32", 10), 23, "differs", text),
        Measured(
            *("numpy.matmul", "cpu", "float64", Precision("float64", 52, 52), 52, "ok", ""),
            Served("numpy's OpenBLAS", text, 0.9),
        ),
        Measured(text, "cpu", "float32", None, 23, "not measured", text),
    )
    found = Verification("tf32-off", "none", False, readings, (text,), (text,), measured=measured)
    return Verified(About("verify"), found, {text: text}, text)


KINDS = {"prove": proved, "compare": compared, "verify": verified}


class Elements(HTMLParser):
    """The names of elements and attributes of a page, and its text."""

    def __init__(self, html):
        super().__init__()
        self.names, self.attributes, self.text = set(), set(), ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += f"{data} "


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_program_chooses_is_text_on_the_page(kind):
    plain, hostile = (Elements(page.page(KINDS[kind](text))) for text in ("loss", HOSTILE))
    assert hostile.names == plain.names
    assert hostile.attributes == plain.attributes
    assert not hostile.names & {"script", "img", "iframe", "link"}
    assert "<script>document.title='owned'</script>" in hostile.text
    assert "\x1b" not in hostile.text
    assert "\u202e" not in hostile.text
    assert "\\x1b[31m\\u202e\\ud800" in hostile.text


def test_the_page_of_a_proof_says_what_was_found():
    text = " ".join(Elements(page.page(proved())).text.split())
    for words in (
        "2 of 4 runs under loss differ from the first",
        "run with printed loss loss 1 the first the first the first",
        "2 load line 3 has 0.6, not 0.5; 1 of 4 numbers differ, apart by 2.0e-07 at most loss",
        '3 threads = 1 another text from line 2 on: "loss", not "a" the same the same',
        "4 load the same the same the same",
        "op 27 of 300",
        "same inputs, other output: 454 of 2560 elements, relative 2.0e-07 at most",
        'steady with threads.count = 2, loss = "loss" (run by itself in 14 processes)',
        "from op 30 (log) on, numbers are not finite",
        "cure threads.count = 2: with that, 4 runs were the same",
        "op 28 mm: 0.0e+00",
        "1 of 500 operations run twice gave something else the second time",
        "results are not those of the lock",
        "libraries.numpy: 2.0 (locked) -> loss",
    ):
        assert words in text
    equal = " ".join(Elements(page.page(proved(equal=True))).text.split())
    assert "4 runs under fast printed the same text and 1 number" in equal
    assert "a deviation in 50 % of runs or more would have shown (95 %)" in equal


def test_the_pages_of_other_verbs_say_what_was_found():
    text = " ".join(Elements(page.page(compared())).text.split())
    assert "fast is 2.00 times as fast as nothing" in text
    assert "numbers differ: 1 of 3, apart by 1.0e-03 of the larger one at most" in text
    assert "differs by fast" in text
    assert "2 operations below float64, 1 less exact under one of the two" in text
    assert "fast 5 22 bits 8 bits 7 bits, fast" in text
    assert "do not run in float64 `mine.op`" in text
    text = " ".join(Elements(page.page(verified())).text.split())
    assert "2 switches read under tf32-off, 1 not as it wants; a plain `python`" in text
    assert "python ok" in text
    assert "torch.mm on cuda:0 (float32): 10 of 23 bits, 23 granted, differs" in text


def test_many_runs_and_files_are_shown_in_part():
    files = tuple(Deviation(f"file-{i}", "other bytes") for i in range(20))
    odd = Difference(2, True, Distance("equal"), files)
    proof = Proof("fast", 500, 0, 20, (), (), 0.01, (odd,))
    text = Elements(page.page(Proved(About("prove", ("x",)), proof, "none"))).text
    assert "and 440 more runs, 8 more records and files" in text


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_read_back_as_they_were_printed(kind, tmp_path):
    made = KINDS[kind]()
    if kind == "verify":
        from dataclasses import asdict

        document = {
            **asdict(made.verification),
            "broken": made.broken,
            "python": made.python,
            "about": asdict(made.about),
        }
    else:
        document = made.document()
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    assert backendcfg.evidence(str(path)) == made


DAMAGED = {
    "no JSON": (
        "{",
        ["Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"],
    ),
    "another document": ("[]", []),
    "no verb": ('{"about": {"verb": "apply"}}', []),
    "a text for a number": (json.dumps(proved().document() | {"runs": "many"}), []),
    "something missing": ('{"about": {"verb": "prove"}}', []),
    "too deep": ("[" * 100_000, []),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_without_results_is_refused(name, tmp_path, monkeypatch):
    content, notes = DAMAGED[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(errors.UnreadableFileError) as raised:
        backendcfg.evidence("results.json")
    assert raised.value.message == (
        "results.json holds no results of `prove`, `compare` or `verify`"
    )
    assert list(raised.value.notes) == notes
    assert list(raised.value.helps) == [
        "write it anew: `backendcfg --json prove PROFILE -- COMMAND > results.json`"
    ]


def test_the_shell_writes_a_report_at_once_or_later(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["prove", "nothing", "--runs", "2", "--files", "sub"]
    (tmp_path / "sub").mkdir()
    command = ["--", "echo", "loss 0.5"]
    assert main(["--json", *words, "--report", "now.html", *command]) == 0
    told = capsys.readouterr()
    assert told.err == "now.html was written\n"
    (tmp_path / "results.json").write_text(told.out)
    assert main(["report", "results.json", "later.html"]) == 0
    assert capsys.readouterr() == ("", "later.html was written\n")
    assert (tmp_path / "now.html").read_text() == (tmp_path / "later.html").read_text()
    assert page.MARK in (tmp_path / "now.html").read_bytes()
    assert main(["report", "results.json", "now.html"]) == 0  # a report is written over
    assert backendcfg.evidence("results.json").proof.numbers == 1


def test_a_file_that_is_no_report_is_kept_and_nothing_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.html").write_text("<p>")
    words = ["prove", "nothing", "--runs", "2", "--report", "thesis.html", "--"]
    assert main([*words, "touch", "ran"]) == 2
    assert capsys.readouterr().err == (
        "error[usage]: thesis.html is there already, and is no report\n"
        "  state: the command was not started\n"
        "  help: give another file with `--report`\n"
    )
    assert sorted(os.listdir(tmp_path)) == ["thesis.html"]
    assert (tmp_path / "thesis.html").read_text() == "<p>"


def test_without_jinja2_a_report_is_refused_before_anything_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "jinja2" else find(name, *more),
    )
    words = ["prove", "nothing", "--runs", "2", "--report", "new.html", "--"]
    assert main([*words, "touch", "ran"]) == 2
    assert capsys.readouterr().err == (
        "error[usage]: the report needs jinja2, which is not installed\n"
        "  state: nothing was changed\n"
        "  help: run `pip install 'backendcfg[report]'`\n"
    )
    assert os.listdir(tmp_path) == []
    assert proved()._repr_html_() is None


def test_a_notebook_shows_the_same_without_the_page_around_it():
    shown = proved()._repr_html_()
    assert shown.lstrip().startswith('<div class="backendcfg">')
    assert "<html" not in shown
    assert shown.strip() in page.page(proved())


def test_marks_stand_where_numbers_are():
    drawn = charts.growth(proved().why.steps[0].followed)
    heights = [y for _, y, _ in drawn.points]
    assert heights[3] < heights[2] < heights[0] < heights[1] == drawn.none
    assert [x for x, _, _ in drawn.points] == sorted(x for x, _, _ in drawn.points)
    (bar, quiet) = charts.ratios(
        [("a", compared().comparison.seconds), ("b", ratio([1.0] * 8))]
    ).bars
    assert bar.low <= bar.middle <= bar.high
    assert min(bar.dots) > quiet.middle == quiet.low == quiet.high
    rows = charts.bits(verified().verification.measured)
    assert [(row.kept < row.whole, row.state) for row in rows] == [(True, "differs"), (False, "ok")]
    assert [row.words for row in rows] == [
        "10 of 23 bits, 23 granted",
        "52 of 52 bits, 52 granted; sums 52; served by numpy's OpenBLAS",
    ]
    assert charts.growth(()) is None


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Ask headless Chromium for a page: what it makes of it, or its picture."""
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    folder = tmp_path_factory.mktemp("browser")

    def asked(found, *words):
        path = folder / "report.html"
        page.write(found, str(path))
        return subprocess.run(
            [
                CHROMIUM,
                *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--window-size=1000,1200", f"--user-data-dir={folder / 'chromium'}"),
                *words,
                path.as_uri(),
            ],
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout.decode()

    return asked


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_browser_runs_nothing_that_a_program_chose(kind, browser):
    shown = browser(KINDS[kind](HOSTILE), "--dump-dom")
    assert "<title>owned" not in shown
    assert "<script" not in shown
    assert "<img" not in shown
    assert shown.count("<h1") == 1
    assert "<svg" in shown


@pytest.mark.parametrize("kind", KINDS)
def test_a_browser_shows_a_report_on_light_and_on_dark_paper(kind, browser, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    papers = []
    for scheme in (1, 0):  # light, dark
        picture = tmp_path / f"{scheme}.png"
        browser(
            KINDS[kind](),
            f"--screenshot={picture}",
            f"--blink-settings=preferredColorScheme={scheme}",
        )
        with image.open(picture) as opened:
            pixels = np.asarray(opened.convert("RGB"), int)
        paper = np.median(pixels.reshape(-1, 3), axis=0)
        papers.append(paper.mean())
        other = (np.abs(pixels - paper).sum(axis=2) > 150).mean()
        assert 0.005 < other < 0.3  # letters and marks
        assert (np.ptp(pixels, axis=2) > 60).any()  # and colours
    assert papers[0] > 200 > 60 > papers[1]
