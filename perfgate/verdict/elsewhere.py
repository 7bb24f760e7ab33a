"""What the other points of a run say about one: how far apart its server starts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfgate.baseline.model import METRICS, Baseline
from perfgate.stats import Observed, between_starts
from perfgate.stats.variance import Side
from perfgate.verdict.compare import sides
from perfgate.workload import Sample


def starts_elsewhere(others: Sequence[tuple[Sequence[Sample], Baseline | None]]) -> Mapping[str, Observed]:
    """Spread between starts by metric, pooled over the samples and baselines of the run's ``others``, for ``judge``.

    A point has few starts of its own, so their spread is known badly and a loss has to be large to stand out of it.
    The same starts served the other points too. Samples without a usable figure say nothing.
    """
    found: dict[str, list[Side]] = {name: [] for name in METRICS}
    for samples, baseline in others:
        for name, metric in METRICS.items():
            base = baseline.metrics.get(name) if baseline is not None else None
            if base is None:
                continue
            known = [(v, s.server_start) for s in samples if (v := metric.of(s)) is not None and v > 0]
            if known:
                found[name] += sides(metric, [v for v, _ in known], [start for _, start in known], base)
    return {name: between_starts(both) for name, both in found.items()}
