"""The benchmarks run, and what they say was really done. Never a time."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.bench import proxy
from tests.e2e.agent import REPOSITORY


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench")
    where = ["--json", str(folder / "bench.json"), "--page", str(folder / "page.md")]
    command = [sys.executable, "-m", "tests.bench", "--quick", *where]
    made = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    written: dict[str, Any] = json.loads((folder / "bench.json").read_text())
    return {**written, "stdout": made.stdout, "page": (folder / "page.md").read_text()}


def test_every_peer_that_is_here_is_measured_and_every_other_is_named(
    results: dict[str, Any],
) -> None:
    measured = results["proxy"]["peers"]
    assert {"agent", "aiohttp", "floor"} <= measured.keys()
    assert measured.keys() | results["proxy"]["absent"].keys() == {*measured, "nginx"}
    for rounds in measured.values():
        for figures in ("cpu_a_request", "cpu_a_chunk", "p50"):
            assert len(rounds[figures]) == proxy.QUICK.rounds
            assert min(rounds[figures]) > 0


def test_the_requests_went_through_to_the_backend(results: dict[str, Any]) -> None:
    proxies = len(results["proxy"]["peers"]) - 1  # all but the floor
    assert results["proxy"]["upstream_requests"] >= proxies * proxy.QUICK.requests
    assert results["proxy"]["upstream_events"] == proxies * proxy.STREAMS * proxy.QUICK.events


def test_the_loop_is_measured(results: dict[str, Any]) -> None:
    loop = results["reconcile"]
    assert all(ticks["cpu"] > 0 and len(ticks["wall"]) == 3 for ticks in loop["ticks"])
    assert {change["way"] for change in loop["changes"]} == {"file saved", "..data swapped"}
    assert all(delay > 0 for change in loop["changes"] for delay in change["delays"])
    assert all(idle["resident_bytes"] > 0 for idle in loop["idle"])


def test_the_page_holds_the_printed_tables(results: dict[str, Any]) -> None:
    assert results["stdout"].strip() in results["page"]
    assert str(REPOSITORY) not in results["page"]
