"""The page as the browser built it, held against the JSON. Written apart from the renderer, so that it can disagree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br", "link", "img", "input", "hr", "wbr"}
SILENT = {"style", "title"}
UNTIED = {"tick", "key", "error"}
"""Classes whose digits are no result: axis ticks, names of keys, the message of a part that could not be drawn."""


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    parent: Element | None
    texts: list[str] = field(default_factory=list)
    children: list[Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def up(self) -> Iterator[Element]:
        here: Element | None = self
        while here:
            yield here
            here = here.parent


class Tree(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("", {}, None)
        self.here = self.root
        self.all: list[Element] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), self.here)
        self.here.children.append(element)
        self.all.append(element)
        if tag not in VOID:
            self.here = element

    def handle_endtag(self, tag: str) -> None:
        for element in self.here.up():
            if element.tag == tag and element.parent:
                self.here = element.parent
                return

    def handle_data(self, data: str) -> None:
        self.here.texts.append(data)


def lookup(data: Any, path: str) -> Any:
    """RFC 6901, written out again here."""
    for part in path.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        data = data[int(part)] if isinstance(data, list) else data[part]
    return data


def disagreements(tree: Tree, data: Any) -> list[str]:
    """Each element whose text or value is not what the JSON says at its pointer."""
    wrong = []
    for element in tree.all:
        path = element.attributes.get("data-path")
        if path is None:
            continue
        if "data-fold" in element.attributes:
            stem, _, name = path.partition("/*/")
            column = [row[name] for row in lookup(data, stem)]
            raw: Any = (
                sum(1 for v in column if v)
                if element.attributes["data-fold"] == "count"
                else sum(v or 0 for v in column)
            )
        else:
            raw = lookup(data, path)
            if json.loads(element.attributes["data-value"] or "") != raw:
                wrong.append(f"{path}: data-value {element.attributes['data-value']!r} for {raw!r}")
        if element.text and not agrees(element.text, raw, element.attributes.get("data-kind") or ""):
            wrong.append(f"{path}: shows {element.text!r} for {raw!r}")
    return wrong


def agrees(text: str, raw: Any, kind: str) -> bool:
    """True where a text shows a JSON value: strings as they are, numbers rounded correctly at their last digit."""
    if raw is None:
        return text == "\N{EN DASH}"
    if isinstance(raw, bool):
        return text == ("yes" if raw else "no")
    if isinstance(raw, str):
        return text == raw
    if isinstance(raw, list | dict):
        return json.loads(text) == raw
    if kind == "time":
        return abs(datetime.strptime(f"{text}+0000", "%Y-%m-%d %H:%M:%S UTC%z").timestamp() - raw) < 1
    match = re.fullmatch(r"([+-]?[\d,]+(?:\.\d+)?(?:e[+-]\d+)?)( %)?", text)
    if not match:
        return False
    shown = match[1].replace(",", "")
    digits = len(shown.partition("e")[0].partition(".")[2])
    power = 10.0 ** int(shown.partition("e")[2] or 0)
    exact = raw * 100 if match[2] else raw
    # Half a unit in the last digit shown, and a little for the binary rounding of that half.
    return abs(float(shown) - exact) <= 0.5000001 * 10.0**-digits * power


def untied(tree: Tree) -> list[str]:
    """Texts with digits that no pointer stands for: a number that nobody could check."""
    found = []
    for element in tree.all:
        line = [e for e in element.up() if e.tag]
        if any(e.tag in SILENT or "data-path" in e.attributes for e in line):
            continue
        if any(UNTIED & set((e.attributes.get("class") or "").split()) for e in line):
            continue
        found += [text.strip() for text in element.texts if re.search(r"\d", text)]
    return found
