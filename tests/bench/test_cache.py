"""The benchmark of the cache runs, and everybody brings the right bytes; its figures say little."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_every_contender_brings_the_files(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    argv = [sys.executable, "-m", "tests.bench.cache", "--gib", "0.03", "--rounds", "1"]
    options = ["--only", "rclone serve s3", "--dir", str(tmp_path), "--json", str(results)]

    done = subprocess.run([*argv, *options], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    runs = json.loads(results.read_text())["results"]["rclone serve s3"]
    assert {"cp", "xgen-model", "fget_object", "rclone copy"} <= set(runs)
    assert all(run["seconds"] > 0 for each in runs.values() for run in each)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
