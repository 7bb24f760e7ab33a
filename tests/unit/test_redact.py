"""Redaction: a planted secret never survives, and what a reader needs does."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfgate.redact import MARK, is_secret_name, redact, redact_text

SECRET_NAMES = [
    *(
        "api_key",
        "admin_api_key",
        "API-KEY",
        "hf_token",
        "HF_TOKEN",
        "ssl_keyfile",
        "ssl_keyfile_password",
        "ssl_certfile",
    ),
    *(
        "password",
        "db_passwd",
        "client_secret",
        "Authorization",
        "x-api-key",
        "cookie",
        "aws_secret_access_key",
        "token",
    ),
    *(
        "access_token",
        "HUGGING_FACE_HUB_TOKEN",
        "session_id",
        "private_pem",
        "credentials",
        "bearer",
        "new_kind_of_key",
    ),
]
PLAIN_NAMES = [
    *(
        "tokenizer_path",
        "tokenizer_mode",
        "skip_tokenizer_init",
        "max_total_tokens",
        "max_prefill_tokens",
        "total_output_tokens",
    ),
    *("token_capacity", "token_capacity_swa", "token_usage", "max_total_num_tokens", "version", "tp_size", "page_size"),
    *("attention_backend", "total_output_tokens_retokenized", "speculative_num_draft_tokens", "num_tokens_per_bs"),
]
TEXTS = [
    "python -m sglang.launch_server --api-key {} --port 30000",
    "sglang serve --admin-api-key={} --port 1",
    "server_args=ServerArgs(model_path='m', api_key='{}', admin_api_key=None)",
    '{{"api_key": "{}", "tp_size": 8}}',
    "HF_TOKEN={} python x.py",
    "Authorization: Bearer {}",
    "connecting to https://user:{}@host.example/v1/models",
    "https://{}@host.example/v1",
    "GET https://host.example/v1?api_key={}&x=1",
    "--ssl-keyfile-password '{}'",
    "password: {}",
    "X-Api-Key: {}",
    "token hf_{}",
    "key sk-{}",
]
secrets = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", min_size=12, max_size=40)
json_like = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=10), inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_name_is_denied(name):
    assert is_secret_name(name)
    assert redact({name: "s3cret-value"}) == {name: MARK}


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_name_that_a_baseline_needs_is_kept(name):
    assert not is_secret_name(name)
    assert redact({name: 17, "x": [{name: "auto"}]}) == {name: 17, "x": [{name: "auto"}]}


@given(st.sampled_from(TEXTS), secrets)
@settings(max_examples=120)
def test_secret_planted_in_text_never_survives(template, secret):
    shown = redact_text(template.format(secret))
    assert secret not in shown
    assert MARK in shown


@given(
    json_like, st.sampled_from(SECRET_NAMES), st.one_of(secrets, st.text(min_size=4, max_size=30)), st.integers(0, 5)
)
@settings(max_examples=120)
@example({"launch_command": "x"}, "api_key", "pass word, with 'quotes'", 0)
def test_secret_planted_in_data_never_survives_anywhere_in_it(data, name, secret, depth):
    planted: object = {
        name: secret,
        "launch_command": f"serve --api-key {secret}",
        "argv": ["--api-key", secret, "--tp", "8"],
    }
    for level in range(depth):
        planted = {"inner": planted} if level % 2 else [planted]
    hidden = redact({"data": data, "info": planted, "echo": f"<{secret}>"})
    lone = redact({"info": planted, "echo": f"<{secret}>"})
    if secret not in MARK and secret not in json.dumps(redact({"info": {"launch_command": "serve --api-key x"}})):
        assert not any(secret in text for text in _texts(lone))
    assert json.loads(json.dumps(hidden)) is not None


@given(st.text(max_size=300))
@settings(max_examples=120)
def test_any_text_is_redacted_without_an_error_and_only_once(text):
    once = redact_text(text)
    assert redact_text(once) == once or MARK in once or "/" in once or "\\" in once


@given(secrets, st.sampled_from(["/home/{}", "/Users/{}/", "~{}", "C:\\Users\\{}"]))
def test_a_home_directory_does_not_name_its_owner(user, template):
    assert user not in redact_text(template.format(user) + " is full") or template == "~{}"
    separator = "\\" if "\\" in template else "/"
    path = template.format(user).rstrip("/") + separator + separator.join(("models", "DeepSeek-V4-Flash"))
    assert redact({"model_path": path}) == {"model_path": "DeepSeek-V4-Flash"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("model_path='/data/alice/models/DeepSeek-V4-Flash', tp_size=8", "model_path='DeepSeek-V4-Flash', tp_size=8"),
        ('  File "/home/alice/v/sglang/srt/scheduler.py", line 7', '  File "scheduler.py", line 7'),
        ("--model-path ~/models/x --tp 2", "--model-path x --tp 2"),
        ("file:///home/alice/x.json", "x.json"),
        ("/root", "[home]"),
        ('"POST /v1/chat/completions HTTP/1.1" 200', '"POST /v1/chat/completions HTTP/1.1" 200'),
        ("http://127.0.0.1:30000/v1/models", "http://127.0.0.1:30000/v1/models"),
        ("gen throughput (token/s): 1410.22, #token: 5", "gen throughput (token/s): 1410.22, #token: 5"),
        ("token usage: 0.05, accept len: 2.74", "token usage: 0.05, accept len: 2.74"),
        ("full token usage: 1.00, swa token usage: 0.06", "full token usage: 1.00, swa token usage: 0.06"),
        ("KeyError: 'deepseek_v4'", "KeyError: 'deepseek_v4'"),
        ("api_key=None, admin_api_key=None", "api_key=None, admin_api_key=None"),
        (
            "Try to allocate 8192 tokens. Available full tokens: 512",
            "Try to allocate 8192 tokens. Available full tokens: 512",
        ),
        (
            "max_total_num_tokens=2394496, chunked_prefill_size=8192",
            "max_total_num_tokens=2394496, chunked_prefill_size=8192",
        ),
    ],
)
def test_text_keeps_what_a_reader_needs(text, shown):
    assert redact_text(text) == shown


def test_what_is_set_stays_visible_and_odd_values_do_not_leak():
    assert redact({"api_key": None, "token": "", "auth": True}) == {"api_key": None, "token": "", "auth": True}
    assert redact({"api_key": {"nested": "s3cret-value"}, "password": 12345, "keys": ["s3cret-value"]}) == {
        "api_key": MARK,
        "password": MARK,
        "keys": MARK,
    }
    assert redact(["--api-key", "two words", "--tp", "8"]) == ["--api-key", MARK, "--tp", "8"]
    deep: object = "s3cret-value"
    for _ in range(200):
        deep = {"x": deep}
    assert "s3cret-value" not in json.dumps(redact(deep))


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []
