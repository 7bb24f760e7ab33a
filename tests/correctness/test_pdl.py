"""Launches that overlap (programmatic dependent launch), compiled for both cards: each waits before it reads anything.

No table asks for them yet. Their results need no proof of their own: kernels and order are those of the ordinary launches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# In a process of its own: this one's Triton interprets.
COMPILE = """
import json, sys
from dataclasses import replace
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from dsv4_kernels import hyper_connection, sparse_mla, sparse_mla_table, topk
from dsv4_kernels.card import CARDS
card = next(card for card in CARDS if card.name == sys.argv[1])
for table in (hyper_connection.TABLE, topk.TABLE):
    table[card.name] = tuple(replace(config, pdl=True) for config in table[card.name])
rules = sparse_mla_table.TABLE[card.name]
portable = [r for r in rules if r.config.kernel == "triton"]
sparse_mla_table.TABLE[card.name] = tuple(replace(r, config=replace(r.config, pdl=True)) for r in portable)
seen = {}
for module in (hyper_connection, topk, sparse_mla):
    for case in module.compile_cases(card):
        name = case.kernel.__name__ + ("-unsplit" if case.constexprs.get("SPLIT") is False else "")
        name += "-direct" if case.constexprs.get("NARROWED") is False else ""
        name += "-fused" if case.constexprs.get("FUSED") else ""
        if name in seen:
            continue
        attributes = {(case.kernel.arg_names.index(n),): [["tt.divisibility", 16]] for n in case.aligned}
        source = ASTSource(case.kernel, dict(case.signature), dict(case.constexprs), attributes)
        options = {"num_warps": case.num_warps, "num_stages": case.num_stages}
        ptx = triton.compile(source, target=GPUTarget("cuda", card.capability, 32), options=options).asm["ptx"]
        wait, read = ptx.find("griddepcontrol.wait"), min(i for i in (ptx.find("ld.global"), len(ptx)) if i >= 0)
        seen[name] = {"waits": wait >= 0, "first": wait < read, "lets": "griddepcontrol.launch_dependents" in ptx}
print(json.dumps(seen))
"""
LETS_NEXT_START = {
    "dsv4_hc_prenorm_sum_kernel",
    "dsv4_topk_group_max_kernel",
    "dsv4_topk_floor_kernel",
    "dsv4_topk_narrow_kernel",
    "dsv4_sparse_mla_decode_kernel",
}
WAITS = {
    "dsv4_hc_prenorm_merge_kernel",
    "dsv4_topk_floor_kernel",
    "dsv4_topk_narrow_kernel",
    "dsv4_topk_select_kernel",
    "dsv4_sparse_mla_merge_kernel",
}


@pytest.mark.parametrize("card", ["sm_90", "sm_120"])
def test_a_launch_that_overlaps_waits_before_it_reads(card: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "kernels"), env.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", COMPILE, card]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert {name for name, found in seen.items() if found["waits"]} == WAITS
    assert {name for name, found in seen.items() if found["lets"]} == LETS_NEXT_START
    assert all(seen[name]["first"] for name in WAITS), seen
