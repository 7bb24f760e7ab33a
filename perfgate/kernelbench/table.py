"""A run as text: one line a shape and implementation, then the bars and what was not timed (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfgate.kernelbench.bars import OURS, Reached, net_ratio, reached
from perfgate.kernelbench.clocks import spoilt
from perfgate.kernelbench.roofline import RTX_PRO_6000, Rates, least_us, limit
from perfgate.kernelbench.rows import MOST_OF_THE_ROOF, Row, Run

HEAD = (
    "shape",
    "implementation",
    "us",
    "±",
    "TB/s",
    "TFLOP/s",
    "roof",
    "bound",
    "x best peer",
    "net",
    "sm_120 least us",
)
LEAST_ROWS = 2
"""Rows of the table that are printed however little room there is: its head and one of them."""


def render(run: Run, most_lines: int | None = None) -> str:
    """The whole run. With ``most_lines`` its rows are cut to fit, then what follows; a line says how many are left out."""
    head, tail = list(_head(run)), list(_tail(run))
    body = _aligned([HEAD, *(_cells(run, row) for row in run.rows)])
    if most_lines is not None and len(head) + len(body) + len(tail) > most_lines:
        room = max(LEAST_ROWS, most_lines - len(head) - len(tail) - 1)
        body = [*body[:room], f"... {len(body) - room} more rows are in the JSON"] if len(body) > room + 1 else body
    lines = [*head, *body, *tail]
    if most_lines is not None and len(lines) > most_lines:
        lines = [*lines[: most_lines - 1], f"... {len(lines) - most_lines + 1} more lines: show the whole table"]
    return "\n".join(lines) + "\n"


def _head(run: Run) -> Iterator[str]:
    hardware, software = run.fingerprint.get("hardware", {}), run.fingerprint.get("software", {})
    packages = ", ".join(f"{name} {version}" for name, version in software.items())
    yield f"{hardware.get('gpu_name', 'unknown card')}; {packages}"
    yield f"rates: {describe(run.rates)}"
    clocks = sorted({row.sm_mhz for row in run.rows if row.sm_mhz is not None})
    throttled = sorted({reason for row in run.rows for reason in row.throttled})
    noted = sorted({reason for row in run.rows for reason in row.noted})
    where = f"{clocks[0]} to {clocks[-1]} MHz" if clocks else "not read"
    slowed = f"throttled: {', '.join(throttled) or 'no' if clocks else 'not read'}"
    yield f"SM clock while replaying: {where}; {slowed}" + (f"; noted: {', '.join(noted)}" if noted else "")


def describe(rates: Rates) -> str:
    """Rates in one line, each unmeasured one named."""
    copies = ", ".join(f"{name} {value / 1e12:.2f}" for name, value in rates.copies.items())
    missing = f"; {rates.copy_fault}" if rates.copy_fault else ""
    copy = f"copy {rates.bytes / 1e12:.2f} TB/s" + (f" ({copies}{missing})" if copies else "")
    parts = [copy, f"bf16 {rates.bf16 / 1e12:.0f} TFLOP/s"]
    for name, value in (("fp8", rates.fp8), ("tf32", rates.tf32)):
        parts.append(f"{name} {value / 1e12:.0f}" if value else f"{name} not measured (bf16's stands in)")
    return ", ".join(parts) + f"; an empty graph {rates.floor_us:.2f} us; {rates.source}"


def _cells(run: Run, row: Row) -> tuple[str, ...]:
    work, us = row.shape.work, row.median_us
    share, peer = least_us(work, run.rates) / us, run.best_peer_us(row.shape)
    net = net_ratio(us, peer, run.rates.floor_us) if peer is not None and row.implementation == OURS else None
    return (
        row.shape.key,
        row.label,
        f"{us:.1f}",
        f"{100 * row.spread:.1f}%",
        f"{work.bytes / us / 1e6:.2f}",
        f"{work.flops / us / 1e6:.0f}" if work.flops else "-",
        f"{100 * share:.0f}%" + "!" * (share > MOST_OF_THE_ROOF),
        limit(work, run.rates),
        f"{us / peer:.2f}" if peer is not None and row.implementation == OURS else "",
        f"{net:.2f}" if net is not None else "",
        f"{least_us(work, RTX_PRO_6000):.1f}" if row.implementation == OURS else "",
    )


def _tail(run: Run) -> Iterator[str]:
    faults = spoilt(run)
    for key, why in run.wrong.items():
        yield f"WRONG: {key}: {why}"
    lacking = [key for key in run.lacking() if key not in run.wrong]
    if lacking:
        yield f"NOT MEASURED: {len(lacking)} of {len(run.asked)} shapes asked for: {', '.join(lacking)}"
    for row, share in run.over_roof():
        yield f"FAULT: {row.shape.key} {row.label} at {share:.0%} of the roofline: a rate is too low, or the time wrong"
    labels = {(row.shape, row.implementation): row.label for row in run.rows}
    for (shape, name), why in faults.items():
        yield f"DOES NOT COUNT: {shape.key} {labels[shape, name]}: {why}"
    found = reached(run.medians(), faults, run.rates.floor_us)
    own = [one for one in found if not one.bar.added]
    yield f"bars: {sum(r.state == 'reached' for r in own)} of {len(own)} reached (net: both less the empty graph)"
    yield from map(_bar, own)
    yield "beside them, not counted:"
    yield from (_bar(one) for one in found if one.bar.added)
    for name, why in run.absent.items():
        yield f"not timed: {name}: {why}"
    for name, why in run.faults.items():
        yield f"could not be timed: {name}: {why}"


def _bar(one: Reached) -> str:
    value, net = ("-" if x is None else f"{x:.2f}" for x in (one.value, one.net))
    line = f"  {one.state:12} {value:>8} {one.bar.sign:>2} {one.bar.limit:<6g} net {net:>8}  {one.bar.name}"
    return f"{line}: {one.spoilt}" if one.spoilt else line


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
