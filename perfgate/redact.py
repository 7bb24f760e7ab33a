"""Takes secrets and personal paths out of server arguments, info objects and free text before anything is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MARK = "[redacted]"
HOME = "[home]"
MAX_DEPTH = 40
"""Nesting below this is dropped: no server's info is so deep, and dropping cannot leak."""
MIN_REPEATED = 4
"""A secret this long is taken out wherever else it stands; a shorter one would cut ordinary words."""

# Denied by name unless the name is known to be harmless: a new kind of secret is hidden, a new kind of count may be.
_DENIED = re.compile(
    r"(?i)key|token|secret|passw|passphrase|pwd|credential|auth|cookie|session|bearer|private|signature|cert"
)
_HARMLESS = re.compile(
    r"(?i)(?:.*_)?tokens(?:_.*)?|(?:.*_)?(?:de)?tokenize[rd]?(?:_.*)?"
    r"|token_(?:capacity|usage)(?:_.*)?|(?:.*_)?per_token(?:_.*)?"
    r"|(?:mask|pad|bos|eos|stop|image|video|audio)_token(?:_ids?)?|monkey.*|keys?_(?:dtype|heads?|dim)|(?:.*_)?kv_key_.*|.*author"
    r"|token_(?:step|pos|bucket)\w*|.*_session_params|session_(?:held|count)\w*"
)
_WORD = "key|token|secret|passw(?:or)?d|passphrase|pwd|credential|auth(?:orization)?|cookie"
_NAME = rf"[\w.-]{{0,60}}?(?:{_WORD})s?(?![a-zA-Z])[\w.-]{{0,40}}"
# name=value, name: value, "name": "value", --name value; a value is quoted, or runs to the next blank or delimiter.
_VALUE = r"(?:\"(?:[^\"\\]|\\.){0,4000}\"|'(?:[^'\\]|\\.){0,4000}'|[^\s,;&)\]}'\"]{1,4000})"
_ASSIGNED = re.compile(
    rf"(?i)(?<![\w.#-])(?P<name>{_NAME})(?P<between>['\"]?\s{{0,4}}[=:]\s{{0,4}})(?P<value>{_VALUE})"
)
_FLAG = re.compile(rf"(?i)(?P<name>(?<![\w-])--?{_NAME})(?P<between>\s{{1,4}})(?P<value>{_VALUE})")
_SCHEME = re.compile(r"(?i)\b(?P<scheme>Bearer|Basic|Token)\s{1,4}(?P<value>[A-Za-z0-9._~+/=-]{6,4000})")
_USERINFO = re.compile(
    r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}://)[^\s/?#'\"@]{1,2000}(?:@[^\s/?#'\"@]{1,2000}){0,3}@"
)
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}|\bsk-[A-Za-z0-9_-]{8,}|\bgh[pousr]_[A-Za-z0-9]{8,}|\bgithub_pat_\w{8,}|\bA(?:KIA|SIA)[A-Z0-9]{12,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{8,}|\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?|\bglpat-[\w-]{8,}|\bnvapi-[\w-]{8,}"
    r"|-----BEGIN [A-Z ]{3,40}-----.*?(?:-----END [A-Z ]{3,40}-----|\Z)",
    re.DOTALL,
)
_PART = r"[^\s/\\'\",:;()\[\]{}<>|=]"
_UNIX = re.compile(rf"(?<![\w.:/~\]-])(?:~\w{{0,60}}|(?:file:)?/{{0,2}}(?=/))(?:/{_PART}{{1,255}}){{1,60}}/?")
_DRIVE = re.compile(rf"(?<![\w])[A-Za-z]:\\(?:{_PART}{{1,255}}\\)*{_PART}{{0,255}}")
_HOME_ONLY = re.compile(r"^/(?:home|Users|var/home)/[^/]+$|^/root$|^~\w*$|^[A-Za-z]:\\Users\\[^\\]+$")
_ROUTE = re.compile(r"(?:GET|POST|PUT|DELETE|HEAD|OPTIONS|PATCH) $")


def is_secret_name(name: str) -> bool:
    """True where a value under this name must not be stored: denied by pattern, unless known as harmless."""
    plain = name.strip().lstrip("-").replace("-", "_")
    return bool(_DENIED.search(plain)) and not _HARMLESS.fullmatch(plain)


def redact(value: Any) -> Any:
    """Return a copy of JSON-like data without secrets and personal paths; text is treated by ``redact_text``.

    A value under a secret name becomes ``[redacted]`` whatever its type (None, booleans and "" stay: they say whether
    one was set), the argument after a secret flag in a list too, and a secret found so is taken out of other text of
    the same data. Mapping keys are treated as text. Anything that is not JSON-like is stored as its redacted ``str``.
    """
    secrets: set[str] = set()
    _collect(value, secrets, 0)
    return _walk(value, sorted((s for s in secrets if len(s) >= MIN_REPEATED), key=len, reverse=True), 0)


def redact_text(text: str) -> str:
    """Return the text without secrets, user names in URLs and token shapes, absolute paths cut to their last part."""
    text = _SHAPES.sub(MARK, text)
    text = _USERINFO.sub(lambda m: f"{m['scheme']}{MARK}@", text)
    text = _SCHEME.sub(lambda m: f"{m['scheme']} {MARK}", text)
    for pattern in (_ASSIGNED, _FLAG):
        text = pattern.sub(_assigned, text)
    text = _DRIVE.sub(lambda m: _last_part(m.group(), "\\"), text)
    return _UNIX.sub(_path, text)


def _assigned(match: re.Match[str]) -> str:
    value = match["value"]
    if not is_secret_name(match["name"]) or value.strip("'\"") in (
        "",
        "None",
        "null",
        "True",
        "False",
        "true",
        "false",
    ):
        return match.group()
    quote = value[0] if value[0] in "'\"" else ""
    return f"{match['name']}{match['between']}{quote}{MARK}{quote}"


def _path(match: re.Match[str]) -> str:
    path = match.group()
    before = match.string[max(0, match.start() - 8) : match.start()]
    after = match.string[match.end() : match.end() + 6]
    if _ROUTE.search(before) or after.startswith(" HTTP/"):
        return path
    bare = path.removeprefix("file:").rstrip("/")
    while bare.startswith("//"):
        bare = bare[1:]
    if bare.count("/") == 1 and not bare.startswith("~") and bare != "/root":
        return path
    return _last_part(bare, "/")


def _last_part(path: str, separator: str) -> str:
    path = path.rstrip(separator)
    return HOME if _HOME_ONLY.match(path) else path.rsplit(separator, 1)[-1]


def _collect(value: Any, secrets: set[str], depth: int, secret: bool = False) -> None:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        if secret:
            secrets.add(value)
        for pattern in (_ASSIGNED, _FLAG):
            for match in pattern.finditer(value):
                if is_secret_name(match["name"]) and _assigned(match) != match.group():
                    secrets.add(match["value"].strip("'\""))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _collect(item, secrets, depth + 1, secret or is_secret_name(str(name)))
    elif isinstance(value, list | tuple | set | frozenset):
        after_flag = False
        for item in value:
            _collect(item, secrets, depth + 1, secret or after_flag)
            after_flag = _is_flag(item)


def _walk(value: Any, secrets: list[str], depth: int) -> Any:
    if depth > MAX_DEPTH:
        return MARK
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {
            _text(str(name), secrets): _hidden(item) if is_secret_name(str(name)) else _walk(item, secrets, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        items, after_flag = [], False
        for item in value:
            items.append(_hidden(item) if after_flag else _walk(item, secrets, depth + 1))
            after_flag = _is_flag(item)
        return items
    return _text(value if isinstance(value, str) else str(value), secrets)


def _is_flag(item: Any) -> bool:
    return isinstance(item, str) and item.startswith("-") and "=" not in item and is_secret_name(item)


def _hidden(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) or value == "" else MARK


def _text(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MARK)
    return redact_text(text)
