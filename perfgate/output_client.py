"""Runs the output check's steps on a live SGLang server over HTTP (edge)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from perfgate.output_check import Run, Step
from perfgate.server import http

TOP = 8
"""Tokens ranked a step; what the reference's token has is asked for by its id."""

Prompts = Sequence[Sequence[int]]


class OutputCheckError(RuntimeError):
    """The server refused or answered in another form."""


def free_run(
    base_url: str, prompts: Prompts, steps: int, together: bool = True, timeout: float = 300.0
) -> list[list[Step]]:
    """Greedy decode of ``steps`` tokens from each prompt's ids, all prompts in one batch or one after the other.

    Raises OutputCheckError.
    """
    if together:
        return _generate(base_url, prompts, [steps] * len(prompts), timeout)
    return [_generate(base_url, [prompt], [steps], timeout)[0] for prompt in prompts]


def forced_run(
    base_url: str,
    prompts: Prompts,
    reference: Run,
    together: bool = True,
    timeout: float = 300.0,
    every: int | None = None,
) -> list[list[Step]]:
    """The server's steps along the reference's tokens, each with its log-probability of all of them. Raises OutputCheckError.

    SGLang has no way to force a token into a decode step, and scoring a finished text would go through prefill, past
    the decode kernels. So the server decodes freely for as long as it agrees; where it chooses another token, decoding
    starts again from the prompt with the reference's tokens up to there (that one step comes out of a prefill). ``every``
    starts it again after so many steps as well.
    """
    done: list[list[Step]] = [[] for _ in prompts]
    open_prompts = [i for i in range(len(prompts)) if reference[i]]
    while open_prompts:
        batch = open_prompts if together else open_prompts[:1]
        inputs = [[*prompts[i], *(s.token for s in reference[i][: len(done[i])])] for i in batch]
        lengths = [min(len(reference[i]) - len(done[i]), every or len(reference[i])) for i in batch]
        wanted = [sorted({step.token for step in reference[i]}) for i in batch]
        for i, steps in zip(batch, _generate(base_url, inputs, lengths, timeout, wanted), strict=True):
            again = bool(done[i])
            for step in steps:
                token = reference[i][len(done[i])].token
                done[i].append(dataclasses.replace(step, restarted=again))
                if step.token != token:
                    break
        open_prompts = [i for i in open_prompts if len(done[i]) < len(reference[i])]
    return done


def _generate(
    base_url: str,
    inputs: Sequence[Sequence[int]],
    lengths: Sequence[int],
    timeout: float,
    wanted: Sequence[Sequence[int]] | None = None,
) -> list[list[Step]]:
    body = {
        "input_ids": [list(ids) for ids in inputs],
        "sampling_params": [{"temperature": 0, "max_new_tokens": n, "ignore_eos": True} for n in lengths],
        "return_logprob": True,
        "logprob_start_len": -1,
        "top_logprobs_num": TOP,
        "stream": False,
    }
    if wanted is not None:
        body["token_ids_logprob"] = [list(ids) for ids in wanted]
    answers = _post(f"{base_url}/generate", body, timeout)
    if not isinstance(answers, list) or len(answers) != len(inputs):
        raise OutputCheckError(f"{base_url}/generate gave {_short(answers)} for {len(inputs)} prompts")
    ids = wanted if wanted is not None else [()] * len(inputs)
    return [_steps(answer, n, tokens) for answer, n, tokens in zip(answers, lengths, ids, strict=True)]


def _steps(answer: Any, count: int, wanted: Sequence[int]) -> list[Step]:
    try:
        meta = answer["meta_info"]
        chosen = [int(row[1]) for row in meta["output_token_logprobs"]]
        ranked = [_pairs(rows) for rows in meta["output_top_logprobs"]]
        asked = [_pairs(rows) for rows in meta["output_token_ids_logprobs"]] if wanted else [[] for _ in chosen]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise OutputCheckError(
            f"an answer of /generate lacks log-probabilities: {error!r} in {_short(answer)}"
        ) from None
    if not len(chosen) == len(ranked) == len(asked) == count:
        raise OutputCheckError(f"asked for {count} tokens, got {len(chosen)}: {_short(meta.get('finish_reason'))}")
    steps = []
    for place, (token, rows, others) in enumerate(zip(chosen, ranked, asked, strict=True)):
        if any(math.isnan(value) for _, value in (*rows, *others)):
            raise OutputCheckError(f"the server's log-probabilities are NaN at token {token}")
        if missing := set(wanted) - {one for one, _ in others}:
            raise OutputCheckError(
                f"an answer of /generate lacks the log-probabilities of {len(missing)} tokens asked for"
            )
        # Equal scores come in any order: the token that was really chosen goes first.
        ordered = sorted(rows, key=lambda row: (-row[1], row[0] != token))
        steps.append(Step(tuple(ordered), tuple(others), decoded=place > 0))
    return steps


def _pairs(rows: Any) -> list[tuple[int, float]]:
    return [(int(row[1]), float(row[0])) for row in rows]


def _post(url: str, body: dict[str, Any], timeout: float) -> Any:
    try:
        return json.loads(http.post_json(url, body, timeout))
    except http.ServerHttpError as error:
        what = "cannot be reached" if error.status is None else f"answered {error.status}"
        raise OutputCheckError(f"{url} {what}: {error}") from None
    except json.JSONDecodeError as error:
        raise OutputCheckError(f"{url} answers no JSON: {error}") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
