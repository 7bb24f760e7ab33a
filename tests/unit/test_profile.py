"""GPU time of a stored trace by category."""

import gzip
import importlib.util
import json
import re
from pathlib import Path

import pytest

from perfgate import profile
from perfgate.profile import ProfileError, categorise, compare, read_trace, where_it_went

KERNELS = (
    ("void flash_fwd_splitkv_mla_kernel<bf16>", "sparse attention", 30.0),
    ("sm90_fp8_paged_mqa_logits", "indexer", 10.0),
    ("topk_transform_512_kernel", "top-k", 5.0),
    ("fused_moe_kernel", "MoE", 25.0),
    ("nvjet_tst_128x64_64x6", "GEMM", 10.0),
    ("ncclDevKernel_AllReduce_Sum_bf16", "communication", 5.0),
    ("hc_prenorm_kernel", "hyper-connection", 5.0),
    ("void at::native::vectorized_elementwise_kernel<4>", "glue", 10.0),
)


def event(name, dur, cat="kernel"):
    return {"ph": "X", "cat": cat, "name": name, "ts": 1, "dur": dur, "args": {"stream": 7}}


def write(path, rows, packed=False, extra=None):
    body = {"schemaVersion": 1, "deviceProperties": [{"name": "NVIDIA H200"}], "traceEvents": rows, **(extra or {})}
    data = json.dumps(body).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.fixture
def rows():
    noise = [event("aten::mm", 500.0, "cpu_op"), {"ph": "M", "name": "process_name", "args": {"name": "python"}}]
    return noise + [event(name, dur) for name, _, dur in KERNELS]


@pytest.mark.parametrize("packed", [False, True])
def test_time_is_shared_out_by_category_and_cpu_events_do_not_count(tmp_path, rows, packed):
    seen = read_trace(write(tmp_path / "trace.json", rows, packed))
    assert seen.total_us == 100
    assert {c: seen.share(c) for _, c, _ in KERNELS} == {c: us / 100 for _, c, us in KERNELS}
    assert seen.tensor_core_us == 50  # split-KV MLA, DeepGEMM logits, nvjet: 30 + 10 + 10


@pytest.mark.parametrize(
    ("kernel", "category"),
    [
        ("deep_gemm::sm90_m_grouped_fp8_gemm", "MoE"),
        ("topkGatingSoftmax", "MoE"),
        ("moe_fused_gate", "MoE"),
        ("radix_select_topk", "top-k"),
        ("mhc_pre_norm_kernel", "hyper-connection"),
        ("cross_device_reduce_1stage", "communication"),
        ("Memcpy DtoD (Device -> Device)", "glue"),
        ("void cublasGemvTensor", "GEMM"),
        ("reduce_kernel<512, 1>", "glue"),
    ],
)
def test_kernel_names_of_the_field_find_their_category(kernel, category):
    assert categorise(kernel)[0] == category


@pytest.mark.parametrize(
    ("number", "category"), [(0, "GEMM"), (1, "MoE"), (2, "MoE"), (3, "MoE"), (4, "GEMM"), (5, "MoE"), (6, "MoE")]
)
@pytest.mark.parametrize(
    "kernel",
    [
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 1024u, 1u, 256u, 128u, 2u, true, 132u, "
        "(deep_gemm::GemmType){}, deep_gemm::epilogue::transform::EpilogueIdentity>(float*, int*, CUtensorMap_st)",
        "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, 32u, 148u, true, (deep_gemm::GemmType){}, false>(int*)",
        "_ZN9deep_gemm23sm90_fp8_gemm_1d2d_implILj0ELj4096ELNS_8GemmTypeE{}EEEvPf",
    ],
)
def test_deepgemms_grouped_kernels_are_told_by_their_template_argument(kernel, number, category):
    assert categorise(kernel.format(number)) == (category, True)


OURS = {
    "sparse_mla_kernels.py": ("sparse attention", {"dsv4_sparse_mla_decode_kernel"}),
    "sparse_mla_hopper.py": ("sparse attention", {"dsv4_sparse_mla_hopper_kernel"}),
    "indexer.py": ("indexer", {"dsv4_paged_mqa_logits_kernel"}),
    "topk_kernels.py": ("top-k", set()),
    "hyper_connection.py": ("hyper-connection", {"dsv4_hc_prenorm_sum_kernel"}),
    "sglang_plugin/hc_combine.py": ("hyper-connection", set()),
}


@pytest.mark.parametrize("file", OURS)
def test_our_own_kernels_find_their_category_and_whether_they_use_tensor_cores(file):
    category, on_tensor_cores = OURS[file]
    folder = Path(importlib.util.find_spec("dsv4_kernels").origin).parent
    names = set(re.findall(r"^def (\w+_kernel)\(", (folder / file).read_text(), re.MULTILINE))
    assert names
    assert all(name.startswith("dsv4_") for name in names), "a name in a trace must say whose kernel it is"
    assert {name: categorise(name) for name in names} == {name: (category, name in on_tensor_cores) for name in names}


def test_the_report_says_where_the_time_went(tmp_path, rows):
    before = read_trace(write(tmp_path / "a.json", rows))
    now = read_trace(write(tmp_path / "b.json", [*rows, event("sm90_fp8_paged_mqa_logits", 100.0)]))
    changes = compare(now.shares, before.shares)
    assert changes[0].category == "indexer"
    assert changes[-1].category == "tensor cores"
    assert where_it_went(changes) == "more of the GPU time than before: indexer 10% -> 55%"
    assert "all slowed alike" in where_it_went(compare(before.shares, before.shares))


def test_a_trace_larger_than_a_chunk_is_read_across_the_seams(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(profile, "CHUNK", 37)
    path = write(tmp_path / "trace.json", rows * 20, extra={"traceName": "x"})
    assert read_trace(path).total_us == pytest.approx(2000)


def test_a_trace_that_is_a_bare_array_is_read(tmp_path, rows):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(rows))
    assert read_trace(path).total_us == 100


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_off_trace_is_an_error_that_names_the_file(tmp_path, rows, packed):
    path = write(tmp_path / "trace.json", rows, packed)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(ProfileError, match=r"trace\.json"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"", b"hello", b'{"traceEvents": 3}', b'{"traceEvents": [1]}', b"\xff\xfe{}"])
def test_what_is_no_trace_is_an_error(tmp_path, content):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=r"trace\.json"):
        read_trace(path)


def test_a_trace_without_gpu_time_is_an_error_not_a_share_of_nothing(tmp_path):
    with pytest.raises(ProfileError, match="no GPU kernels"):
        read_trace(write(tmp_path / "trace.json", [event("aten::mm", 5.0, "cpu_op")]))
