"""Invented weights whose answers depend on every kernel, in place of SGLang's for ``--load-format dummy``.

SGLang draws each weight from -0.001 to 0.001 (weight_utils.py:1493; :1740 in 0.5.23). FP8 rounds most of that to 0 and norms
multiply by it, so that neither attention nor experts reach the answers: on an H200 a decode that was wrong on purpose gave
the same log-probabilities to the last bit (2026-11-30). Here a product keeps the size of what it is given, and a norm is 1.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dsv4_kernels.sglang_plugin.shards import Shard, shards

CODE_STD = 32.0
"""Standard deviation of an FP8 weight's codes: far above e4m3's smallest, and 14 of them below its largest (448)."""

CHOICE_STD = 32.0
"""Standard deviation of a router's correction bias, beside which its scores (0.5 to 1.5) choose hardly anything. By random
scores of 256 experts alone a rounding of 0.5 % sends every sixth token to another expert in a layer, and a server would
differ from itself by as much as from a wrong one. The scores still weigh those that are chosen."""

CHUNK = 1 << 26
"""Elements that are drawn at once, as float32."""

_SCALES = ("_scale_inv", "_scale")

Note = Callable[[str, int], None]


def scaled_weights_hook(note: Note) -> Callable[..., None]:
    """Replacement for ``initialize_dummy_weights``: fills a model's parameters by :func:`fill` and counts one call."""

    def initialize_dummy_weights(model: Any, low: float = 0.0, high: float = 0.0, seed: int = 1234) -> None:
        note("scaled_weights", 0)
        fill(dict(model.named_parameters()), seed, shards(model))

    return initialize_dummy_weights


def fill(parameters: Mapping[str, torch.Tensor], seed: int = 1234, split: Mapping[str, Shard] | None = None) -> None:
    """Give every floating parameter its values, in place; each depends on its name, shape and shard, not on its dtype, nor
    on torch's default one.

    Matrices [..., out, in] are normal with standard deviation 1/sqrt(in), rounded to what FP8 codes and a power of two can
    hold, so that a weight is the same number in fp8 with block scales and in bf16. Embeddings (``embed`` in the name) have a
    standard deviation of 1. Scales are that power of two. Vectors: norms 1, those of keys 2, the hyper-connection's scales
    0.5, sinks normal, a router's correction bias large (it sends all tokens to the same experts), all else 0. Single numbers
    (the KV cache's scales) stay as they are. Raises ValueError for a scale without its weight.

    With tensor parallelism each rank draws its shard (``split``, by the parameter's name) by itself: what is not split is
    the same on all ranks, and two shards of a matrix differ. All sizes of it thus have weights of one distribution, but not
    the same weights: each is another model, whose answers can be held only to those of a server of the same size.
    """
    for name, parameter in parameters.items():
        if torch.is_floating_point(parameter) and parameter.dim():
            shard = (split or {}).get(name, Shard())
            scaled = _weight_of_scale(name, parameters)
            if scaled is not None:
                unit = _unit(scaled.shape[-1] * shard.inputs)
                parameter.data.copy_(torch.full_like(parameter.data, unit, dtype=torch.float32))
            elif parameter.dim() >= 2:
                _fill_matrix(name, parameter.data, seed, shard)
            else:
                parameter.data.copy_(_vector(name, parameter, seed))


def _unit(fan_in: int) -> float:
    """The power of two next to 1 / (CODE_STD * sqrt(fan_in))."""
    return 2.0 ** round(-math.log2(CODE_STD) - math.log2(fan_in) / 2)


def _weight_of_scale(name: str, parameters: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The quantised weight that a block scale belongs to; None for a parameter that is no such scale."""
    leaf = name.rsplit(".", 1)[-1]
    for suffix in _SCALES:
        if leaf.endswith(f"weight{suffix}"):
            weight = parameters.get(name.removesuffix(suffix))
            if weight is None:
                raise ValueError(f"{name} scales {name.removesuffix(suffix)}, which the model does not have")
            return weight
    return None


def _fill_matrix(name: str, data: torch.Tensor, seed: int, shard: Shard) -> None:
    rows = data.reshape(-1, data.shape[-1]) if data.is_contiguous() else data
    unit = 1.0 / CODE_STD if "embed" in name else _unit(data.shape[-1] * shard.inputs)
    step = max(1, CHUNK // max(1, rows[0].numel()))
    generator = _generator(name + shard.place, seed, data.device)
    for begin in range(0, len(rows), step):
        part = rows[begin : begin + step]
        # Named, since torch's default is bf16 while SGLang loads a model.
        drawn = torch.randn(part.shape, generator=generator, device=data.device, dtype=torch.float32)
        codes = drawn * CODE_STD
        codes = codes.clamp_(-448, 448).to(torch.float8_e4m3fn)
        quantised = torch.finfo(data.dtype).bits < 16
        part.copy_(codes.to(data.dtype) if quantised else codes.float() * unit)


def _vector(name: str, parameter: torch.Tensor, seed: int) -> torch.Tensor:
    leaf = name.rsplit(".", 1)[-1]
    if "norm" in name:
        # With scores of a standard deviation of 1, attention is the mean of hundreds of tokens, 0.05 beside a residual of 1.
        # With 2 it is a dozen's.
        keys = "kv_norm" in name or "compressor" in name
        return torch.full_like(parameter, 2.0 if keys else 1.0)
    if leaf.startswith("hc_") and leaf.endswith("_scale"):
        return torch.full_like(parameter, 0.5)
    width = CHOICE_STD if leaf == "e_score_correction_bias" else 1.0 if "sink" in leaf else None
    if width is not None:
        generator = _generator(name, seed, parameter.device)
        drawn = torch.randn(parameter.shape, generator=generator, device=parameter.device, dtype=torch.float32)
        return (drawn * width).to(parameter.dtype)
    return torch.zeros_like(parameter)


def _generator(name: str, seed: int, device: torch.device) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed ^ zlib.crc32(name.encode()))
