"""What a timed test does, run for real on tiny shapes wherever the suite runs: interpreted where there is no GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from kernelbench import checks, inputs, modules, peers
from kernelbench.body import Trial, problem
from kernelbench.peers import Implementation, implementations, missing

from perfgate.kernelbench.bars import OURS, OURS_SPLIT
from perfgate.kernelbench.shapes import DecodeShape, HcShape, IndexerShape, Shape, TopKShape
from perfgate.kernelbench.timing import gpu_seconds, poison, tensors

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TINY: tuple[Shape, ...] = (
    DecodeShape(2, 16, 128, 0),
    DecodeShape(1, 16, 64, 64),
    IndexerShape(2, 100, 256),
    TopKShape(2, 700),
    TopKShape(2, 700, maximum=1024),
    HcShape(2),
)


@pytest.fixture(autouse=True)
def two_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than on a GPU: the interpreter takes a second for each."""
    monkeypatch.setattr(inputs, "SETS", 2)


def ours(shape: Shape) -> Implementation:
    return next(one for one in implementations(shape) if one.name == OURS)


def runs_here(one: Implementation) -> bool:
    # torch's own run anywhere; the others are for a GPU.
    return not one.needs or (DEVICE.type == "cuda" and not missing(one))


@pytest.mark.parametrize("shape", TINY, ids=lambda shape: shape.key)
def test_a_trial_replays_every_set_and_finds_the_output_right(shape: Shape) -> None:
    for one in implementations(shape):
        if runs_here(one):
            trial = Trial(shape, one, DEVICE)
            for _ in problem(shape, DEVICE).sets:
                trial.replay()
            trial.verify()


def wrong(result: Any) -> Any:
    """The same result with one of its middle values changed."""
    first = tensors(result)[0]
    flat = first.reshape(-1)
    at = flat.numel() // 2
    flat[at] = flat[at] + (1 if not first.is_floating_point() else 1000)
    first.copy_(flat.view(first.shape))
    return result


@pytest.mark.parametrize("shape", TINY, ids=lambda shape: shape.key)
def test_a_wrong_output_does_not_count(shape: Shape) -> None:
    one = ours(shape)

    def make(given: Any) -> Any:
        call = one.make(given)
        return lambda: wrong(call())

    broken = replace(one, make=make)
    trial = Trial(shape, broken, DEVICE)
    for _ in problem(shape, DEVICE).sets:
        trial.replay()
    with pytest.raises(AssertionError):
        trial.verify()


@pytest.mark.parametrize("shape", TINY, ids=lambda shape: shape.key)
def test_an_output_that_replays_never_wrote_does_not_count(shape: Shape) -> None:
    """What was right once, and is not written again by what is timed, is poison by then."""
    one = ours(shape)

    def make(given: Any) -> Any:
        kept = one.make(given)()
        return lambda: kept

    trial = Trial(shape, replace(one, make=make), DEVICE)
    for _ in problem(shape, DEVICE).sets:
        trial.replay()
    with pytest.raises(AssertionError):
        trial.verify()


def test_a_legal_entry_that_is_not_among_the_largest_does_not_count() -> None:
    given = inputs.make(TopKShape(2, 700), 0, DEVICE)
    order = given.scores.argsort(dim=1, descending=True)
    place = given.page_table.gather(1, order // given.page_size) * given.page_size + order % given.page_size
    want = checks.expected(given)
    checks.check_topk(given, want, place[:, :512].int())
    place[1, 511] = place[1, 699]
    with pytest.raises(AssertionError, match="1 scores are not among the largest"):
        checks.check_topk(given, want, place[:, :512].int())
    place[1, 511] = 1 << 30
    with pytest.raises(AssertionError, match="1 of 1024 entries lie past the last page"):
        checks.check_topk(given, want, place[:, :512].int())


def test_time_passes_on_a_gpu_alone() -> None:
    before = gpu_seconds()
    trial = Trial(HcShape(2), ours(HcShape(2)), DEVICE)
    trial.replay()
    assert (gpu_seconds() > before) is (DEVICE.type == "cuda")
    assert gpu_seconds() >= before


def test_inputs_of_two_seeds_differ_and_no_two_rows_share_a_token() -> None:
    first, second = problem(DecodeShape(2, 16, 128, 0), DEVICE).sets[:2]
    assert not torch.equal(first.q, second.q)
    assert first.indices.unique().numel() == first.indices.numel()


def test_what_is_not_installed_is_named() -> None:
    peer = Implementation("none", lambda given: given, lambda *_: None, needs=("no_such_peer",))
    assert missing(peer) == "no_such_peer is not installed"
    assert not missing(ours(HcShape(1)))


def test_flash_mla_is_labelled_where_it_is_padded() -> None:
    labels = {heads: peers.implementations(DecodeShape(1, heads, 128, 0))[1].label for heads in (16, 32, 64, 128)}
    assert labels == {16: "FlashMLA padded to 64 heads", 32: "FlashMLA padded to 64 heads", 64: "", 128: ""}


def test_a_module_is_loaded_by_its_file_without_its_package(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "heavy_package"
    (package / "below").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported as a whole')")
    (package / "below" / "one.py").write_text("VALUE = 7")
    monkeypatch.syspath_prepend(tmp_path)
    assert modules.module_file("heavy_package", "below/one.py").VALUE == 7
    with pytest.raises(ImportError, match=r"below/two\.py"):
        modules.module_file("heavy_package", "below/two.py")


def test_a_function_is_taken_from_a_file_whose_imports_are_not_there(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "broken_package"
    package.mkdir()
    (package / "one.py").write_text(
        "from __future__ import annotations\nimport not_there\n"
        "def scale(x: not_there.Tensor, by: int = 2):\n    return cache.setdefault(x, FACTOR * x * by)\n"
    )
    (package / "__init__.py").write_text("raise RuntimeError('imported as a whole')")
    monkeypatch.syspath_prepend(tmp_path)
    scale = modules.function_of("broken_package", "one.py", "scale", {"FACTOR": 10, "cache": {}})
    assert scale(3) == 60
    with pytest.raises(ImportError, match="0 functions other"):
        modules.function_of("broken_package", "one.py", "other", {})


@pytest.mark.parametrize(
    "shape", [IndexerShape(2, 100, 256), TopKShape(2, 700), TopKShape(2, 700, maximum=1024)], ids=str
)
def test_sglangs_torch_fallback_is_right_by_its_source_alone(shape: Shape) -> None:
    """Its functions are there and right where SGLang's modules can't be imported, as here or beside FlashInfer 0.6.12."""
    before = set(sys.modules)
    one = next(one for one in implementations(shape) if one.name == "SGLang torch")
    if not modules.installed("sglang"):
        assert missing(one) == "sglang is not installed"
        return
    assert not missing(one)
    for given, want in zip(problem(shape, DEVICE).sets, problem(shape, DEVICE).expected, strict=True):
        call = one.make(given)
        for _ in range(2):
            one.check(given, want, call())
    assert not [name for name in set(sys.modules) - before if name.startswith("sglang")]


def test_what_lies_behind_a_rows_scores_must_not_be_chosen() -> None:
    shape = TopKShape(2, 700, maximum=1024)
    given = inputs.make(shape, 0, DEVICE)
    assert given.scores.shape == (2, 1024)
    assert given.page_table.shape == (2, 16)
    order = given.scores.argsort(dim=1, descending=True)[:, :512]
    taken = given.page_table.gather(1, order // given.page_size) * given.page_size + order % given.page_size
    with pytest.raises(AssertionError, match="past its row's scores"):
        checks.check_topk(given, checks.expected(given), taken.int())


def test_a_run_says_what_each_output_was_held_to() -> None:
    held = {(kind, one.name): one.held_to for kind in TINY for one in implementations(kind)}
    assert held[HcShape(2), OURS] == "the references, within the correctness suite's bounds"
    alike = "the references, as the same function: 1 - cosine at most 0.0001"
    assert held[HcShape(2), OURS_SPLIT] == f"{alike}, its sums added up"
    assert held[HcShape(2), "DeepGEMM"] == alike
    assert held[TopKShape(2, 700), OURS] == "the references, exactly"
    assert held[TopKShape(2, 700), "torch.topk"] == "the references, exactly, its values alone"


def test_a_shape_whose_inputs_fit_thrice_has_two_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "SETS", 4)
    shape = DecodeShape(1, 64, 128, 0)
    monkeypatch.setattr(inputs, "BUDGET_BYTES", 4 * shape.work.bytes)
    assert inputs.sets_of(shape) == 4
    monkeypatch.setattr(inputs, "BUDGET_BYTES", 4 * shape.work.bytes - 1)
    assert inputs.sets_of(shape) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.uint8])
def test_every_kind_of_result_can_be_poisoned(dtype: torch.dtype) -> None:
    """The copy that measures the card's bandwidth gives bytes."""
    result = (torch.zeros(3, dtype=dtype), [torch.ones(2, dtype=dtype)])
    poison(result)
    for tensor in tensors(result):
        assert ((tensor != 0) & (tensor != 1)).all()
