"""What agents that a test has killed leave outside of its folders."""

import contextlib
import json
import os
import shutil
from functools import partial
from pathlib import Path

from tests.waiting import wait_until


def remove_traces(data_dir: Path) -> None:
    """The groups and folders of spawns whose records are left, with whoever hides in them."""
    for path in (data_dir / "spawns").glob("*.json"):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, IsADirectoryError):  # of a test of such
            continue
        if not isinstance(record, dict):
            continue
        for folder in record.get("scratch", ()):
            shutil.rmtree(folder, ignore_errors=True)
        if group := record.get("cgroup"):
            wait_until(partial(_is_gone, group), what=f"{group} is gone")


def _is_gone(group: str) -> bool:
    with contextlib.suppress(OSError):
        (Path(group) / "cgroup.kill").write_text("1", encoding="ascii")
    with contextlib.suppress(OSError):
        os.rmdir(group)
    return not os.path.exists(group)
