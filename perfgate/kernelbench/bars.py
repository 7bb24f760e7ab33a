"""What the kernels are to reach beside their peers, as data, and how far a run got (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfgate.kernelbench.shapes import TABLE_WIDTHS, DecodeShape, HcShape, IndexerShape, Shape, TopKShape

OURS = "ours"
OURS_SPLIT = "ours, no merge"
"""The pre-norm's partial sums alone, for a peer that leaves theirs to a later kernel."""
MINE = (OURS, OURS_SPLIT)
Cell = tuple[Shape, str]
"""A shape and the implementation that was timed on it."""


@dataclass(frozen=True)
class Bar:
    """time(over) / time(under) is to be at most, or at least, ``limit``; of several pairs the smallest ratio.

    ``added``: not one of the bars that were set, but printed beside them. ``strict``: the limit itself does not do.
    """

    name: str
    pairs: tuple[tuple[Cell, Cell], ...]
    limit: float
    at_most: bool = True
    strict: bool = False
    added: bool = False

    @property
    def sign(self) -> str:
        return "<" if self.strict else "<=" if self.at_most else ">="

    @property
    def shapes(self) -> frozenset[Shape]:
        """Every shape that has to be timed for this bar."""
        return frozenset(shape for pair in self.pairs for shape, _ in pair)

    def keeps(self, value: float) -> bool:
        """Whether a ratio is what this bar asks for."""
        if self.strict and value == self.limit:
            return False
        return value <= self.limit if self.at_most else value >= self.limit


@dataclass(frozen=True)
class Reached:
    """How far a run got: ``value`` is None where one of the two was not measured, ``net`` less the empty graph's time.

    ``spoilt``: why a time of it does not count. A value is shown all the same, and the bar is not reached.
    """

    bar: Bar
    value: float | None
    net: float | None = None
    spoilt: str = ""

    @property
    def state(self) -> str:
        if self.value is None:
            return "not measured"
        if self.spoilt:
            return "invalid"
        return "reached" if self.bar.keeps(self.value) else "missed"


def decode(batch: int) -> DecodeShape:
    return DecodeShape(batch, 64, 128, 512)


def _slower(shape: Shape, peer: str, limit: float, added: bool = False) -> Bar:
    return Bar(f"{shape.key} over {peer}", (((shape, OURS), (shape, peer)),), limit, added=added)


def _faster(shape: Shape, peer: str, limit: float) -> Bar:
    return Bar(f"{peer} over ours, {shape.key}", (((shape, peer), (shape, OURS)),), limit, at_most=False)


def _wide(batch: int, length: int) -> Bar:
    wide, close = IndexerShape(batch, length, 262_144), IndexerShape(batch, length, length)
    return Bar(f"indexer-B{batch}-L{length} max 262144 over max {length}", (((wide, OURS), (close, OURS)),), limit=1.03)


def _without_merge(tokens: int) -> Bar:
    shape, peer = HcShape(tokens), "DeepGEMM split"
    return Bar(f"{shape.key} without merge over {peer}", (((shape, OURS_SPLIT), (shape, peer)),), 1.2, added=True)


FLASH_MLA = ((1, 1.0), (16, 1.15), (64, 1.25), (128, 1.25))
TOPK = TopKShape(64, 65_536)
BARS: tuple[Bar, ...] = (
    *(_slower(decode(b), "FlashMLA", x) for b, x in FLASH_MLA),
    Bar(
        "decode-H64-128+512 ahead of FlashMLA somewhere",
        tuple(((decode(b), OURS), (decode(b), "FlashMLA")) for b, _ in FLASH_MLA),
        limit=1.0,
        strict=True,
    ),
    *(_faster(decode(b), "SGLang Triton", x) for b, x in ((1, 20), (16, 80), (64, 100), (128, 200))),
    *(
        _slower(IndexerShape(b, length, length), "DeepGEMM", 1.25)
        for b, length in ((16, 16_384), (64, 2048), (64, 16_384))
    ),
    _wide(64, 512),
    _wide(64, 16_384),
    _slower(TOPK, "SGLang v2", 1.5),
    _faster(TOPK, "torch.topk", 2.0),
    # Split is how SGLang calls it, and the faster of the two ways.
    *(_slower(HcShape(t), "DeepGEMM split", 1.2) for t in (1, 64)),
    _faster(HcShape(1), "torch fp32", 1.5),
    *(_without_merge(t) for t in (1, 64)),
    *(_slower(HcShape(t), "DeepGEMM", 1.2, added=True) for t in (1, 64)),
)

# Beside the bars': what the peers do when the maximum grows, the scores of a server for a million tokens, a padded peer.
QUICK_EXTRA: tuple[Shape, ...] = (
    IndexerShape(64, 512, 16_384),
    TopKShape(64, 65_536, maximum=TABLE_WIDTHS[-1]),
    DecodeShape(16, 16, 128, 512),
)


def quick_shapes() -> frozenset[Shape]:
    """The shapes of the quick share: those of every bar, and a few beside them."""
    return frozenset(shape for bar in BARS for shape in bar.shapes) | frozenset(QUICK_EXTRA)


def net_ratio(over_us: float, under_us: float, floor_us: float) -> float | None:
    """Their ratio less what an empty graph takes, which is in both; None where nothing is left of one."""
    over, under = over_us - floor_us, under_us - floor_us
    return over / under if over > 0 and under > 0 else None


def reached(
    medians: Mapping[Cell, float], spoilt: Mapping[Cell, str] | None = None, floor_us: float = 0.0
) -> list[Reached]:
    """Every bar with its value from the median times of one run; ``spoilt``: cells whose time does not count, and why."""
    return [_reached(bar, medians, spoilt or {}, floor_us) for bar in BARS]


def _reached(bar: Bar, medians: Mapping[Cell, float], spoilt: Mapping[Cell, str], floor_us: float) -> Reached:
    known = [pair for pair in bar.pairs if medians.get(pair[0]) is not None and medians.get(pair[1])]
    # A pair that does not count must not stand for the others; where no other is left it is shown, and why it is not one.
    sound = [pair for pair in known if not any(cell in spoilt for cell in pair)] or known
    if not sound:
        return Reached(bar, None)
    over, under = min(sound, key=lambda pair: medians[pair[0]] / medians[pair[1]])
    return Reached(
        bar,
        medians[over] / medians[under],
        net_ratio(medians[over], medians[under], floor_us),
        "; ".join(
            f"{shape.key} {name}: {spoilt[shape, name]}" for shape, name in (over, under) if (shape, name) in spoilt
        ),
    )
