"""The timing edge, in order: warm-up, capture, flush, events, replay, poison, check. Without a GPU, on a fake torch.cuda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernelbench import body, fake_cuda
from kernelbench.body import PER_BLOCK, Trial
from kernelbench.fake_cuda import DEVICE, FLUSH_US, LAUNCH_US, FakeCuda, FakeTorch
from kernelbench.inputs import FEWER_SETS, SETS
from kernelbench.peers import Implementation

from perfgate.kernelbench import timing
from perfgate.kernelbench.clock_watch import State
from perfgate.kernelbench.shapes import HcShape
from perfgate.kernelbench.timing import BLOCKS, REPLAYS, WARM_UP, Replayer, TooSlow, gpu_seconds, replay_times


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(timing, "torch", FakeTorch(fake))
    return fake


def writer(cuda: FakeCuda, number: int, value: Callable[[], float] = lambda: 1.0) -> Callable[[], torch.Tensor]:
    """A call with one kernel, which writes a value to an output of its own."""

    def call() -> torch.Tensor:
        out = torch.zeros(2)
        cuda.launch(f"kernel {number}", lambda: out.fill_(value()))
        return out

    return call


def replayer(cuda: FakeCuda, sets: int = 2) -> Replayer:
    return Replayer([writer(cuda, at) for at in range(sets)], DEVICE)


def test_each_call_runs_twice_before_it_is_captured_on_the_stream_that_warmed_it_up(cuda: FakeCuda) -> None:
    replayer(cuda)
    first = cuda.log.index(("capture", "side 1"))
    warm = [entry for entry in cuda.log[:first] if entry[0] == "run"]
    assert warm == [("run", f"kernel {at}", "side 1") for at in (0, 0, 1, 1)]
    assert cuda.log[0] == ("wait", "side 1", "main"), "inputs were made on the main stream"
    assert cuda.log[first - 1] == ("synchronize",)
    assert [entry for entry in cuda.log if entry[0] == "capture"] == [("capture", "side 1")] * 2


def test_a_replay_is_flush_event_graph_event_and_its_time_is_the_graphs_alone(cuda: FakeCuda) -> None:
    made = replayer(cuda)
    cuda.log.clear()
    before = gpu_seconds()
    made.once()
    assert cuda.log == [
        ("run", "flush", "main"),
        ("event",),
        ("replay", 0),
        ("run", "kernel 0", "main"),
        ("event",),
        ("event synchronize",),
    ]
    assert gpu_seconds() - before == pytest.approx(LAUNCH_US / 1e6)


def test_what_is_written_before_a_replay_is_more_than_any_l2(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, flush = [], fake_cuda.Flush
    monkeypatch.setattr(fake_cuda, "Flush", lambda cuda, size: (sizes.append(size), flush(cuda, size))[1])
    replayer(cuda)
    assert sizes == [256 << 20]


def test_every_replay_is_flushed_and_takes_the_next_set_of_inputs(cuda: FakeCuda) -> None:
    made = replayer(cuda, sets=4)
    cuda.log.clear()
    assert replay_times(made, 8) == [pytest.approx(LAUNCH_US / 1e6)] * 8
    assert [entry[1] for entry in cuda.log if entry[0] == "replay"] == [0, 1, 2, 3] * 2
    flushes = [at for at, entry in enumerate(cuda.log) if entry[:2] == ("run", "flush")]
    replays = [at for at, entry in enumerate(cuda.log) if entry[0] == "replay"]
    assert [replay - flush for flush, replay in zip(flushes, replays, strict=True)] == [2] * 8


def test_replays_that_are_not_timed_come_before_the_poison_and_none_runs_while_it_is_written(cuda: FakeCuda) -> None:
    made = replayer(cuda)
    assert sum(entry[0] == "replay" for entry in cuda.log) == WARM_UP
    assert cuda.log[-1] == ("synchronize",)
    assert all(output.isnan().all() for output in made.outputs)
    made.once()
    assert [bool(output.isnan().any()) for output in made.outputs] == [False, True], "only what was replayed is written"


def test_a_new_block_captures_and_poisons_anew(cuda: FakeCuda) -> None:
    made = replayer(cuda)
    made.once()
    old = made.outputs
    made.capture()
    assert made.outputs[0] is not old[0]
    assert all(output.isnan().all() for output in made.outputs)
    assert [entry for entry in cuda.log if entry[0] == "capture"] == [("capture", "side 1")] * 4


def test_a_slow_call_is_refused_before_it_is_captured(cuda: FakeCuda) -> None:
    cuda.launch_us = 614_000.0
    with pytest.raises(TooSlow, match=r"too slow, 614 ms a call: 120 replays would take 74 s, more than 10"):
        Replayer([writer(cuda, 0), writer(cuda, 1)], DEVICE, most_seconds=10)
    assert ("run", "kernel 1", "side 1") not in cuda.log
    assert not any(entry[0] == "capture" for entry in cuda.log)
    assert REPLAYS + BLOCKS * WARM_UP == 120
    Replayer([writer(cuda, 0)], DEVICE)


def test_work_for_the_clocks_is_queued_in_a_number_that_does_not_wait_and_costs_no_time(cuda: FakeCuda) -> None:
    made = replayer(cuda)
    before = gpu_seconds()
    cuda.log.clear()
    still = made.busy(0.008)
    assert sum(entry[0] == "replay" for entry in cuda.log) == pytest.approx(8000 / (FLUSH_US + LAUNCH_US), abs=3)
    assert gpu_seconds() == before
    assert still()
    cuda.queued = False
    assert not still()
    cuda.log.clear()
    made.busy(60.0)
    assert sum(entry[0] == "replay" for entry in cuda.log) <= timing.QUEUE + 1


class Value:
    """What a trial's kernel writes, a value a block: 0 for right."""

    def __init__(self, *blocks: float) -> None:
        self.blocks, self.replays = blocks, 0

    def __call__(self) -> float:
        at = min(self.replays // PER_BLOCK, len(self.blocks) - 1)
        return self.blocks[at]


def trial(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, value: Value, sets: int = 2, watch: Any = None) -> Trial:
    problem = body.Problem(tuple(range(sets)), (0.0,) * sets)
    monkeypatch.setattr(body, "problem", lambda shape, device: problem)

    def check(inputs: Any, want: float, got: torch.Tensor) -> None:
        assert (got == want).all(), f"set {inputs} holds {got.tolist()}"

    one = Implementation("peer", lambda given: writer(cuda, given, value), check)
    made = Trial(HcShape(1), one, DEVICE, watch)
    replay = made.replay

    def counted() -> None:
        replay()
        value.replays += 1

    made.replay = counted
    return made


@pytest.mark.parametrize("wrong", range(BLOCKS))
def test_an_output_that_is_wrong_in_one_block_alone_does_not_count(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    made = trial(cuda, monkeypatch, Value(*(float(at == wrong) for at in range(BLOCKS))))

    def whole() -> None:
        for _ in range(REPLAYS):
            made.replay()
        made.verify()

    with pytest.raises(AssertionError, match="set 0 holds"):
        whole()


def test_a_right_trial_captures_a_block_at_a_time_and_reads_the_clocks_in_each(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = iter([State(1980, top_mhz=1980), State(1700, ("power cap",), top_mhz=1980), State(1980, top_mhz=1980)])
    made = trial(cuda, monkeypatch, Value(0.0), watch=lambda busy: (busy(0.001), next(read))[1])
    for _ in range(REPLAYS):
        made.replay()
    made.verify()
    assert sum(entry[0] == "capture" for entry in cuda.log) == 2 * BLOCKS
    assert (made.state.sm_mhz, made.state.throttled) == (1700, ("power cap",))


def test_replays_that_clocks_are_read_during_do_not_touch_what_is_checked(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set 0's scratch lies where set 1's output does, as in a pool of several graphs, and the clocks' replays end with set 0."""
    problem = body.Problem((0, 1), (0.0, 0.0))
    monkeypatch.setattr(body, "problem", lambda shape, device: problem)
    outputs: dict[int, torch.Tensor] = {}

    def make(at: int) -> Any:
        def call() -> torch.Tensor:
            out = outputs[at] = torch.zeros(4)

            def work() -> None:
                out.fill_(0.0)
                if at == 0 and 1 in outputs:
                    outputs[1].fill_(7.0)

            cuda.launch(f"set {at}", work)
            return out

        return call

    def check(inputs: int, want: float, got: torch.Tensor) -> None:
        assert (got == want).all(), f"set {inputs} holds {got.tolist()}"

    ended = []

    def watch(busy: Any) -> State:
        busy(1.2e-6 * (FLUSH_US + LAUNCH_US))  # three replays
        ended.append(float(outputs[1][0]))
        return State(1980, top_mhz=1980)

    made = Trial(HcShape(1), Implementation("peer", make, check), DEVICE, watch)
    for _ in range(REPLAYS):
        made.replay()
    made.verify()
    assert 7.0 in ended, "the replays did not end with set 0: this test shows nothing"


def test_sets_of_inputs_are_replayed_equally_often_in_a_block(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    for sets in (SETS, FEWER_SETS):
        assert PER_BLOCK % sets == 0
    with pytest.raises(AssertionError, match="20 replays a block are no multiple of 3 sets"):
        trial(cuda, monkeypatch, Value(0.0), sets=3)
