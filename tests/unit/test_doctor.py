"""The doctor says what a machine can run, and for what it cannot, why and how to mend it."""

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from perfgate import doctor
from perfgate.doctor.collect import collect, parse_cards
from perfgate.doctor.diagnosis import HARNESS, blockers, ready, screen
from perfgate.doctor.facts import Card, Facts, RecipeFact, Seam

ROOT = Path(__file__).resolve().parents[2]
CPU = RecipeFact("cpu-tiny")
GPU = RecipeFact("v4mini-patched", device="cuda", patches=("topk",))
BIG = RecipeFact("v4-flash", device="cuda", gpus=4, model_path="/models/v4", model_there=False)
H200 = Card("NVIDIA H200", 139.8, "580.95", "sm_90", 700.0)
HERE = Facts(
    cpu="some CPU",
    cpus=2,
    memory_gib=24,
    disk_free_gib=70,
    python=(3, 11, 7),
    card_error="nvidia-smi is not on the path",
    packages={name: "1.0" for name in (*HARNESS, "sglang", "torch", "triton")},
    seams=(Seam("a.b"),),
    recipes=(CPU, GPU, BIG),
    hardware="cpu-some-2c",
)
THERE = replace(HERE, cards=(H200,), card_error="", hardware="1x-nvidia-h200")


def text(facts: Facts, recipe: str | None = None) -> str:
    return "\n".join(screen(facts, recipe))


def test_a_machine_without_a_gpu_runs_the_cpu_recipe_and_says_why_not_the_others():
    assert [r.name for r in HERE.recipes if not blockers(HERE, r)] == ["cpu-tiny"]
    assert "✓ cpu-tiny: runs, no baseline of this hardware: record one with --record" in text(HERE)
    assert "✗ v4mini-patched, v4-flash: no GPU: nvidia-smi is not on the path" in text(HERE)


def test_a_card_brings_its_recipes_and_is_shown():
    assert blockers(THERE, GPU) == []
    assert "GPU 0     NVIDIA H200, 140 GiB, power cap 700 W, driver 580.95" in text(THERE)


def test_too_few_cards_and_a_missing_checkpoint_are_both_named():
    assert [p.what for p in blockers(THERE, BIG)] == ["4 GPUs are needed, 1 are here", "no model at /models/v4"]


def test_a_stored_baseline_of_this_hardware_is_found_and_no_other():
    with_it = replace(THERE, baselines=frozenset({"v4mini-patched/1x-nvidia-h200.json"}))
    other = replace(THERE, baselines=frozenset({"v4mini-patched/8x-nvidia-h200.json"}))
    assert "runs, against baselines/v4mini-patched/1x-nvidia-h200.json" in text(with_it)
    assert "v4mini-patched: runs, no baseline of this hardware" in text(other)


def test_a_seam_that_moved_stops_the_patched_recipe_alone():
    moved = replace(THERE, seams=(Seam("a.b", "f is not defined in a.b"),))
    assert blockers(moved, CPU) == []
    assert [p.what for p in blockers(moved, GPU)] == ["seam a.b: f is not defined in a.b"]
    assert "0 of 1 seams" in text(moved)


def test_a_package_that_only_a_gpu_host_has_is_no_fault_of_a_machine_without_one():
    lacks = Seam("sgl_kernel.f", "cannot be resolved: ModuleNotFoundError: No module named 'sgl_kernel'")
    without, card = (replace(facts, seams=(Seam("a.b"), lacks)) for facts in (HERE, THERE))
    assert "1 of 2 seams are as expected; the packages of 1 are a GPU host's" in text(without)
    assert "✗ sgl_kernel" not in text(without)
    assert "✗ sgl_kernel.f: cannot be resolved" in text(card)
    assert blockers(card, GPU)


def test_many_recipes_that_stop_at_one_reason_are_counted_and_a_checkpoint_is_asked_for_once():
    long = replace(BIG, name="v4-flash-long")
    many = tuple(replace(GPU, name=f"v4mini-step{i}") for i in range(20))
    said = text(replace(HERE, recipes=(CPU, BIG, long, *many)))
    assert "✗ v4-flash, v4-flash-long, v4mini-step0, v4mini-step1, v4mini-step2 and 17 more: no GPU" in said
    assert said.count("no model at /models/v4") == 1


def test_a_plug_in_that_cannot_be_checked_is_not_taken_for_a_good_one():
    assert blockers(replace(THERE, seams=(), seam_error="ImportError: x"), GPU)
    assert blockers(replace(THERE, seams=()), GPU)


@pytest.mark.parametrize("name", ["sglang", "torch", "pydantic"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(name):
    lacking = replace(HERE, packages={**HERE.packages, name: None})
    assert any(name in p.what and "tox -e doctor" in p.mend for p in blockers(lacking, CPU))
    assert not ready(lacking, "cpu-tiny", strict=False)


def test_the_doctor_asks_for_all_that_the_suite_requires():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(HARNESS) == sorted(re.split("[<>=]", line)[0] for line in project["dependencies"])


def test_an_old_python_is_named():
    assert "Python 3.10.1, at least 3.11 is needed" in text(replace(HERE, python=(3, 10, 1)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cards": (replace(H200, processes=("4711 python",)),)}, "GPU 0 is in use by 4711 python"),
        ({"cards": (replace(H200, throttled="clock event reasons 0x40"),)}, "throttled"),
        ({"lock_holder": "/x/measure.lock"}, "a run is measuring on this host"),
        ({"disk_free_gib": 3.0}, "3.0 GiB of disk are free"),
    ],
)
def test_a_machine_that_is_not_idle_is_ready_but_not_strictly(change, said):
    busy = replace(THERE, **change)
    assert said in text(busy)
    assert ready(busy, "v4mini-patched", strict=False)
    assert not ready(busy, "v4mini-patched", strict=True)
    assert ready(THERE, "v4mini-patched", strict=True)


def test_a_shell_whose_compile_caches_no_server_follows_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/scratch")
    assert "caches    a server's are where its recipe's jit_caches say" in text(collect(tmp_path))
    assert "TRITON_CACHE_DIR" in text(collect(tmp_path))
    assert "caches " not in text(HERE)


def test_an_unknown_recipe_is_an_error_that_lists_the_known_ones():
    assert not ready(HERE, "cpu-tny", strict=False)
    assert "choose one of: cpu-tiny, v4mini-patched, v4-flash" in text(HERE, "cpu-tny")
    many = replace(HERE, recipes=tuple(replace(GPU, name=f"v4mini-step{i}") for i in range(20)))
    assert max(map(len, screen(many, "cpu-tny"))) <= 120


def test_a_recipe_that_cannot_be_read_is_named_with_its_error(tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "bad.toml").write_text("device = ")
    found = collect(tmp_path)
    assert [r.name for r in found.recipes] == ["bad"]
    assert "TOMLDecodeError" in found.recipes[0].error
    assert "recipes/bad.toml" in text(found)


def test_the_screen_stays_one_screen():
    many = replace(HERE, recipes=tuple(replace(GPU, name=f"v4mini-step{i}") for i in range(20)))
    lines = screen(many)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 120


def test_nvidia_smis_rows_become_cards():
    row = ["NVIDIA H200", "143771", "580.95", "700.00", "0x0000000000000040", "GPU-1", "9.0"]
    card = parse_cards([row], [["GPU-1", "12", "python"], ["GPU-2", "13", "other"]])[0]
    assert (card.memory_gib, card.power_w, card.arch) == (pytest.approx(140.4, abs=0.01), 700.0, "sm_90")
    assert card.processes == ("12 python",)
    assert "0x0000000000000040" in card.throttled
    idle = parse_cards([["N", "1024", "5", "[N/A]", "0x0000000000000001", "GPU-3", "12.0"]], [])[0]
    assert (idle.power_w, idle.throttled, idle.arch) == (None, "", "sm_120")


def test_the_command_runs_where_nothing_is_installed(tmp_path):
    """-S and -I leave out every installed package: what a bare machine has."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from perfgate.__main__ import main; sys.exit(main(['doctor']))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "not installed" in done.stdout
    assert done.stderr == ""


def test_the_exit_code_tells_whether_the_recipe_can_run(tmp_path, capsys):
    (tmp_path / "recipes").mkdir()
    assert doctor.main(["--root", str(tmp_path), "--recipe", "none"]) == 1
    assert "no recipe none" in capsys.readouterr().out
