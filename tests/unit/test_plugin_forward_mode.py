"""Which batches decode: told by SGLang's own forward modes, at the attention backend that calls the patched function."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from dsv4_kernels.sglang_plugin import plugin
from dsv4_kernels.sglang_plugin.forward_mode import decodes, watch
from dsv4_kernels.sglang_plugin.seams import seams_for

VERSIONS = ("0.5.15.post1", "0.5.16", "0.5.20", "0.5.21", "0.5.23")


class Mode:
    """A forward mode of SGLang by the questions that it answers (forward_batch_info.py:78)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_idle(self) -> bool:
        return self.name == "IDLE"

    def is_mixed(self) -> bool:
        return self.name == "MIXED"

    def is_extend_without_speculative(self) -> bool:
        return self.name in ("EXTEND", "MIXED", "SPLIT_PREFILL", "DLLM_EXTEND")


DECODING = {
    "DECODE": True,
    "EXTEND": False,
    "IDLE": False,
    "MIXED": True,
    "TARGET_VERIFY": True,
    "SPLIT_PREFILL": False,
}


@pytest.mark.parametrize(("name", "expected"), DECODING.items())
def test_prefill_and_an_idle_rank_decode_nothing_and_a_mixed_batch_does(name, expected):
    assert decodes(Mode(name)) is expected


REAL = """
import json
from dsv4_kernels.sglang_plugin.forward_mode import decodes
from sglang.srt.model_executor.forward_batch_info import ForwardMode
print(json.dumps({mode.name: decodes(mode) for mode in ForwardMode}))
"""


@pytest.mark.timeout(290)
def test_sglangs_own_modes_are_understood():
    env = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", REAL], env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert {name: found[name] for name in DECODING} == DECODING


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("named", [True, False])
def test_the_batch_is_found_wherever_sglang_passes_it(version, named):
    (seam,) = plugin.watched_seams("sparse_mla", version, "sm_120")
    entered, calls = [], []

    @contextlib.contextmanager
    def decoding_nothing():
        entered.append("in")
        yield
        entered.append("out")

    def original(*args, **kwargs):
        calls.append((args, kwargs, list(entered)))
        return "out"

    forward = watch(decoding_nothing, seam.parameters)
    for name in ("EXTEND", "DECODE"):
        batch = SimpleNamespace(forward_mode=Mode(name))
        args = ("self", "q", "k", "v", "layer") if named else ("self", "q", "k", "v", "layer", batch, 4)
        kwargs = {"forward_batch": batch, "compress_ratio": 4} if named else {}
        assert forward(original, *args, **kwargs) == "out"
        assert calls[-1][:2] == (args, kwargs)
    assert calls[0][2] == ["in"]
    assert entered == ["in", "out"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("patch", "archs"), [("sparse_mla", ("sm_90", "sm_120")), ("fallback_sparse_mla", ("sm_90",))])
def test_every_patched_decode_is_watched(version, patch, archs):
    for arch in archs:
        (seam,) = plugin.watched_seams(patch, version, arch)
        assert seam.hook == "AROUND"
        assert seam not in plugin.reached_seams(patch, version, arch, lambda name: False)
    assert not [s for s in seams_for(version, ("indexer", "topk", "hc_prenorm")) if s.use == "watch"]
