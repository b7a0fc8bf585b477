"""The package as wheels, with all that it needs: what an air-gapped host is given."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.helm import ROOT
from tests.deploy.once import made_once


def wheelhouse(factory: pytest.TempPathFactory) -> Path:
    """A folder of them."""
    return made_once(factory, "wheelhouse", _make)


def _make(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    constraints = str(ROOT / "constraints.txt")
    subprocess.run([*pip, "--constraint", constraints, "-w", str(folder), str(ROOT)], check=True)
