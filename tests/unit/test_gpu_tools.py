"""The scripts of the first look on a GPU: what they start, how they stop it, what they keep."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "gpu"))

import make_entry_point
import server_steps as steps

from perfgate import jit_caches, recipe

REPOSITORY = Path(__file__).parents[2]
RECIPE = {
    "server": {"args": {"tp_size": 2, "enable_metrics": True, "disable_radix_cache": False}, "env": {"A": "recipe"}},
    "patch": {"patches": ["topk", "indexer"], "fallback": ["sparse_mla"]},
}


def test_arguments_become_flags():
    assert steps.flags(RECIPE) == ["--tp-size", "2", "--enable-metrics"]


def test_the_recipes_environment_goes_over_the_callers_whose_sglang_settings_do_not_leak(monkeypatch, tmp_path):
    monkeypatch.setenv("A", "caller")
    monkeypatch.setenv("SGLANG_OPT_USE_TOPK_V2", "1")
    monkeypatch.setenv("DSV4_BROKEN", "topk")
    monkeypatch.setenv("PYTHONPATH", "/site")
    env = steps.environment(RECIPE, ["/checkout", "/checkout/kernels"], tmp_path / "counts")
    assert env["A"] == "recipe"
    assert not {"SGLANG_OPT_USE_TOPK_V2", "DSV4_BROKEN"} & env.keys()
    assert env["PYTHONPATH"].split(os.pathsep) == ["/checkout", "/checkout/kernels", "/site"]
    assert (env["DSV4_PATCHES"], env["DSV4_FALLBACK"]) == ("topk,indexer", "sparse_mla")
    assert env["DSV4_COUNTS_FILE"] == str(tmp_path / "counts")


STUB = """
import os, subprocess, sys, time
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", stubborn])
print("child", child.pid, flush=True)
if "--tp-size" in sys.argv:
    raise SystemExit(3)
time.sleep(0.5)
print({ready!r}, flush=True)
time.sleep(60)
"""


@pytest.fixture
def stub(tmp_path):
    package = tmp_path / "stub" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(STUB.format(ready=steps.READY))
    return os.environ | {"PYTHONPATH": str(package.parent)}


def child_of(log):
    return int(log.read_text().split("child ")[1].split()[0])


def gone(pid):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.timeout(60)
def test_a_server_is_ready_by_its_log_and_its_whole_session_is_ended(stub, tmp_path):
    log = tmp_path / "server.log"
    server = steps.Server({"server": {"args": {}}}, tmp_path, 1, log, stub)
    try:
        server.wait_ready(time.monotonic() + 30)
    finally:
        server.stop(seconds=1)
    assert gone(child_of(log)), "a child that ignores SIGTERM was left behind"


@pytest.mark.timeout(60)
def test_a_server_that_ends_before_it_is_ready_is_told_with_its_exit_code(stub, tmp_path):
    server = steps.Server(RECIPE, tmp_path, 1, tmp_path / "server.log", stub)
    with pytest.raises(steps.StepFailed, match="ended with 3"):
        server.wait_ready(time.monotonic() + 30)
    server.stop(seconds=1)
    assert gone(child_of(tmp_path / "server.log"))


def test_compiled_kernels_are_kept_and_put_back(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "old"))
    kept = tmp_path / "old" / ".tilelang" / "cache" / "kernel.so"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"compiled")
    steps.pack_caches(tmp_path / "caches.txz")
    monkeypatch.setenv("HOME", str(tmp_path / "new"))
    (tmp_path / "new").mkdir()
    steps.restore_caches(tmp_path / "caches.txz")
    assert (tmp_path / "new" / ".tilelang" / "cache" / "kernel.so").read_bytes() == b"compiled"


def test_the_first_looks_servers_keep_their_kernels_where_the_recipe_says(monkeypatch, tmp_path):
    for name in jit_caches.VARIABLES:
        monkeypatch.setenv(name, "/scratch")
    monkeypatch.setenv("HOME", str(tmp_path))
    env = steps.environment(RECIPE, [], tmp_path / "counts")
    assert env["TRITON_CACHE_DIR"] == str(tmp_path / ".triton" / "cache")
    assert "/scratch" not in env.values()


def test_the_scripts_know_the_same_compile_caches_as_the_gate():
    lists = "source tools/gpu/jit_caches.sh; echo ${jit_folders[@]}; echo ${jit_variables[@]}"
    done = subprocess.run(["bash", "-c", lists], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    folders, variables = done.stdout.splitlines()
    assert sorted(folders.split()) == sorted(steps.CACHES)
    assert sorted(variables.split()) == sorted(jit_caches.VARIABLES)


@pytest.mark.timeout(60)
def test_what_one_home_compiled_is_packed_for_the_next(tmp_path):
    for name in (
        ".triton/cache/AB/kernel.cubin",
        ".cache/torchinductor/ab/graph.py",
        ".cache/sglang/of_this_machine.json",
    ):
        (tmp_path / "home" / name).parent.mkdir(parents=True)
        (tmp_path / "home" / name).write_bytes(b"compiled")
    pack = f"source tools/gpu/jit_caches.sh; pack_jit {tmp_path}/home -cf {tmp_path}/kept.tar; pack_jit {tmp_path}/none -cf none"
    subprocess.run(["bash", "-c", pack], cwd=REPOSITORY, timeout=60, check=True)
    with tarfile.open(tmp_path / "kept.tar") as kept:
        names = {name for name in kept.getnames() if "." in Path(name).name[1:]}
    assert names == {".triton/cache/AB/kernel.cubin", ".cache/torchinductor/ab/graph.py"}


def test_the_entry_points_of_pyproject_are_found_without_an_installation(tmp_path):
    make_entry_point.make_entry_point(tmp_path, REPOSITORY / "pyproject.toml")
    code = "import importlib.metadata as m; print([e.value for e in m.entry_points(group='sglang.srt.plugins')])"
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert "dsv4_kernels.sglang_plugin:register" in done.stdout


def test_the_first_look_explains_itself_without_a_gpu():
    script = REPOSITORY / "tools" / "gpu" / "serve_v4mini.py"
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--output-check" in done.stdout


def test_two_gates_in_homes_of_their_own_share_the_host_and_no_cache(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -m ] && env && echo "asked $*"; exit 0\n')
    python.chmod(0o755)
    shared = dict.fromkeys(("XDG_CACHE_HOME", "PERFGATE_CACHE", *jit_caches.VARIABLES), "/everyone")
    env = os.environ | shared | {"PYTHON": str(python), "PYTHONPATH": "/site"}
    command = [REPOSITORY / "tools/gpu/gate.sh", tmp_path / "home", "1", "v4mini-stock", "--samples", "5"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert not shared.keys() & seen.keys()
    assert (seen["HOME"], seen["CUDA_VISIBLE_DEVICES"]) == (str(tmp_path / "home"), "1")
    assert seen["PERFGATE_SHARE_HOST"] == "1"
    assert seen["PYTHONPATH"].endswith(":/site")
    assert done.stdout.splitlines()[-1].endswith("--recipe v4mini-stock --samples 5")


def test_a_campaign_that_is_out_of_time_waits_for_the_server_to_stop_and_the_report_to_be_written():
    text = (REPOSITORY / "tools/gpu/campaign.sh").read_text()
    (patience,) = map(float, re.findall(r"--kill-after=(\d+)", text))
    stops = [recipe.load(path).limits.stop_seconds for path in (REPOSITORY / "recipes").glob("v4mini-*.toml")]
    assert stops
    assert patience >= max(stops) + 10


def test_a_second_campaign_into_the_same_folder_keeps_what_the_first_recorded(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        '[ "$1" = -m ] || exit 0\n'
        "while [ $# -gt 0 ]; do case $1 in --recipe) recipe=$2;; --baselines) kept=$2;; --report) report=$2;; esac; shift; done\n"
        'echo "has $(ls "$kept/$recipe")"\n'
        'mkdir -p "$kept/$recipe" && echo {} >"$kept/$recipe/1x-nvidia-h200.json" && echo {} >"$report/result.json"\n'
    )
    python.chmod(0o755)
    env = os.environ | {"PYTHON": str(python), "HOMES": str(tmp_path / "home")}
    out = tmp_path / "out"
    for name in ("v4mini-patched", "v4mini-stock"):
        command = [REPOSITORY / "tools/gpu/campaign.sh", out, "100", "0", name]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(out / "baselines-gpu0.tar") as kept:
        names = {Path(name).parent.name for name in kept.getnames() if name.endswith(".json")}
    assert names == {"v4mini-patched", "v4mini-stock"}
    with tarfile.open(out / "gpu0.tar") as results:
        assert {"01-v4mini-patched/result.json", "01-v4mini-stock/result.json"} <= set(results.getnames())
        said = results.extractfile("01-v4mini-patched/pytest.txt").read().decode()
    assert "has 1x-nvidia-h200.json" in said, "what the checkout's baseline holds would be lost by recording"


@pytest.mark.timeout(120)
def test_the_full_campaign_runs_every_row_of_both_gpus_in_the_background(tmp_path):
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\necho "commit $PERFGATE_COMMIT, args $*"\n')
    python.chmod(0o755)
    script, folder, back = REPOSITORY / "tools/gpu/full_campaign.sh", tmp_path / "all", tmp_path / "back"
    env = os.environ | {"PYTHON": str(python), "HOMES": str(tmp_path / "home"), "EVERY": "0.2"}
    asked = [[script, "launch", folder, "900", "abc"], [script, "poll", folder, "60", back]]
    done = [subprocess.run(one, env=env, capture_output=True, text=True, timeout=90, check=True) for one in asked]
    assert "lists done: 3 of 3" in done[1].stdout
    rows = set(re.findall(r"v4mini-[\w-]+(?=: exit 0)", done[1].stdout))
    steps = {"v4mini-step1-1m", "v4mini-step2-1m", "v4mini-step3-1m"}
    both = {f"v4mini-{kind}{context}" for kind in ("stock", "patched", "fallback") for context in ("", "-1m")}
    assert rows == steps | both | {
        "v4mini-missing-c64",
        "v4mini-patched-long",
        "v4mini-answers-patched",
        "v4mini-broken",
    }
    assert {path.stem for path in (REPOSITORY / "recipes").glob("*.toml")} >= rows
    with tarfile.open(back / "all.tgz") as kept:
        assert any(name.endswith("kernelbench.txt") for name in kept.getnames())
        said = kept.extractfile("./gpu0.tar").read()
        outputs = kept.extractfile("./outputs-v4mini-broken/printed.txt").read()
        order = kept.extractfile("./list1.txt").read().decode()
    assert said.count(b"commit abc, args -m pytest tests/perf") == 6
    assert b"-m perfgate output --recipe v4mini-broken --against v4mini-answers-stock" in outputs
    begun = re.findall(r"^(outputs of v4mini-broken|01-v4mini-missing-c64|01-v4mini-stock): exit", order, re.MULTILINE)
    assert begun == ["outputs of v4mini-broken", "01-v4mini-missing-c64", "01-v4mini-stock"]
    assert b"--samples 5 --starts 3 --record" in said
    assert b"--samples 3 --record" in said


@pytest.mark.timeout(120)
def test_a_list_that_is_empty_on_purpose_runs_nothing(tmp_path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    script, folder = REPOSITORY / "tools/gpu/full_campaign.sh", tmp_path / "all"
    env = os.environ | {"PYTHON": str(python), "HOMES": str(tmp_path / "home"), "EVERY": "0.2"}
    env |= {"ROWS0": "", "ROWS1": "parts", "ROWS2": ""}
    for asked in ([script, "launch", folder, "900"], [script, "poll", folder, "60", tmp_path / "back"]):
        done = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=90, check=True)
    assert "lists done: 3 of 3" in done.stdout
    assert "v4mini" not in done.stdout
    assert (folder / "out" / "parts.txt").exists()


OUTCOME = """#!/bin/sh
[ "$1" = -m ] || exit 0
while [ $# -gt 0 ]; do case $1 in --recipe) recipe=$2;; --report) report=$2;; esac; shift; done
case $recipe in crashes) exit 1;; esac
printf '{\\n "name": "answers",\\n "outcome": "%s",\\n "evidence": [\\n  "outcome: PASS"\\n ]\\n}\\n' "$recipe" >"$report/output.json"
[ "$recipe" = PASS ]
"""


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ("PASS", 0, "PASS, as it has to be"),
        ("INVALID", 1, "INVALID, and not PASS"),
        ("INVALID=INVALID", 0, "INVALID, as it has to be"),
        ("MISSING=INVALID", 1, "MISSING, and not INVALID"),
        ("INCONCLUSIVE=INVALID", 1, "INCONCLUSIVE, and not INVALID"),
        ("PASS=INVALID", 1, "PASS, and not INVALID"),
        ("crashes=INVALID", 1, "no outcome, and not INVALID"),
    ],
)
def test_a_recipe_that_is_wrong_on_purpose_is_caught_by_the_outcome_and_not_by_any_failure(tmp_path, asked, code, said):
    python = tmp_path / "python3"
    python.write_text(OUTCOME)
    python.chmod(0o755)
    env = os.environ | {"PYTHON": str(python), "HOMES": str(tmp_path / "home")}
    recipe_name, out = asked.split("=")[0], tmp_path / "out"
    (out / f"outputs-{recipe_name}").mkdir(parents=True)
    (out / f"outputs-{recipe_name}" / "output.json").write_text('{\n "outcome": "INVALID",\n}')  # an earlier run's
    command = [REPOSITORY / "tools/gpu/outputs.sh", out, "100", "0", "reference", asked]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    (line,) = (out / "outputs.txt").read_text().splitlines()
    assert re.fullmatch(rf"outputs of {recipe_name}: exit \d after \d+ s: {said}", line)


@pytest.mark.timeout(120)
def test_on_a_host_with_one_gpu_that_one_runs_both_lists(tmp_path):
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name, text in (
        ("python3", 'echo "gpu $CUDA_VISIBLE_DEVICES"'),
        ("nvidia-smi", 'echo "GPU 0: NVIDIA H200 (UUID: x)"'),
    ):
        (fakes / name).write_text(f"#!/bin/sh\n{text}\n")
        (fakes / name).chmod(0o755)
    script, folder = REPOSITORY / "tools/gpu/full_campaign.sh", tmp_path / "all"
    env = os.environ | {"PYTHON": str(fakes / "python3"), "HOMES": str(tmp_path / "home"), "EVERY": "0.2"}
    env |= {
        "PATH": f"{fakes}:{os.environ['PATH']}",
        "ROWS0": "kernelbench",
        "ROWS1": "kernelbench2 v4mini-stock",
        "ROWS2": "",
    }
    for asked in ([script, "launch", folder, "900"], [script, "poll", folder, "60", tmp_path / "back"]):
        done = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=90, check=True)
    assert "lists done: 3 of 3" in done.stdout
    out = folder / "out"
    assert (out / "gpu0.txt").read_text().startswith("01-v4mini-stock: exit 0")
    assert not (out / "gpu1.txt").exists()
    assert "gpu 0" in (out / "prewarm.txt").read_text()
    assert (out / "kernelbench.txt").exists()
    assert (out / "kernelbench2.txt").exists()


@pytest.mark.timeout(120)
def test_the_full_campaign_runs_the_rows_that_are_asked_for(tmp_path):
    python = tmp_path / "python3"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\necho "home $HOME gpu $CUDA_VISIBLE_DEVICES, args $*"\n'
    )
    python.chmod(0o755)
    script, folder, back = REPOSITORY / "tools/gpu/full_campaign.sh", tmp_path / "all", tmp_path / "back"
    env = os.environ | {"PYTHON": str(python), "HOMES": str(tmp_path / "home"), "EVERY": "0.2"}
    env |= {
        "ROWS0": "abeval:v4mini-fallback gluon outputs:v4mini-broken=INVALID",
        "ROWS1": "v4mini-stock:2 missing v4mini-patched-deep:5:3:1,16",
        "ROWS2": "v4mini-stock-tp2",
    }
    for asked in ([script, "launch", folder, "900"], [script, "poll", folder, "60", back]):
        done = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=90, check=True)
    assert "lists done: 3 of 3" in done.stdout
    with tarfile.open(back / "all.tgz") as kept:
        evaluated = kept.extractfile("./abeval.txt").read().decode()
        gluon = kept.extractfile("./gluon.txt").read().decode()
        gates = kept.extractfile("./gpu1.tar").read().decode(errors="replace")
        both = kept.extractfile("./gpu0-1.tar").read().decode(errors="replace")
    assert f"home {tmp_path}/home-0 gpu 0, args tests/evaluation/real/command.py" in evaluated
    assert "--recipe recipes/v4mini-fallback.toml" in evaluated
    assert "gluon_mla_check.py" in gluon
    assert re.findall(r"^outputs of (\S+): .* not (\w+)$", done.stdout, re.MULTILINE)[0] == ("v4mini-broken", "INVALID")
    assert "outputs of v4mini-answers-patched" not in done.stdout
    assert "--samples 2 --record" in gates
    assert "--recipe v4mini-missing-c64 --samples 2 --concurrency 1,64" in gates
    assert "--recipe v4mini-patched-deep --samples 5 --starts 3 --concurrency 1,16 --record" in gates
    assert f"home {tmp_path}/home-0-1 gpu 0,1, args -m pytest" in both
    assert (tmp_path / "home-0-1").samefile(tmp_path / "home-0"), "the caches that the first GPU's rows left"
    assert "--recipe v4mini-stock-tp2" in both
    order = [line.split(":")[0] for line in done.stdout.splitlines() if re.match(r"\d\d-v4mini", line)]
    assert order[-1] == "01-v4mini-stock-tp2", "it needs both GPUs for itself"
