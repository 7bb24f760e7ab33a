"""Decides whether a change to a patched SGLang server made DeepSeek-V4 slower or wrong."""

__version__ = "0.1.0"
