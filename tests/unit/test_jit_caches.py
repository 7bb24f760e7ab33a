"""The table of compile caches, held to the compilers that are installed: each goes where its variable says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from perfgate import jit_caches

ASK = """
import json
from torch._inductor.runtime import cache_dir_utils
from torch.utils import cpp_extension
import triton

print(json.dumps({
    "TRITON_CACHE_DIR": triton.knobs.cache.dir,
    "inductor's Triton": cache_dir_utils.triton_cache_dir(0),
    "TORCHINDUCTOR_CACHE_DIR": cache_dir_utils.cache_dir(),
    "TORCH_EXTENSIONS_DIR": cpp_extension._get_build_directory("name", verbose=False),
}))
"""


def test_torch_and_triton_follow_the_variables(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "/nowhere"}
    kept = {name: value for name, value in os.environ.items() if name not in jit_caches.VARIABLES}
    env = kept | home | jit_caches.variables([], home)
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, timeout=120, check=True)
    asked = {name: Path(folder) for name, folder in json.loads(done.stdout).items()}
    assert asked["TRITON_CACHE_DIR"] == tmp_path / ".triton" / "cache"
    assert asked["inductor's Triton"] == tmp_path / ".triton" / "cache"
    assert asked["TORCHINDUCTOR_CACHE_DIR"] == tmp_path / ".cache" / "torchinductor"
    assert asked["TORCH_EXTENSIONS_DIR"] == tmp_path / ".cache" / "torch_extensions" / "name"
