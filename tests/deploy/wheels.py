"""The package as wheels, with all that it needs: what an air-gapped host is given."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.helm import ROOT


def wheelhouse(factory: pytest.TempPathFactory) -> Path:
    """Made once a run, for all its workers."""
    own = factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    made, done = folder / "wheelhouse", folder / "wheelhouse.done"
    with (folder / "wheelhouse.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
            subprocess.run(
                [*pip, "--constraint", str(ROOT / "constraints.txt"), "-w", str(made), str(ROOT)],
                check=True,
            )
            made.chmod(0o755)
            done.touch()
    return made
