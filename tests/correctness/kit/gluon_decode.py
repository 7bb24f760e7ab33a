"""The Gluon decode on the suite's inputs, its compiled PTX emulated: every block of the launch, one after the other."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from dsv4_kernels import layout, reference
from ptx.machine import Block
from ptx.memory import GlobalMemory
from ptx.parse import Program, parse

from kit.cache import DecodeInputs
from kit.compare import assert_decode_close
from kit.gluon_compiled import FLAGS, STEPS, Compiled, kernels, name_of
from kit.rounding import rounding_of

POISON = 0xFF  # NaN as bf16 and as fp32: what outputs and scratch hold before the launch
WARPS = 4  # of a warpgroup
LOG2E = math.log2(math.e)

Result = tuple[torch.Tensor, torch.Tensor]


@functools.cache
def program(name: str) -> Program:
    return parse(kernels()[name].ptx)


def kind_of(inputs: DecodeInputs, splits: int) -> str:
    """The name of the compilation that serves a call."""
    extra = inputs.extra_indices if inputs.extra_indices is not None else inputs.indices
    given = (inputs.topk_length, inputs.extra_k_cache, inputs.extra_topk_length, inputs.attn_sink)
    flags = {flag: value is not None for flag, value in zip(FLAGS, given, strict=True)}
    last = (inputs.q.stride(-1), inputs.indices.stride(-1), extra.stride(-1))
    return name_of(flags, {step: stride == 1 for step, stride in zip(STEPS, last, strict=True)}, splits > 1)


def decode(
    inputs: DecodeInputs, splits: int = 1, seed: int = 0, without: tuple[int, ...] = (), reached: set[int] | None = None
) -> Result:
    """out [B, S, H, 512] bf16 and lse [B, H, S] fp32, in the interleavings of a seed.

    ``without`` names instructions of the program that are to do nothing; those that were executed are added to ``reached``.
    """
    name = kind_of(inputs, splits)
    kernel = kernels()[name]
    memory = GlobalMemory()
    arguments, out_at, lse_at = _arguments(inputs, splits, memory)
    parameters = [arguments[each] for each in kernel.parameters]
    changed = program(name).without(*without) if without else program(name)
    batch, queries, heads, _ = inputs.q.shape
    for number in range(batch * queries * splits * -(-heads // kernel.heads)):
        block = Block(changed, number, parameters, memory, kernel.shared, kernel.warps // WARPS)
        block.run(1000 * seed + number)
        if reached is not None:
            reached |= block.reached
    if splits > 1:
        return _merged(inputs, splits, kernel, memory, out_at, lse_at)
    out = _read(memory, out_at, np.uint16, (batch, queries, heads, layout.HEAD_DIM)).view(torch.bfloat16)
    return out, _read(memory, lse_at, np.float32, (batch, heads, queries))


def assert_right(actual: Result, inputs: DecodeInputs) -> None:
    """Compare with the oracle that does not round."""
    assert_decode_close(actual, reference.sparse_mla_decode(*inputs.arguments()), rounding_of(inputs))


def _arguments(inputs: DecodeInputs, splits: int, memory: GlobalMemory) -> tuple[dict[str, int], int, int]:
    """The launch's arguments by name, as tools/gpu/gluon_mla_check.py has them, and where its results come to be."""
    batch, queries, heads, dim = inputs.q.shape
    rows = batch * queries * splits if splits > 1 else batch * queries
    width = 4 if splits > 1 else 2  # bytes of an output value
    out = memory.add(np.full(rows * heads * dim * width, POISON, np.uint8), writable=True)
    lse = memory.add(np.full(rows * heads * 4, POISON, np.uint8), writable=True)
    has_extra = inputs.extra_k_cache is not None and inputs.extra_indices is not None
    extra_cache = inputs.extra_k_cache if has_extra else inputs.k_cache
    extra_indices = inputs.extra_indices if has_extra else inputs.indices
    length = inputs.topk_length if inputs.topk_length is not None else inputs.indices
    extra_length = inputs.extra_topk_length if inputs.extra_topk_length is not None else inputs.indices
    pages, extra_pages = layout.geometry(inputs.k_cache), layout.geometry(extra_cache, "extra_k_cache")
    scale = np.float32(inputs.softmax_scale * LOG2E)
    q_strides, strides, extra_strides = inputs.q.stride(), inputs.indices.stride(), extra_indices.stride()
    nothing = memory.add(np.zeros(0, np.uint8))  # what a call leaves out is not read
    arguments = {
        "q_ptr": _place(inputs.q, memory), "kv_ptr": _place(inputs.k_cache, memory),
        "index_ptr": _place(inputs.indices, memory), "length_ptr": _place(length, memory),
        "extra_kv_ptr": _place(extra_cache, memory) if has_extra else nothing,
        "extra_index_ptr": _place(extra_indices, memory) if has_extra else nothing,
        "extra_length_ptr": nothing if inputs.extra_topk_length is None else _place(extra_length, memory),
        "sink_ptr": nothing if inputs.attn_sink is None else _place(inputs.attn_sink, memory),
        # The pair that a call does not use is given as one that must not be written.
        "out_ptr": nothing if splits > 1 else out, "lse_ptr": nothing if splits > 1 else lse,
        "part_ptr": out if splits > 1 else nothing, "part_lse_ptr": lse if splits > 1 else nothing,
        "scale_log2": int(scale.view(np.uint32)), "heads": heads, "queries": queries, "splits": splits,
        "width": inputs.indices.shape[2], "extra_width": extra_indices.shape[2],
        "length_stride": length.stride(0), "extra_length_stride": extra_length.stride(0),
        "page_shift": pages.page_size.bit_length() - 1, "extra_page_shift": extra_pages.page_size.bit_length() - 1,
        "page_stride": pages.page_stride, "extra_page_stride": extra_pages.page_stride,
        **{f"q_stride_{which}": stride for which, stride in zip("bshd", q_strides, strict=True)},
        **{f"index_stride_{which}": stride for which, stride in zip("bsk", strides, strict=True)},
        **{f"extra_index_stride_{which}": stride for which, stride in zip("bsk", extra_strides, strict=True)},
    }  # fmt: skip
    return arguments, out, lse


def _place(tensor: torch.Tensor, memory: GlobalMemory) -> int:
    """Copy a tensor's whole storage, gaps and padding included; return the address of its first element."""
    stored = torch.empty(0, dtype=torch.uint8).set_(tensor.cpu().untyped_storage())
    return memory.add(stored.numpy()) + tensor.storage_offset() * tensor.element_size()


def _read(memory: GlobalMemory, at: int, dtype: type, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(memory.contents(at, dtype, math.prod(shape)).reshape(shape))


def _merged(
    inputs: DecodeInputs, splits: int, kernel: Compiled, memory: GlobalMemory, out_at: int, lse_at: int
) -> Result:
    """Merge the parts of splits that have tiles, in fp64; those without must not have been written."""
    batch, queries, heads, dim = inputs.q.shape
    parts = _read(memory, out_at, np.float32, (batch, queries, splits, heads, dim))
    logs = _read(memory, lse_at, np.float32, (batch, queries, splits, heads))
    out, lse = torch.zeros(batch, queries, heads, dim, dtype=torch.float64), torch.zeros(batch, heads, queries)
    for b in range(batch):
        tiles = _tiles(inputs.indices, inputs.topk_length, b, kernel.tokens)
        tiles += _tiles(inputs.extra_indices, inputs.extra_topk_length, b, kernel.tokens)
        share = -(-tiles // splits)
        used = -(-tiles // share) if share else 0
        untouched = parts[b, :, used:].isnan().all() & logs[b, :, used:].isnan().all()
        assert untouched, "a split without tiles was written"
        for s in range(queries):
            log = logs[b, s, :used].double()
            total = torch.logsumexp(log * math.log(2), 0) if used else torch.full((heads,), -torch.inf)
            weight = torch.exp(log * math.log(2) - total.nan_to_num(neginf=0.0))
            sink = torch.tensor(-torch.inf) if inputs.attn_sink is None else inputs.attn_sink.double()
            tokens = torch.where((total == -torch.inf) | (sink == torch.inf), 0.0, torch.sigmoid(total - sink))
            out[b, s] = (weight[..., None] * parts[b, s, :used].double()).sum(0) * tokens[:, None]
            lse[b, :, s] = total
    return out.bfloat16(), lse


def _tiles(indices: torch.Tensor | None, lengths: torch.Tensor | None, request: int, tokens: int) -> int:
    if indices is None:
        return 0
    length = indices.shape[2] if lengths is None else max(0, min(int(lengths[request]), indices.shape[2]))
    return -(-length // tokens)
