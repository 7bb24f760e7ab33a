"""Running the sparse-MLA decode in tests: on poisoned memory, with a chosen configuration or the launcher's own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from dsv4_kernels import reference, sparse_mla, sparse_mla_decode
from dsv4_kernels.card import CARDS, INTERPRETING, card_for
from dsv4_kernels.sparse_mla_table import DecodeConfig, configurations, name_of

from kit.cache import DecodeInputs, poisoned_memory
from kit.compare import assert_decode_close
from kit.rounding import rounding_of

__all__ = ["assert_matches_oracles", "decode", "name_of", "recorded", "runnable_configurations"]

Result = tuple[torch.Tensor, torch.Tensor]


def decode(inputs: DecodeInputs, config: DecodeConfig | None = None, splits: int = 1) -> Result:
    """Call the public function, or launch one given configuration; outputs and scratch start as NaN either way."""
    with poisoned_memory():
        if config is None:
            return sparse_mla_decode(*inputs.arguments())
        return sparse_mla.launch(config, splits, *inputs.launch_arguments())


def assert_matches_oracles(actual: Result, inputs: DecodeInputs) -> None:
    """Compare with the oracle that rounds as the kernel does and with the one that does not round."""
    rounding = rounding_of(inputs)
    assert_decode_close(actual, reference.sparse_mla_decode_rounded(*inputs.arguments()), rounding)
    assert_decode_close(actual, reference.sparse_mla_decode(*inputs.arguments()), rounding)


def runnable_configurations() -> tuple[DecodeConfig, ...]:
    """Every tuned configuration that can run here: all of Triton's interpreted, all of them on Hopper, a card's own elsewhere.

    What cannot be interpreted is emulated (``gluon_decode``).
    """
    names = [card.name for card in CARDS]
    if not INTERPRETING and torch.cuda.is_available():
        here = card_for(torch.device("cuda"))[0]
        # A configuration that fits a card's shared memory fits every card that has more.
        names = [card.name for card in CARDS if card.shared_bytes <= here.shared_bytes]
    found = dict.fromkeys(config for name in names for config in configurations(name))
    return tuple(config for config in found if config.kernel == "triton" or not INTERPRETING)


def recorded(call: Callable[[], Result]) -> tuple[Result, Callable[[], None], str]:
    """Record ``call`` once and return (its output buffers, a way to run it again into them, how it was recorded).

    With a GPU it is a captured CUDA graph. Without one nothing can be captured: the call is launched again on the same
    input buffers and its results are copied over the first ones, which shows that lengths and indices are read at each
    launch, but not that pointers and grid survive a capture.
    """
    if not torch.cuda.is_available():
        buffers = call()

        def relaunch() -> None:
            for buffer, fresh in zip(buffers, call(), strict=True):
                buffer.copy_(fresh)

        return buffers, relaunch, "relaunched"

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        buffers = call()
    return buffers, graph.replay, "captured"
