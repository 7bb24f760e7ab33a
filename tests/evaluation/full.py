"""What every full evaluation shares: its page, its size and seeds, and how a count is held to a promise."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

PAGE_PATH = Path(__file__).parents[2] / "docs" / "evaluation.md"

SCALE = float(os.environ.get("EVALUATION_SCALE", "1"))
"""Share of the full number of runs, for a busy machine; the page says which it was."""

SEED = os.environ.get("EVALUATION_SEED")
"""Fresh ones for each evaluation unless given: a judge that was tuned to its seeds would show. The page says them."""


def scaled(runs: int) -> int:
    return max(20, round(runs * SCALE))


def seeds() -> np.random.SeedSequence:
    return np.random.SeedSequence(int(SEED) if SEED else None)


def unlike(seen: int, runs: int, promise: float, side: str) -> bool:
    """True where the count is on the wrong side of the promise by more than 1 in 100 chance allows."""
    return bool(binomtest(seen, runs, promise, alternative=side).pvalue < 0.01)


def upper_end(seen: int, runs: int) -> float:
    """Upper end of the exact 95 % interval of a rate (Clopper-Pearson, one-sided)."""
    return float(binomtest(seen, runs, alternative="less").proportion_ci(0.95).high)
