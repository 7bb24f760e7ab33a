"""What one sample asks of the server: a fixed number of requests of exact lengths at one concurrency."""

from __future__ import annotations

from dataclasses import dataclass

CLIENT_WARMUP_OUTPUT_CAP = 32
"""The serving benchmark client asks at most this many output tokens of its warm-up requests (``benchmark/serving.py``)."""


@dataclass(frozen=True)
class Plan:
    """One client run.

    ``concurrency`` requests are in flight at once, ``num_prompts`` in all, each of ``input_len`` prompt tokens and
    ``output_len`` generated tokens; ``warmup_requests`` more go before them, outside the timed window.
    """

    concurrency: int
    num_prompts: int
    input_len: int
    output_len: int
    warmup_requests: int = 1

    def __post_init__(self) -> None:
        for name in ("concurrency", "num_prompts", "input_len", "output_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"Plan.{name} must be at least 1, got {getattr(self, name)}")
        if self.warmup_requests < 0:
            raise ValueError(f"Plan.warmup_requests must not be negative, got {self.warmup_requests}")

    @property
    def requests(self) -> int:
        """Requests that the server sees: measured and warm-up."""
        return self.num_prompts + self.warmup_requests

    @property
    def output_tokens(self) -> int:
        """Tokens generated inside the timed window."""
        return self.num_prompts * self.output_len

    @property
    def input_tokens(self) -> int:
        """Prompt tokens inside the timed window."""
        return self.num_prompts * self.input_len

    @property
    def generated_with_warmup(self) -> int:
        """What ``generation_tokens_total`` grows by over one whole client run."""
        return self.output_tokens + self.warmup_requests * min(self.output_len, CLIENT_WARMUP_OUTPUT_CAP)

    @property
    def prompted_with_warmup(self) -> int:
        """What ``prompt_tokens_total`` grows by over one whole client run."""
        return self.requests * self.input_len
