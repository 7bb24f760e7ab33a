"""Every shape of this session against the card's baseline, by the gate's rules; with --record it becomes the baseline."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from kernelbench.session import Share, measured

from perfgate.kernelbench.shapes import Shape

pytestmark = pytest.mark.kernelbench
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, card: torch.device) -> dict[str, Any]:
    """A perfgate.kernelbench.judge.Judgement a shape's key; empty strings where they were recorded."""
    # Here and not above: judging asks for packages that a bare GPU host, which only measures, need not have.
    from perfgate.baseline import BaselineError
    from perfgate.fingerprint import git_commit
    from perfgate.kernelbench import baseline, judge, recording

    run = measured(request.config)
    if run is None:
        pytest.fail("nothing was measured in this session: run test_speed.py too", pytrace=False)
    path = baseline.path_for(request.config.getoption("--baselines"), run.fingerprint)
    try:
        if request.config.getoption("--record"):
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            reason = request.config.getoption("--reason")
            recording.record(path, [run], reason=reason, recorded_at=now, commit=git_commit(ROOT))
        return {one.key: one for one in judge.judge([run], baseline.load(path))}
    except BaselineError as error:
        pytest.fail(str(error), pytrace=False)


def test_shape_is_no_slower_than_its_baseline(shape: Shape, verdicts: dict[str, Any], request: Any) -> None:
    one = verdicts.get(shape.key)
    if one is None:
        pytest.fail(f"MISSING {shape.key}: it was not timed in this session", pytrace=False)
    recorded = request.config.getoption("--record") and one.outcome.value not in ("MISSING", "INVALID")
    if not (one.outcome.passes or recorded):
        pytest.fail(f"{one.outcome} {shape.key}: {one.words}", pytrace=False)


def test_no_time_is_below_the_roofline(verdicts: dict[str, Any]) -> None:
    one = verdicts.get("roofline")
    if one is not None:
        pytest.fail(f"{one.outcome} {one.key}: {one.why}", pytrace=False)


def test_every_recorded_shape_was_timed(verdicts: dict[str, Any], share: Share) -> None:
    # What another part of the share holds is that part's to measure; what none of them holds is gone.
    left = {shape.key for shape in share.whole} - {shape.key for shape in share.own}
    gone = [one for one in verdicts.values() if one.outcome.value == "MISSING" and one.key not in left]
    if gone:
        pytest.fail("\n".join(f"MISSING {one.key}: {one.why}" for one in gone), pytrace=False)
