"""The page in a real browser: it renders, complains of nothing, and every number on it is the JSON's."""

import json
import re
from pathlib import Path

import pytest
from browser import chromium, picture, visit
from dom import Tree, agrees, disagreements, untied
from PIL import Image

from perfgate.report import html, jsonfile, save

CASES = Path(__file__).parent / "cases"
EXAMPLES = Path(__file__).parents[2] / "docs" / "example-report"
RESULTS = [*(CASES / f"{name}.json" for name in ("red", "green", "empty")), *sorted(EXAMPLES.glob("*/result.json"))]
"""Made-up results that show every part, and the measured ones that are committed as examples."""


@pytest.fixture(params=RESULTS, ids=[f"{path.parent.name}-{path.stem}" for path in RESULTS])
def page(request, tmp_path):
    save(jsonfile.read(request.param), tmp_path)
    return tmp_path


def test_the_console_stays_silent_and_every_number_is_the_jsons(page):
    seen = visit(page / "report.html")
    data = json.loads((page / "result.json").read_text(encoding="utf-8"))
    tree = Tree(seen.dom)
    assert seen.console == ()
    assert len([e for e in tree.all if "data-path" in e.attributes]) >= 14
    assert disagreements(tree, data) == []
    assert untied(tree) == []


def test_the_browser_keeps_the_page_as_it_was_written(page):
    """A tag that the browser had to close or move would show as another number of elements."""
    written = Tree((page / "report.html").read_text(encoding="utf-8"))
    seen = Tree(visit(page / "report.html").dom)
    assert [e.tag for e in seen.all] == [e.tag for e in written.all]


def test_the_verdict_is_the_first_thing_on_the_page():
    tree = Tree(html.render(jsonfile.read(CASES / "red.json")))
    first = next(e for e in tree.all if "data-path" in e.attributes)
    assert (first.attributes["data-path"], first.text) == ("/outcome", "REGRESSION")
    assert first.parent.parent.tag == "h1"


def test_text_that_looks_like_markup_runs_nothing(tmp_path):
    text = (CASES / "red.json").read_text(encoding="utf-8")
    attack = "<script>console.error('ran')</script><img src=x onerror=console.error('ran')>"
    hostile = text.replace("the server died before C=64", attack).replace("Scheduler hit an exception", attack)
    save(jsonfile.parse(hostile), tmp_path)
    seen = visit(tmp_path / "report.html")
    assert seen.console == ()
    assert not [e for e in Tree(seen.dom).all if e.tag in ("script", "img")]
    assert disagreements(Tree(seen.dom), json.loads(hostile)) == []


def test_a_fault_on_a_page_would_be_seen(tmp_path):
    """Keeps the silence above honest: the same look at a page that does complain."""
    (tmp_path / "bad.html").write_text("<script>console.error('ran')</script>", encoding="utf-8")
    assert any("ran" in line for line in visit(tmp_path / "bad.html").console)


@pytest.mark.parametrize(
    ("text", "raw", "kind", "right"),
    [
        ("4,423.7", 4423.7, "tok/s", True),
        ("4,423.6", 4423.7, "tok/s", False),
        ("-4.1 %", -0.0409, "+%", True),
        ("4.1 %", -0.0409, "+%", False),
        ("\N{EN DASH}", None, "", True),
        ("0", None, "", False),
        ("3.471", 3.4714, "ms", True),
        ("PASS", "REGRESSION", "", False),
    ],
)
def test_the_comparison_itself_tells_right_from_wrong(text, raw, kind, right):
    assert agrees(text, raw, kind) is right


def test_light_and_dark_differ_and_both_have_ink(tmp_path):
    save(jsonfile.read(CASES / "red.json"), tmp_path)
    means, spread = [], []
    for dark in (False, True):
        picture(tmp_path / "report.html", tmp_path / f"{dark}.png", dark)
        grey = Image.open(tmp_path / f"{dark}.png").convert("L")
        counts = grey.histogram()
        means.append(sum(i * n for i, n in enumerate(counts)) / sum(counts))
        spread.append(len([n for n in counts if n > 50]))
    light, dark_mean = means
    assert light > 200, "a light page is mostly white"
    assert dark_mean < 70, "a dark page is mostly black"
    assert min(spread) > 20, "text and marks give many shades; a blank page has a few"


def test_chromium_that_is_missing_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AssertionError, match=re.escape("apt-get install -y chromium")):
        chromium()
