"""CPU time of a stored trace by operator: each operator's own time, and what lies between them."""

import json

import pytest

from perfgate.cpu_trace import CATEGORIES, OTHER, OUTSIDE, categorise, decode_windows, own_times, read_cpu_trace
from perfgate.profile import ProfileError, compare, where_it_went


def op(name, began, lasted, thread=1, cat="cpu_op"):
    return {"ph": "X", "cat": cat, "name": name, "ts": began, "dur": lasted, "pid": 7, "tid": thread}


def write(path, rows):
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    return path


def step(began, lasted, mode="DECODE", size=4, thread=1):
    return op(f"step[{mode} bs={size}]", began, lasted, thread, "user_annotation")


ROWS = [
    op("aten::linear", 1000.0, 100.0),
    op("aten::t", 1000.0, 10.0),
    op("aten::addmm", 1010.0, 80.0),
    op("aten::copy_", 1020.0, 5.0),
    op("aten::scaled_dot_product_attention", 1150.0, 50.0),
    op("aten::softmax", 1160.0, 20.0),
    # A prefill long before, and the next decode step, which ends what is looked at.
    step(0.0, 400.0, "EXTEND"),
    op("aten::mul", 100.0, 300.0),
    step(1000.0, 190.0),
    step(1250.0, 190.0),
    op("aten::mul", 1260.0, 100.0),
]


def test_an_operators_own_time_leaves_out_what_it_calls():
    spans = [(r["ts"], r["dur"], r["name"]) for r in ROWS[:6]]
    assert own_times(spans) == {
        "aten::linear": 10,
        "aten::t": 10,
        "aten::addmm": 75,
        "aten::copy_": 5,
        "aten::scaled_dot_product_attention": 30,
        "aten::softmax": 20,
    }


def test_the_same_operator_called_by_itself_is_not_counted_twice():
    assert own_times([(0.0, 10.0, "a"), (2.0, 4.0, "a")]) == {"a": 10}


def test_shares_of_the_decode_steps_add_up_and_what_is_no_operators_is_one_of_them(tmp_path):
    seen = read_cpu_trace(write(tmp_path / "t.json", ROWS))
    assert seen.device == "CPU"
    assert seen.total_us == 250
    assert sum(seen.shares.by_category.values()) == pytest.approx(1)
    assert seen.share("GEMM") == 85 / 250
    assert seen.share("attention") == 30 / 250
    assert seen.share(OUTSIDE) == 100 / 250
    assert seen.share("norm and elementwise") == 0
    assert seen.shares.tensor_cores is None
    assert seen.longest[0] == ("aten::addmm", "GEMM", 75.0)


def test_steps_of_another_batch_a_prefill_or_another_thread_end_what_is_looked_at():
    rows = [step(0, 10), step(20, 10), step(50, 10, size=3), step(80, 10, "EXTEND"), step(900, 10), step(930, 10)]
    spans = [(r["ts"], r["dur"], r["name"]) for r in rows]
    assert decode_windows(spans) == [(0, 20), (900, 930)]


def test_operators_of_other_threads_are_not_the_steps(tmp_path):
    other = [op("aten::mul", 1000.0, 200.0, thread=2)]
    assert read_cpu_trace(write(tmp_path / "t.json", ROWS + other)).total_us == 250


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("aten::mm", "GEMM"),
        ("aten::linear", "GEMM"),
        ("mkldnn::_linear_pointwise", "GEMM"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::index_select", "copies, views and indexing"),
        ("aten::copy_", "copies, views and indexing"),
        ("aten::t", "copies, views and indexing"),
        ("aten::mul", "norm and elementwise"),
        ("aten::rsqrt", "norm and elementwise"),
        ("aten::argmax", "top-k and sampling"),
        ("aten::multinomial", "top-k and sampling"),
        ("sglang::something_new", OTHER),
    ],
)
def test_operator_names_find_their_category(name, category):
    assert categorise(name) == category
    assert category in CATEGORIES


def test_a_cost_that_is_no_operators_shows_outside_of_them(tmp_path):
    before = read_cpu_trace(write(tmp_path / "a.json", ROWS)).shares
    late = [{**r, "ts": r["ts"] + (250 if r["ts"] >= 1150 else 0)} for r in ROWS]
    now = read_cpu_trace(write(tmp_path / "b.json", late)).shares
    assert where_it_went(compare(now, before), "CPU") == (f"more of the CPU time than before: {OUTSIDE} 40% -> 70%")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no two decode steps"),
        ([op("aten::mm", 0, 5)], "no two decode steps"),
        ([step(0, 5), step(10, 5, size=2)], "no two decode steps"),
        ([op("aten::mm", 0, -1)], "aten::mm"),
        ([op("aten::mm", None, 1)], "aten::mm"),
        ([step(0, 0), step(0, 0)], "took no time"),
    ],
)
def test_a_trace_without_decode_steps_is_an_error_that_names_the_file(tmp_path, rows, said):
    with pytest.raises(ProfileError, match=said) as caught:
        read_cpu_trace(write(tmp_path / "t.json", rows))
    assert "t.json" in str(caught.value)


def test_gpu_and_cpu_time_are_never_compared(tmp_path):
    from perfgate.profile import Shares

    cpu = read_cpu_trace(write(tmp_path / "a.json", ROWS)).shares
    with pytest.raises(ProfileError, match="CPU time now and GPU time before"):
        compare(cpu, Shares("GPU", {"GEMM": 1.0}, 0.5))
