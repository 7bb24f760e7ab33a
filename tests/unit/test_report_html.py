"""The page holds all of the result, each number at its place, and nothing that runs, loads or escapes."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.report import html, jsonfile
from perfgate.report.pointer import Source, join
from perfgate.result import RunResult

CASES = Path(__file__).parents[1] / "report_browser" / "cases"
RED = jsonfile.read(CASES / "red.json")
NAMES = ("red", "green", "empty")


class Page(HTMLParser):
    """Collects tags, attributes, and the text inside elements that carry a pointer."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def paths(self) -> set[str]:
        return {a["data-path"] or "" for _, a in self.tags if "data-path" in a}


def leaves(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], join(path, key))]
    if isinstance(value, list):
        return [leaf for i, item in enumerate(value) for leaf in leaves(item, join(path, i))]
    return [] if value in (None, "", "NONE") else [path]


def mapped(value: Any, change) -> Any:
    """The same data with each string replaced, but for the words that the schema fixes."""
    if isinstance(value, dict):
        return {k: v if k in FIXED else mapped(v, change) for k, v in value.items()}
    if isinstance(value, list):
        return [mapped(v, change) for v in value]
    return change(value) if isinstance(value, str) else value


FIXED = {"outcome", "judged_by", "unit", "name", "schema_version"}


@pytest.mark.parametrize("name", NAMES)
def test_the_same_result_gives_the_same_bytes(name):
    one, two = (html.render(jsonfile.read(CASES / f"{name}.json")) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("name", NAMES)
def test_each_thing_measured_is_on_the_page(name):
    result = jsonfile.read(CASES / f"{name}.json")
    page = Page(html.render(result))
    hidden = {"/schema_version", "/judged_by"}
    lost = []
    for leaf in leaves(result.model_dump(mode="json")):
        # A list of bare numbers is shown whole, by the pointer of the list.
        shown = leaf in page.paths or leaf.rpartition("/")[0] in page.paths
        if (
            not shown
            and leaf not in hidden
            and not re.search(r"/(higher_is_better|started_at|change_points/\d+/\d+)$", leaf)
        ):
            lost.append(leaf)
    assert lost == []


def test_clock_power_and_heat_stand_with_the_samples_of_a_gpu_and_with_no_others() -> None:
    data = RED.model_dump(mode="json")
    place = next(f"/points/{i}/samples/0" for i, point in enumerate(data["points"]) if point["samples"])
    own = {"clock_mhz": 1755, "clock_low_mhz": 1740, "power_w": 412.5, "hottest_c": 61}
    assert not Page(html.render(RED)).paths & {f"{place}/{name}" for name in own}
    data["points"][int(place.split("/")[2])]["samples"][0] |= own
    page = Page(html.render(RunResult.model_validate(data)))
    assert page.paths >= {f"{place}/{name}" for name in own}
    assert {"1,755", "1,740", "412.5", "61", "hottest, °C"} <= {text.strip() for text in page.texts}


@pytest.mark.parametrize("name", NAMES)
def test_each_mark_and_number_carries_the_exact_json(name):
    result = jsonfile.read(CASES / f"{name}.json")
    source = Source(result.model_dump(mode="json"))
    page = Page(html.render(result))
    valued = [a for _, a in page.tags if "data-value" in a]
    assert valued
    assert all(json.loads(a["data-value"] or "") == source.get(a["data-path"] or "") for a in valued)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_on_the_page_runs_or_is_fetched(name):
    page = Page(html.render(jsonfile.read(CASES / f"{name}.json")))
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    for _, attributes in page.tags:
        assert not any(key.startswith("on") for key in attributes)
        assert all(
            re.fullmatch(r"#c\d+", attributes[k] or "") for k in ("href", "src", "xlink:href") if k in attributes
        )
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


ATTACKS = (
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onload='alert(1)",
    "</pre></span><img src=x onerror=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "]]><!--",
    "javascript:alert(1)",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_text_from_outside_stays_text_wherever_it_stands(attack):
    data = mapped(RED.model_dump(mode="json"), lambda text: text + attack)
    data["fingerprint"][attack] = {attack: attack}
    data["extra"][attack] = {attack: [attack]}
    data["extra"]["kernels"][0][attack] = attack
    data["extra"]["profile"]["shares"][attack] = 0.1
    data["extra"]["history"][attack] = [{"median": 1.0, attack: attack}]
    plain, attacked = Page(html.render(RED)), Page(html.render(RunResult.model_validate(data)))
    assert {tag for tag, _ in attacked.tags} == {tag for tag, _ in plain.tags}
    assert not any(key.startswith("on") for _, attributes in attacked.tags for key in attributes)
    assert any(attack in text for text in attacked.texts)


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=30))
def test_any_text_at_all_gives_a_page_of_the_same_tags(text):
    data = mapped(jsonfile.read(CASES / "empty.json").model_dump(mode="json"), lambda _: text)
    known = {tag for tag, _ in Page(html.render(jsonfile.read(CASES / "empty.json"))).tags}
    assert {tag for tag, _ in Page(html.render(RunResult.model_validate(data))).tags} <= known


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scaling", {"a": "fast"}),
        ("scaling", [1, 2]),
        ("scaling", {"a": 1.0, "b": 1.0, "points": [[0, 1]]}),
        ("scaling", {"a": 1.0, "b": 1.0, "points": ["x"]}),
        ("scaling", "none"),
        ("profile", {"shares": [1]}),
        ("profile", {"shares": {"MoE": None}}),
        ("history", {"1": [3]}),
        ("history", {"1": [{"median": 1.0}], "change_points": {"1": [4]}}),
        ("history", [1]),
    ],
)
def test_a_part_that_cannot_be_drawn_is_named_and_shown_as_it_is(name, value):
    page = html.render(RED.model_copy(update={"extra": {name: value}}))
    assert "could not be drawn" in page
    assert f'data-path="/extra/{name}' in page


def test_points_without_a_fit_have_no_table_of_its_terms_and_say_why():
    rows = RED.extra["scaling"]["points"]
    scaling = {"points": rows, "laws": ["4 concurrencies or more are needed"]}
    page = html.render(RED.model_copy(update={"extra": {"scaling": scaling}}))
    assert "4 concurrencies or more are needed" in page
    assert "could not be drawn" not in page
    assert "<th>term</th>" not in page
    assert "<th>term</th>" in html.render(RED)


def test_what_needs_attention_stands_before_the_details_with_cause_evidence_and_advice():
    page = html.render(RED)
    at = [page.index(t) for t in ("REGRESSION", "<h2>Points</h2>", "What needs attention", "<h2>Each point</h2>")]
    assert at == sorted(at)
    assert "GPU_OOM" in page
    assert "torch.OutOfMemoryError" in page
    assert "raise --cuda-graph-max-bs to 64" in page


def test_no_verdict_is_told_by_colour_alone():
    page = html.render(RED)
    badges = re.findall(
        r'<span class="badge [a-z]+"><span aria-hidden="true">(.)</span> <span[^>]*>([A-Z_]+)</span>', page
    )
    assert {word: glyph for glyph, word in badges} == {"PASS": "✓", "REGRESSION": "▼", "MISSING": "✗"}


def test_the_page_follows_the_readers_light_or_dark():
    assert "prefers-color-scheme: dark" in html.render(RED)
