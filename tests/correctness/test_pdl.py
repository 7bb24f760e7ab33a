"""Launches that overlap (programmatic dependent launch), compiled for both cards: each waits before it reads anything.

Which launches of a call do is told apart here too: the first, which does not wait, must not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dsv4_kernels import hyper_connection, layout, sparse_mla, topk
from dsv4_kernels.card import CARDS, Card
from dsv4_kernels.sparse_mla_table import configurations
from kit import launches

ROOT = Path(__file__).parents[2]

# In a process of its own: this one's Triton interprets.
COMPILE = """
import json, sys
from dataclasses import replace
from dsv4_kernels import hyper_connection, sparse_mla, sparse_mla_table, topk
from dsv4_kernels.card import CARDS
from kit.compiled import compile_case
card = next(card for card in CARDS if card.name == sys.argv[1])
for table in (hyper_connection.TABLE, topk.TABLE):
    table[card.name] = tuple(replace(config, pdl=True) for config in table[card.name])
rules = sparse_mla_table.TABLE[card.name]
sparse_mla_table.TABLE[card.name] = tuple(replace(r, config=replace(r.config, pdl=True)) for r in rules)
seen = {}
for module in (hyper_connection, topk, sparse_mla):
    for case in module.compile_cases(card):
        name = case.kernel.__name__ + ("-unsplit" if case.constexprs.get("SPLIT") is False else "")
        name += "-held" if case.constexprs.get("LISTED") is False else ""
        if name in seen:
            continue
        ptx = compile_case(case, card).asm["ptx"]
        wait, read = ptx.find("griddepcontrol.wait"), min(i for i in (ptx.find("ld.global"), len(ptx)) if i >= 0)
        seen[name] = {"waits": wait >= 0, "first": wait < read, "lets": "griddepcontrol.launch_dependents" in ptx}
print(json.dumps(seen))
"""
LETS_NEXT_START = {
    "dsv4_hc_prenorm_sum_kernel",
    "dsv4_topk_group_key_kernel",
    "dsv4_topk_list_kernel",
    "dsv4_sparse_mla_decode_kernel",
}
WAITS = {
    "dsv4_hc_prenorm_merge_kernel",
    "dsv4_topk_list_kernel",
    "dsv4_topk_gather_kernel",
    "dsv4_sparse_mla_merge_kernel",
}


@pytest.mark.parametrize("card", ["sm_90", "sm_120"])
def test_a_launch_that_overlaps_waits_before_it_reads(card: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "kernels"), str(ROOT / "tests" / "correctness"), env.get("PYTHONPATH", "")]
    )
    command = [sys.executable, "-c", COMPILE, card]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert {name for name, found in seen.items() if found["waits"]} == WAITS
    only_there = {"dsv4_sparse_mla_hopper_kernel"} if card == "sm_90" else set()
    assert {name for name, found in seen.items() if found["lets"]} == LETS_NEXT_START | only_there
    assert all(seen[name]["first"] for name in WAITS), seen


META = torch.device("meta")


def integers(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int32, device=META)


def select(card: Card) -> list[list[launches.Launch]]:
    calls = []
    for config in topk.TABLE[card.name]:
        for width in (1024, 262_144):
            with launches.recorded(topk) as log:
                scores, out = torch.empty(3, width, device=META), integers(3, config.max_k)
                arguments = (scores, integers(3), integers(3, width // 64), 64, config.max_k, out, None)
                topk._launch(replace(config, pdl=True), *arguments)
            calls.append(log)
    return calls


def mix(card: Card) -> list[list[launches.Launch]]:
    calls = []
    for config in hyper_connection.TABLE[card.name]:
        with launches.recorded(hyper_connection) as log:
            x, fn = torch.empty(3, 1024, dtype=torch.bfloat16, device=META), torch.empty(24, 1024, device=META)
            hyper_connection._launch(replace(config, pdl=True), x, fn, 1e-6, torch.empty(3, 24, device=META))
        calls.append(log)
    return calls


def decode(card: Card) -> list[list[launches.Launch]]:
    calls = []
    q = torch.empty(3, 1, 64, layout.HEAD_DIM, dtype=torch.bfloat16, device=META)
    for config in (each for each in configurations(card.name) if each.kernel == "triton"):
        for splits in (1, 4):
            with launches.recorded(sparse_mla) as log:
                cache, indices = layout.allocate(2, 64, META), integers(3, 1, 128)
                sparse_mla.launch(replace(config, pdl=True), splits, q, cache, indices, None, None, 1.0)
            calls.append(log)
    return calls


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
@pytest.mark.parametrize("kernel", [select, mix, decode], ids=lambda kernel: kernel.__name__)
def test_the_first_launch_of_a_call_is_an_ordinary_one_and_the_others_wait(kernel, card: Card) -> None:
    """What a call reads was written by kernels that are not ours: its first launch has to find them ended."""
    calls = kernel(card)
    assert any(len(log) > 1 for log in calls)
    for first, *others in calls:
        assert "launch_pdl" not in dict(first.keywords), f"{first.kernel} would start before its inputs are there"
        for launch in others:
            keywords = dict(launch.keywords)
            assert keywords["launch_pdl"], f"{launch.kernel} is launched as any other"
            assert keywords["PDL"], f"{launch.kernel} does not wait"
            assert launch.kernel in WAITS
