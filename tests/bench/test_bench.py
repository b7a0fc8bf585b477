"""The benchmarks run, and what they say was really done. Never a time."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.bench import idle, leaving, small
from tests.bench.results import ALONE, Part
from tests.e2e.agent import REPOSITORY

# All parts run in the first test's fixture.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_OURS = {"agent", "aiohttp", "connection", "uvicorn"}
_THEIRS = {"nginx", "vllm-router"}
_NO_PROXY = {"connection", "uvicorn"}
_PROXY_PARTS = [part for part in Part if part not in ALONE]


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
    absent = results["absent"].keys()
    assert absent <= _THEIRS
    for part in _PROXY_PARTS:
        measured = results[part]["peers"].keys()
        without = _NO_PROXY if part in (Part.LEAVING, Part.ENDING) else set()
        assert measured == (_OURS | _THEIRS) - without - absent
    for rounds in results["small"]["peers"].values():
        for figures in ("cpu_a_request", "cpu_a_chunk", "p50"):
            assert len(rounds[figures]) == small.QUICK.rounds
            assert min(rounds[figures]) > 0


def test_no_measurement_of_the_agent_failed(results: dict[str, Any]) -> None:
    faults = {part: results[part]["peers"]["agent"]["fault"] for part in _PROXY_PARTS}
    assert faults == dict.fromkeys(_PROXY_PARTS)


def test_the_requests_went_through_to_the_backend(results: dict[str, Any]) -> None:
    proxies = len(results["small"]["peers"].keys() - _NO_PROXY)
    assert results["small"]["upstream_requests"] >= proxies * small.QUICK.requests
    assert results["small"]["upstream_events"] == proxies * small.STREAMS * small.QUICK.events


def test_nothing_is_left_of_clients_that_left(results: dict[str, Any]) -> None:
    ours = results["leaving"]["peers"]["agent"]
    alone = leaving.QUICK.one_by_one
    assert ours["before_byte"]["left"] == alone + leaving.QUICK.before_byte
    assert ours["midway"]["left"] == alone + leaving.QUICK.midway
    assert (ours["running"], ours["in_flight"]) == (0, 0)
    assert results["idle"]["peers"]["agent"]["left_open"] == 0


def test_a_peer_that_never_closes_is_told_from_those_that_do(results: dict[str, Any]) -> None:
    """The bare proxy has no watch over its clients."""
    bare = results["leaving"]["peers"]["aiohttp"]
    assert "still open" in bare["before_byte"]["fault"]
    assert results["idle"]["peers"]["aiohttp"]["left_open"] == idle.QUICK.streams


def test_a_cut_answer_is_told_from_a_whole_one(results: dict[str, Any]) -> None:
    assert results["ending"]["peers"]["agent"] == {
        "midway": "gets an error event, then is cut",
        "status": 502,
        "tries": 1,
        "fault": None,
    }


def test_the_loop_is_measured(results: dict[str, Any]) -> None:
    loop = results["reconcile"]
    assert all(ticks["cpu"] > 0 and len(ticks["wall"]) == 3 for ticks in loop["ticks"])
    assert {change["way"] for change in loop["changes"]} == {
        "file saved",
        "..data swapped",
        "git pushed, and told to look,",
    }
    assert min(loop["stalls"]["taken"]) > 0
    assert all(delay > 0 for change in loop["changes"] for delay in change["delays"])
    assert all(idle["resident_bytes"] > 0 for idle in loop["idle"])


def test_a_killed_agents_successor_is_measured_and_has_the_same_backend(
    results: dict[str, Any],
) -> None:
    takeover = results["takeover"]
    assert takeover["pid_kept"]
    (made,), (listens,), (serves,) = (takeover[each] for each in ("made", "listens", "serves"))
    assert 0 < made <= listens <= serves
    assert min(*takeover["cpu"], *takeover["imports"], *takeover["server"], *takeover["spare"]) > 0


def test_the_first_action_of_a_change_is_measured_for_every_source(
    results: dict[str, Any],
) -> None:
    measured = results["latency"]
    assert len({delays["way"] for delays in measured["delays"]}) == 5
    for delays in measured["delays"]:
        figures = (delays["first"], delays["busy"], delays["cpu"])
        assert all(len(each) == 2 and min(each) > 0 for each in figures)
    assert len(measured["idle"]["10"]) == 10


def test_validate_is_measured(results: dict[str, Any]) -> None:
    for each in results["validate"]["manifests"]:
        assert min(*each["work"], *each["command"]) > 0


def test_what_following_costs_is_measured(results: dict[str, Any]) -> None:
    alone, some = results["cluster"]["costs"]
    assert (alone["peers"], alone["ages"], alone["quiet_polls"]) == (0, [], 0)
    assert len(some["ages"]) == some["peers"] > 0
    assert min(some["quiet_polls"], some["busy_polls"]) > 0
    assert some["view_bytes"] > alone["view_bytes"]


def test_the_page_holds_the_printed_tables(results: dict[str, Any]) -> None:
    assert results["stdout"].strip() in results["page"]
    assert str(REPOSITORY) not in results["page"]
