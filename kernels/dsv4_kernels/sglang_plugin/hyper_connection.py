"""DeepseekV4DecoderLayer.hc_pre with the pre-norm linear by our kernel, and what follows it in one pass over x.

SGLang's own method (deepseek_v4.py:1202; :3345) has three forms that agree in what they return: the layer's input y,
post, comb, and whether the layer's RMSNorm is already applied to y. This one keeps x in bf16 throughout, and combines
the streams and applies the norm in one kernel (hc_combine).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4_kernels.sglang_plugin.layout import require

Kernel = Callable[..., Any]


def hc_pre_hook(
    prenorm: Kernel, sinkhorn: Kernel, combine: Kernel, note: Callable[[str, int], None]
) -> Callable[..., Any]:
    """Replacement for the method.

    ``prenorm(x [T, C*H] bf16, fn [24, C*H] fp32, eps) -> mixes [T, 24] fp32``; ``sinkhorn`` is SGLang's
    ``hc_split_sinkhorn(mixes [T, 1, 24], scale [3], base [24], mult, iterations, eps) -> pre [T, 1, C], post [T, 1, C],
    comb [T, 1, C, C]``; ``combine(x [T, C, H], pre [T, C], weight [H] or None, eps) -> y [T, H]``.

    The method takes x [T, C, H] bf16 and returns (y [T, H], post [T, C], comb [T, C, C], norm applied).
    """

    def hc_pre(
        self: Any, x: Any, hc_fn: Any, hc_scale: Any, hc_base: Any, norm: Any = None, forward_batch: Any = None
    ) -> tuple[Any, Any, Any, bool]:
        require("hc_prenorm", "x's number of dimensions", x.dim(), 3)
        require("hc_prenorm", "the number of streams", x.shape[1], self.hc_mult)
        rows = int(x.shape[0])
        if rows == 0:
            post = x.new_empty((0, self.hc_mult), dtype=hc_fn.dtype)
            comb = x.new_empty((0, self.hc_mult, self.hc_mult), dtype=hc_fn.dtype)
            return x.new_empty((0, x.shape[-1])), post, comb, False
        note("hc_prenorm", rows)
        mixes = prenorm(x.flatten(1), hc_fn, self.rms_norm_eps)
        pre, post, comb = sinkhorn(
            mixes.view(rows, 1, -1), hc_scale, hc_base, self.hc_mult, self.hc_sinkhorn_iters, self.hc_eps
        )
        weight = None if norm is None else norm.weight.data
        eps = 0.0 if norm is None else norm.variance_epsilon
        y = combine(x, pre.view(rows, -1), weight, eps)
        return y, post.view(rows, -1), comb.view(rows, self.hc_mult, self.hc_mult), norm is not None

    return hc_pre
