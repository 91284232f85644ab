"""The documentation builds as a site, its links lead somewhere, and a browser shows it."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

TREE = Path(__file__).parents[2]
CONTRIBUTING = TREE / "CONTRIBUTING.md"
COMMAND = "sphinx-build -W docs build/site"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

pytestmark = [
    pytest.mark.skipif(not CONTRIBUTING.exists(), reason="needs the source tree"),
    pytest.mark.skipif(
        None in map(importlib.util.find_spec, ("sphinx", "furo", "myst_parser")),
        reason="Sphinx is not installed",
    ),
]


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory):
    """The folder of the built site; the build has warned of nothing."""
    out = tmp_path_factory.mktemp("site")
    assert COMMAND in CONTRIBUTING.read_text()
    _, *options = COMMAND.replace("build/site", str(out)).split()
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "--keep-going", "-q"],
        cwd=TREE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return out


class Page(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        self.links += [values[key] for key in ("href", "src") if values.get(key)]


def test_every_link_of_the_site_leads_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 80
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if not target.exists():
                broken.append(f"{path.name}: {link}: no such file")
            elif target in pages and unquote(anchor) not in pages[target].anchors:
                broken.append(f"{path.name}: {link}: no such place")
    assert broken == []


def test_every_page_of_the_documentation_is_in_the_navigation(site):
    linked = {link.partition("#")[0] for link in Page(site / "index.html").links}
    pages = [*(TREE / "docs").rglob("*.md"), *(TREE / "docs" / "api").glob("*.rst")]
    expected = {str(page.relative_to(TREE / "docs").with_suffix(".html")) for page in pages}
    assert expected - linked == set()


@pytest.mark.parametrize("module", ["backendcfg", "backendcfg.ops", "backendcfg.backends"])
def test_every_public_name_is_described(site, module):
    pages = [path.read_text() for path in (site / "api").glob("*.html")]
    described = {name for page in pages for name in re.findall(r'id="(backendcfg[\w.]*)"', page)}
    described |= {name for page in pages for name in re.findall(r'id="module-([\w.]+)"', page)}
    public = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    assert public - described - {"backendcfg.__version__"} == set()


def shot(page, tmp_path):
    """The picture of a page in headless Chromium: height, width, and red, green and blue."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    picture = tmp_path / "page.png"
    subprocess.run(
        [
            CHROMIUM,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--window-size=1200,900", f"--user-data-dir={tmp_path / 'chromium'}"),
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        capture_output=True,
        check=True,
        timeout=120,
    )
    with image.open(picture) as opened:
        return np.asarray(opened.convert("RGB"), int)


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("name", ["index.html", "tutorial.html", "api/ops.html"])
def test_a_browser_shows_a_page(site, tmp_path, name):
    pixels = shot(site / name, tmp_path)
    assert pixels.shape == (900, 1200, 3)
    sidebar, text = pixels[:, 100:280], pixels[:, 340:1080]
    for part in (sidebar, text):
        dark = (part.sum(axis=2) < 400).mean()
        assert 0.005 < dark < 0.4  # letters, and most of it paper
    # The theme's stylesheet was read: the navigation stands beside the text, on paper of its own.
    paper = [np.median(part.reshape(-1, 3), axis=0).tolist() for part in (sidebar, text)]
    assert paper[0] != paper[1]
