"""Models that the suite generates itself, the same bytes each time, so that nothing has to be downloaded."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

GENERATORS = {"tiny-llama": "perfgate.models.tiny_llama", "v4mini": "perfgate.models.v4mini"}
"""Name in a recipe -> module with ``VERSION: int`` and ``generate(folder: Path, **options) -> None``."""


class ModelError(ValueError):
    """A model that cannot be generated or found; the message says what to do."""


def ensure(generator: str, options: Mapping[str, object], cache: Path) -> Path:
    """The folder of a generated model, made on first use and swapped into place whole. Raises ModelError."""
    if generator not in GENERATORS:
        raise ModelError(f"unknown model generator {generator!r}; there are: {', '.join(sorted(GENERATORS))}")
    module = importlib.import_module(GENERATORS[generator])
    suffix = "".join(f"-{key}-{options[key]}" for key in sorted(options))
    folder = cache / f"{generator}-v{module.VERSION}{suffix}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=cache, prefix=f".{generator}-"))
    try:
        module.generate(draft, **options)
        draft.chmod(0o755)
        os.replace(draft, folder)
    except (TypeError, ValueError) as error:
        raise ModelError(f"[model.options] of generator {generator!r}: {error}") from None
    except OSError as error:
        if not folder.is_dir():  # another run may have put the same model there first
            raise ModelError(
                f"cannot write the model to {cache}: {error}; free some space or set PERFGATE_CACHE"
            ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
