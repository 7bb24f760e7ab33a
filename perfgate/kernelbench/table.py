"""A run as text: one line a shape and implementation, then the bars and what was not timed (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfgate.kernelbench.bars import MINE, OURS, reached
from perfgate.kernelbench.roofline import RTX_PRO_6000, Rates, least_us, limit
from perfgate.kernelbench.rows import Row, Run

HEAD = ("shape", "implementation", "us", "±", "TB/s", "TFLOP/s", "roof", "bound", "x best peer", "sm_120 least us")


def render(run: Run, most_lines: int | None = None) -> str:
    """The whole run. With ``most_lines`` its rows are cut to fit, and the last line says how many are left out."""
    head = list(_head(run))
    tail = list(_tail(run))
    body = _aligned([HEAD, *(_cells(run, row) for row in run.rows)])
    if most_lines is not None and len(head) + len(body) + len(tail) > most_lines:
        room = max(2, most_lines - len(head) - len(tail) - 1)
        left = len(body) - room
        body = [*body[:room], f"... {left} more rows are in the JSON"]
    lines = [*head, *body, *tail]
    return "\n".join(lines if most_lines is None else lines[:most_lines]) + "\n"


def _head(run: Run) -> Iterator[str]:
    hardware, software = run.fingerprint.get("hardware", {}), run.fingerprint.get("software", {})
    packages = ", ".join(f"{name} {version}" for name, version in software.items())
    yield f"{hardware.get('gpu_name', 'unknown card')}; {packages}"
    yield f"rates: {describe(run.rates)}"
    clocks = sorted({row.sm_mhz for row in run.rows if row.sm_mhz is not None})
    throttled = sorted({reason for row in run.rows for reason in row.throttled})
    where = f"{clocks[0]} to {clocks[-1]} MHz" if clocks else "not read"
    yield f"SM clock while replaying: {where}; throttled: {', '.join(throttled) or 'no' if clocks else 'not read'}"


def describe(rates: Rates) -> str:
    """Rates in one line, each unmeasured one named."""
    parts = [f"copy {rates.bytes / 1e12:.2f} TB/s", f"bf16 {rates.bf16 / 1e12:.0f} TFLOP/s"]
    for name, value in (("fp8", rates.fp8), ("tf32", rates.tf32)):
        parts.append(f"{name} {value / 1e12:.0f}" if value else f"{name} not measured (bf16's stands in)")
    return ", ".join(parts) + f"; an empty graph {rates.floor_us:.2f} us; {rates.source}"


def _cells(run: Run, row: Row) -> tuple[str, ...]:
    work, us = row.shape.work, row.median_us
    peers = [r.median_us for r in run.rows if r.shape == row.shape and r.implementation not in MINE]
    return (
        row.shape.key,
        row.label,
        f"{us:.1f}",
        f"{100 * row.spread:.1f}%",
        f"{work.bytes / us / 1e6:.2f}",
        f"{work.flops / us / 1e6:.0f}" if work.flops else "-",
        f"{100 * least_us(work, run.rates) / us:.0f}%",
        limit(work, run.rates),
        f"{us / min(peers):.2f}" if peers and row.implementation == OURS else "",
        f"{least_us(work, RTX_PRO_6000):.1f}" if row.implementation == OURS else "",
    )


def _tail(run: Run) -> Iterator[str]:
    found = reached(run.medians())
    yield f"bars: {sum(r.state == 'reached' for r in found)} of {len(found)} reached"
    for one in found:
        sign = "<=" if one.bar.at_most else ">="
        value = "-" if one.value is None else f"{one.value:.2f}"
        yield f"  {one.state:12} {value:>8} {sign} {one.bar.limit:<6g} {one.bar.name}"
    for name, why in run.absent.items():
        yield f"not timed: {name}: {why}"
    for name, why in run.faults.items():
        yield f"could not be timed: {name}: {why}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
