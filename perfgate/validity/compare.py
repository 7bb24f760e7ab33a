"""What only several samples together show: an accept length or a chunking that differs, so speeds don't compare."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from perfgate.serverlog import DecodeBatch, ServerLog
from perfgate.validity.problem import DEFAULT_LIMITS, Limits, Problem, problem
from perfgate.validity.problem import ProblemKind as Kind
from perfgate.workload import Sample


def compare(samples: Sequence[Sample], limits: Limits = DEFAULT_LIMITS) -> list[Problem]:
    """Warnings about samples of one point whose tokens/s are not comparable; step time still is."""
    found = []
    lengths = [s.accept_length for s in samples if s.accept_length]
    if lengths and max(lengths) / min(lengths) - 1 > limits.accept_share:
        message = f"accept length from {min(lengths):.2f} to {max(lengths):.2f}: compare step time, not tokens/s"
        found.append(problem(Kind.ACCEPT_LENGTH, message, [f"accept_length {x:.3f}" for x in lengths], invalid=False))
    if lengths and len(lengths) < len(samples):
        message = f"{len(lengths)} of {len(samples)} samples ran with speculation"
        found.append(problem(Kind.ACCEPT_LENGTH, message, [f"accept_length {s.accept_length}" for s in samples]))
    chunks = [c for s in samples if (c := tokens_per_chunk(s)) is not None]
    if chunks and max(chunks) / min(chunks) > 1.5:
        message = f"{min(chunks):.1f} to {max(chunks):.1f} tokens a chunk: TPOT and TTFT don't compare"
        found.append(problem(Kind.TOKENS_PER_CHUNK, message, [f"tokens per chunk {c:.2f}" for c in chunks]))
    return found + _clocks(samples, limits)


def compare_arms(old: Sequence[Sample], new: Sequence[Sample], limits: Limits = DEFAULT_LIMITS) -> list[Problem]:
    """What makes the two sides of an A/B incomparable: as ``compare`` over both, and clocks apart by more than 1 % (N11)."""
    found = compare([*old, *new], limits)
    clocks = [[min(s.clocks_mhz) for s in side if s.clocks_mhz] for side in (old, new)]
    if all(clocks):
        before, after = (statistics.median(side) for side in clocks)
        if abs(after / before - 1) > limits.arms_share:
            message = f"the old side ran at {before:.0f} MHz, the new at {after:.0f} MHz: part of the difference is the clock's"
            figures = [f"clock old {before:.0f} MHz", f"clock new {after:.0f} MHz"]
            found.append(problem(Kind.CLOCKS, message, figures, invalid=False))
    return found


def _clocks(samples: Sequence[Sample], limits: Limits) -> list[Problem]:
    """Warnings where the samples ran at different clocks, or where too few readings tell at which (N10, N11)."""
    clocks = [min(s.clocks_mhz) for s in samples if s.clocks_mhz]
    if not clocks:
        return []
    found = []
    if max(clocks) / max(1, min(clocks)) - 1 > limits.clock_share:
        message = (
            f"the samples ran at {min(clocks)} to {max(clocks)} MHz: lock the clocks, or let the GPU cool in between"
        )
        found.append(problem(Kind.CLOCKS, message, [f"clock {c} MHz" for c in clocks], invalid=False))
    counted = [s.clock_readings for s in samples if s.clock_readings is not None]
    if counted and sum(counted) < limits.clock_readings:
        message = f"{sum(counted)} readings of the busy GPU's clock: fewer than {limits.clock_readings} do not show it"
        found.append(problem(Kind.CLOCKS, message, [f"clock_readings {n}" for n in counted], invalid=False))
    return found


def tokens_per_chunk(sample: Sample) -> float | None:
    """Time between chunks over time between tokens (B17); with speculation this is the accept length at best."""
    if not sample.mean_itl_ms or not sample.mean_tpot_ms or sample.mean_itl_ms < 0 or sample.mean_tpot_ms < 0:
        return None
    return sample.mean_itl_ms / sample.mean_tpot_ms


def steady_decode(log: ServerLog, gap_s: float = 2.0) -> tuple[DecodeBatch, ...]:
    """Decode lines whose ``gen_throughput`` means something: not the first after the start or after a pause (B06).

    Times are whole seconds, so a line below a tenth of the next one's throughput counts as first as well.
    """
    kept = []
    lines = log.decode
    for index, line in enumerate(lines):
        before = lines[index - 1] if index else None
        if before is None or line.time is None or before.time is None or line.time - before.time > gap_s:
            continue
        after = lines[index + 1] if index + 1 < len(lines) else None
        if after and line.gen_throughput is not None and line.gen_throughput < 0.1 * (after.gen_throughput or 0.0):
            continue
        kept.append(line)
    return tuple(kept)
