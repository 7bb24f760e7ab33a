"""What a start of the server says about itself in passing: sizes, limits, captured graphs, plug-ins."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_INTS = re.compile(
    r"\b(max_total_num_tokens|chunked_prefill_size|max_running_requests|context_len(?:gth)?|watchdog_timeout"
    r"|cuda_graph_max_bs(?:_decode)?|max_prefill_tokens|dp_size)=(\d{1,18})\b"
)
_FRACTION = re.compile(r"\bmem[_-]fraction[_-]static=(0?\.\d{1,6}|1\.0)\b")
_NO_GRAPHS = re.compile(r"\bdisable_(?:decode_)?cuda_graph=True\b")
_MOE = re.compile(r"\bmoe_runner_backend='?(\w{1,40})")
_GRAPHS = re.compile(r"(?:\bbs=|graph bs )\[([\d, ]{1,4000})\]")
_GRAPH = re.compile(r"Capturing batches \((?:num_tokens|bs)=(\d{1,7})\b")
_PLUGIN = re.compile(r"(Loaded plugin|Executed general plugin:) (\S{1,200})")
_JIT = re.compile(r"JIT Pre-Comp|DeepGEMM JIT Compil")


@dataclass
class Facts:
    """Collected while a log is read. Sizes in tokens; a name that the log never gave is absent."""

    numbers: dict[str, int] = field(default_factory=dict)
    fractions: list[float] = field(default_factory=list)
    graph_sizes: set[int] = field(default_factory=set)
    moe_runner_backend: str | None = None
    plugins_loaded: dict[str, str] = field(default_factory=dict)
    plugins_executed: set[str] = field(default_factory=set)
    no_graphs: bool = False
    jit_line: str | None = None
    jit_line_no: int = 0

    def take(self, number: int, text: str) -> None:
        """Read one line's facts. The last to name a number wins: resolved values are printed after asked ones."""
        if "=" in text:
            for name, value in _INTS.findall(text):
                self.numbers["context_len" if name.startswith("context_len") else name] = int(value)
            for value in _FRACTION.findall(text)[:4]:
                if float(value) not in self.fractions and len(self.fractions) < 32:
                    self.fractions.append(float(value))
            self.no_graphs |= _NO_GRAPHS.search(text) is not None
            if moe := _MOE.search(text):
                self.moe_runner_backend = moe.group(1)
        if "raph" in text and "draft" not in text and (sizes := _GRAPHS.search(text)):
            self.graph_sizes.update(int(n) for n in sizes.group(1).replace(" ", "").split(",") if n)
        elif one := _GRAPH.search(text):
            self.graph_sizes.add(int(one.group(1)))
        if "lugin" in text and (plugin := _PLUGIN.search(text)):
            if plugin.group(1).startswith("Loaded"):
                self.plugins_loaded.setdefault(plugin.group(2), text)
            else:
                self.plugins_executed.add(plugin.group(2))
        if "JIT" in text and _JIT.search(text):
            self.jit_line, self.jit_line_no = text, number

    @property
    def largest_graph(self) -> int | None:
        """The largest decode batch with a captured graph, from the capture's own lines or else the arguments."""
        if self.graph_sizes:
            return max(self.graph_sizes)
        if self.no_graphs:
            return None
        return self.numbers.get("cuda_graph_max_bs_decode") or self.numbers.get("cuda_graph_max_bs")

    def on_one_rank(self, concurrency: int) -> int:
        """Of so many requests in flight, those that one data-parallel rank runs at once; the others wait in its queue."""
        share = -(-concurrency // max(1, self.numbers.get("dp_size", 1)))
        return min(share, self.numbers.get("max_running_requests", share))
