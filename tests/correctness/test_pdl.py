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
