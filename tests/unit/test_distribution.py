"""What installing this project puts on the path: its two packages, and nothing that hides another project's.

The folder ``kernels/`` shares its name with Hugging Face's package ``kernels``, which transformers imports where it is
installed; ``import kernels`` must go on giving that one, from inside the checkout too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate import environments, revision

ROOT = Path(__file__).parents[2]
PROBE = """
import importlib.util, json, site, sys
for folder in sys.argv[1:]:
    site.addsitedir(folder)
print(json.dumps([importlib.util.find_spec(name).origin for name in ("kernels", "dsv4_kernels", "perfgate")]))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    revision.export_working_tree(ROOT, tmp_path / "source")
    return tmp_path / "source"


@pytest.fixture
def hugging_face(tmp_path: Path) -> Path:
    """A folder of installed packages that holds one of that name."""
    package = tmp_path / "site" / "kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return package.parent


def test_an_installation_holds_the_two_packages_and_no_kernels(source: Path, tmp_path: Path) -> None:
    environments.install(source, tmp_path / "target", "this checkout")
    found = {p.name for p in (tmp_path / "target").iterdir() if not p.name.endswith(".dist-info")}
    assert found == {"perfgate", "dsv4_kernels"}
    assert (tmp_path / "target" / "perfgate" / "report" / "templates" / "report.html.j2").is_file()
    (info,) = (tmp_path / "target").glob("*.dist-info")
    owned = {line.split("/")[0] for line in (info / "RECORD").read_text().splitlines()}
    assert owned - {info.name} <= {"perfgate", "dsv4_kernels"}


def test_import_kernels_gives_the_other_project_beside_an_editable_installation(
    source: Path, hugging_face: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pip", "--isolated", "install", "-q", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(tmp_path / "target")]
    subprocess.run([*command, "-e", str(source)], check=True, capture_output=True)
    # Without the site of this run (-S), into which the checkout may be installed just so.
    probe = [sys.executable, "-S", "-c", PROBE, str(tmp_path / "target"), str(hugging_face)]
    # From inside the checkout, where kernels/ lies in the first folder of the path; without this run's own path.
    done = subprocess.run(probe, capture_output=True, text=True, check=False, cwd=source, env={})
    assert done.returncode == 0, done.stderr
    theirs, *ours = json.loads(done.stdout)
    assert Path(theirs) == hugging_face / "kernels" / "__init__.py"
    assert [Path(p).relative_to(source).parts[0] for p in ours] == ["kernels", "perfgate"]
