"""Starts the fake server and the preloaded client, and runs one against the other."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import requests
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from perfgate.workload import Plan
from tests.fake.server import Behaviour

HERE = Path(__file__).parent


def write_tokenizer(folder: Path, words: int = 20_000) -> Path:
    """Write a tokenizer whose token n is the word "tn", as files that transformers' AutoTokenizer loads."""
    tokenizer = Tokenizer(WordLevel({f"t{n}": n for n in range(words)}, unk_token="t0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": words}))
    return folder


class Running:
    """A fake server in its own process."""

    def __init__(self, behaviour: Behaviour, log: Path) -> None:
        self.log_path = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "server.py"), json.dumps(asdict(behaviour))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
            )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"

    @property
    def log(self) -> str:
        """The log so far."""
        return self.log_path.read_text()

    def counters(self) -> dict[str, float]:
        """The counters of ``/metrics`` by bare name."""
        lines = requests.get(f"{self.url}/metrics", timeout=5).text.splitlines()
        return {line.split("{")[0].removeprefix("sglang:"): float(line.rsplit(" ", 1)[1]) for line in lines}

    def stop(self) -> None:
        """End the process, and wait until it is gone."""
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def serving(behaviour: Behaviour, folder: Path) -> Iterator[Running]:
    """Run a fake server for the time of a block."""
    server = Running(behaviour, folder / "server.log")
    try:
        yield server
    finally:
        server.stop()


@dataclass(frozen=True)
class Ran:
    """One client run: exit code (124 at its deadline), what it printed, and the result lines that it added."""

    exit_code: int
    output: str
    lines: tuple[str, ...]


class Client:
    """SGLang's client, imported once in a process of its own."""

    def __init__(self, tokenizer: Path) -> None:
        self.tokenizer = tokenizer
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "client.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", "SGLang's client could not be imported"

    def run(
        self,
        url: str,
        plan: Plan,
        folder: Path,
        seconds: float = 30.0,
        seed: int = 1,
        tokenizer: str = "",
        flush: bool = True,
    ) -> Ran:
        """Run one plan against a URL and collect what came of it; ``flush`` empties the cache after the warm-up."""
        results, log = folder / "result.jsonl", folder / "client.txt"
        before = results.read_text().splitlines() if results.exists() else []
        argv = ["--backend", "sglang", "--base-url", url, "--model", str(self.tokenizer)]
        argv += ["--tokenizer", str(tokenizer or self.tokenizer), "--dataset-name", "random-ids"]
        argv += ["--tokenize-prompt", "--random-range-ratio", "1", "--ready-check-timeout-sec", "2", "--output-details"]
        options = {
            "random-input-len": plan.input_len,
            "random-output-len": plan.output_len,
            "num-prompts": plan.num_prompts,
            "max-concurrency": plan.concurrency,
            "warmup-requests": plan.warmup_requests,
            "seed": seed,
            "output-file": results,
        }
        argv += [text for name, value in options.items() for text in (f"--{name}", str(value))]
        argv += ["--flush-cache"] if flush else []
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"argv": argv, "log": str(log), "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        after = results.read_text().splitlines() if results.exists() else []
        return Ran(code, log.read_bytes().decode(errors="replace"), tuple(after[len(before) :]))

    def stop(self) -> None:
        """End the process, and wait until it is gone."""
        self.process.kill()
        self.process.communicate()
