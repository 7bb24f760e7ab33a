"""Profiles of a run's points: which are taken, and what they say beside the baseline's or the old side's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfgate.baseline import BaselineFile
from perfgate.baseline.schema import StoredShares
from perfgate.profile import ProfileError, Shares, compare, where_it_went


@dataclass
class Profiles:
    """Shares of each profiled point now and before, and why there are none where a trace could not be had."""

    now: dict[int, Shares] = field(default_factory=dict)
    before: dict[int, Shares] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    recording: bool = False

    def notes(self) -> list[str]:
        """One sentence a point: where its time went."""
        said = [f"C={c}: {self._said(c)}" for c in sorted(self.now)]
        return said + [f"C={c}: no profile: {why}" for c, why in sorted(self.failed.items())]

    def _said(self, concurrency: int) -> str:
        now, before = self.now[concurrency], self.before.get(concurrency)
        if before is None:
            most = sorted(now.by_category.items(), key=lambda item: -item[1])[:3]
            parts = ", ".join(f"{category} {share:.0%}" for category, share in most)
            lacks = "" if self.recording else "; the baseline has no profile to compare with: --record with --profile"
            return f"{now.device} time: {parts}{lacks}"
        try:
            return where_it_went(compare(now, before), now.device)
        except ProfileError as error:
            return str(error)

    def as_extra(self) -> dict[str, Any]:
        """What a result holds of it, under ``profile``: the smallest batch at the top, all points under ``points``."""
        if not self.now:
            return {}
        points = {str(c): self._extra(c) for c in sorted(self.now)}
        shown = {"concurrency": min(self.now), **points[str(min(self.now))], "points": points}
        return {"profile": shown}

    def _extra(self, concurrency: int) -> dict[str, Any]:
        now, before = self.now[concurrency], self.before.get(concurrency)
        made: dict[str, Any] = {"device": now.device, "shares": dict(now.by_category), "said": self._said(concurrency)}
        if before is not None and before.device == now.device:
            made["baseline_shares"] = dict(before.by_category)
            if before.tensor_cores is not None:
                made["baseline_tensor_cores"] = before.tensor_cores
        if now.tensor_cores is not None:
            made["tensor_cores"] = now.tensor_cores
        return made

    def stored(self) -> Mapping[int, StoredShares]:
        """As a baseline keeps them."""
        return {
            c: StoredShares(
                device="GPU" if s.device == "GPU" else "CPU",
                by_category={name: min(1.0, share) for name, share in s.by_category.items()},
                tensor_cores=s.tensor_cores,
            )
            for c, s in self.now.items()
        }


def recorded(file: BaselineFile | None) -> dict[int, Shares]:
    """The shares that a baseline file holds, by point."""
    found: dict[int, Shares] = {}
    for concurrency in file.concurrencies if file is not None else ():
        point = file.stored_point(concurrency) if file is not None else None
        if point is not None and point.profile is not None:
            kept = point.profile
            found[concurrency] = Shares(kept.device, dict(kept.by_category), kept.tensor_cores)
    return found
