"""Counters of launches that may run side by side are never the same memory, and always zeros when a launch finds them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from dsv4_kernels import counters, hc_prenorm
from dsv4_kernels.counters import SLOTS, SPARE, Counters
from kit.compare import assert_bitwise_equal
from kit.decode import recorded
from kit.strategies_hc import HcCase, build


class Gpu:
    """A GPU's streams and captures, played on the CPU; what is made while capturing is noted as the graph's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream, self.capturing, self.synchronised = 7, False, 0
        self.of_the_graph: list[torch.Tensor] = []
        zeros = torch.zeros

        def made(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
            made = zeros(count, dtype=dtype)
            if self.capturing:
                self.of_the_graph.append(made)
            return made

        monkeypatch.setattr(torch, "zeros", made)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self._current())

    def _current(self) -> SimpleNamespace:
        def synchronize() -> None:
            assert not self.capturing, "a stream that captures can't be waited for"
            self.synchronised += 1

        return SimpleNamespace(cuda_stream=self.stream, synchronize=synchronize)

    def captured(self, owner: Counters, count: int = 1) -> torch.Tensor:
        self.capturing = True
        slots = owner.take(count)
        self.capturing = False
        return slots


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def places(slots: torch.Tensor) -> set[int]:
    return {slots.data_ptr() + 4 * each for each in range(slots.numel())}


def owner_of() -> Counters:
    return Counters(torch.device("cuda", 0))


def test_captured_launches_share_a_counter_with_no_other(gpu: Gpu) -> None:
    owner = owner_of()
    eager = owner.take(1)
    captured = []
    for gpu.stream in (7, 7, 8, 8):
        captured += [gpu.captured(owner), gpu.captured(owner, 4)]
    everything = [eager, *captured]
    assert sum(slots.numel() for slots in everything) == len(set().union(*map(places, everything)))
    assert not gpu.of_the_graph, "a graph fills its counters at each replay, where a slab had room"
    assert all((slots == 0).all() for slots in everything)


def test_launches_of_one_stream_share_its_counter_and_no_other_streams(gpu: Gpu) -> None:
    owner = owner_of()
    first = owner.take(1)
    assert places(owner.take(1)) == places(first)
    gpu.stream = 8
    assert not places(owner.take(1)) & places(first)
    gpu.stream = 7
    more = owner.take(5)
    assert more.numel() >= 5
    assert places(owner.take(3)) == places(more)


def test_a_slab_is_zeroed_before_another_stream_counts_in_it(gpu: Gpu) -> None:
    owner = owner_of()
    owner.take(1)
    assert gpu.synchronised == 1
    for gpu.stream in range(20):
        owner.take(1)
    assert gpu.synchronised == 1, "a stream is waited for once for a slab, and not in each call"


def test_a_capture_without_a_slab_gets_zeros_of_the_graphs_own(gpu: Gpu) -> None:
    owner = owner_of()
    captured = gpu.captured(owner, 3)
    assert captured is gpu.of_the_graph[0]
    assert not captured.any()
    assert not places(owner.take(3)) & places(captured), "what a graph zeroes when it runs serves no other launch"


def test_captures_past_a_slabs_end_are_right_and_the_next_call_makes_another(gpu: Gpu) -> None:
    owner = owner_of()
    eager = owner.take(1)
    before = [gpu.captured(owner, SPARE) for _ in range(3)]
    assert not gpu.of_the_graph
    gpu.captured(owner, SPARE)
    assert len(gpu.of_the_graph) == 1
    assert places(owner.take(1)) == places(eager), "a stream keeps its counter"
    after = gpu.captured(owner, SPARE)
    assert len(gpu.of_the_graph) == 1, "the call in between made no other slab"
    assert not any(places(after) & places(old) for old in before)


def test_counters_are_aligned_as_memory_of_their_own_is(gpu: Gpu) -> None:
    """To Triton a pointer of another alignment is another kernel, which it would compile while a graph is captured."""
    owner = owner_of()
    for count in (1, 3, 5, 1):
        assert owner.take(count).data_ptr() % 16 == 0
        assert gpu.captured(owner, count).data_ptr() % 16 == 0


def test_a_call_with_more_counters_than_a_slab_has(gpu: Gpu) -> None:
    owner = owner_of()
    assert owner.take(SLOTS + 1).numel() > SLOTS


def test_each_device_has_its_own(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_DEVICES", {})
    first, second = (counters.take(torch.device("cuda", index), 1) for index in (0, 1))
    assert not places(first) & places(second)
    assert places(counters.take(torch.device("cuda", 0), 1)) == places(first)


def test_a_launch_leaves_its_counter_at_zero(device: torch.device) -> None:
    x, fn, eps = build(HcCase(tokens=1), device)
    first = hc_prenorm(x, fn, eps)
    assert not counters.take(x.device, 1).any()
    assert_bitwise_equal((hc_prenorm(x, fn, eps),), (first,), "a second launch")


def test_graphs_of_one_stream_side_by_side_stay_right(device: torch.device) -> None:
    """On a GPU two graphs replayed on two streams; without one their launches in turn."""
    made = [build(HcCase(tokens=1, width=16_384, seed=seed), device) for seed in range(2)]
    expected = [hc_prenorm(*each) for each in made]
    graphs = [recorded(lambda each=each: (hc_prenorm(*each),)) for each in made]
    streams = [torch.cuda.Stream() if torch.cuda.is_available() else None for _ in made]
    for _ in range(200 if torch.cuda.is_available() else 2):
        for (_, run, _), stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    assert_bitwise_equal(tuple(result for (result,), _, _ in graphs), tuple(expected), "one of two side by side")
    assert_bitwise_equal(tuple(hc_prenorm(*each) for each in made), tuple(expected), "a call after them")
