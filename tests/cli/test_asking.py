"""Commands that ask an agent, and what they make of its answer."""

import json
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest

from reconciler.cli.client import segment
from tests.cli.command import xgen_model
from tests.cli.test_client import answering, problem

DRAINING = {
    "type": "Draining",
    "status": "True",
    "reason": "Ending",
    "message": "the agent ends; new work is refused",
    "since": "2026-11-30T12:00:00Z",
}


def view(**more: object) -> bytes:
    """What an agent says of the one node that it knows."""
    server = {"node": "node-a", "agent_version": "1", "ready": True, "models": [], **more}
    return json.dumps({"api": 1, "servers": [server]}).encode()


def trouble(**more: object) -> dict[str, object]:
    return {"name": "chat", "state": "blocked", "reason": "cannot use flag x", **more}


def test_a_node_that_drains_is_not_called_ready(tmp_path: Path) -> None:
    with answering(HTTPStatus.OK, view(conditions=[DRAINING]), X_Served_By="node-a") as url:
        status = xgen_model("status", "--server", url)
        doctor = xgen_model("doctor", "--server", url, "--data-dir", tmp_path, "--output", "json")

    assert status.stdout.splitlines()[0].endswith(", draining")
    found = [each for each in json.loads(doctor.stdout)["checks"] if "agent of" in each["subject"]]
    assert (found[0]["level"], found[0]["message"].endswith("; draining")) == ("warn", True)


@pytest.mark.parametrize(
    ("process", "said"),
    [
        ({"loads": True, "since": None}, "pid 8, which was to take its place, is to stop"),
        ({"loads": False, "since": None}, "pid 8 is to drain: 1 request in flight"),
        ({"since": None}, "pid 8 is to drain: 1 request in flight"),  # of an older agent
    ],
)
def test_what_never_served_does_not_drain(process: dict[str, object], said: str) -> None:
    model = trouble(state="loaded", draining=[{"pid": 8, "in_flight": 1, **process}])
    with answering(HTTPStatus.OK, view(models=[model]), X_Served_By="node-a") as url:
        result = xgen_model("status", "--server", url)

    assert said in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("model", "step"),
    [
        (trouble(), "change what the reason names"),
        (trouble(last_lines=["out of memory"]), "xgen-model logs chat"),
        (trouble(state="error"), "xgen-model events --model chat"),
    ],
    ids=["refused", "died", "no files"],
)
def test_doctor_sends_to_a_log_only_where_there_is_one(
    model: dict[str, object], step: str, tmp_path: Path
) -> None:
    with answering(HTTPStatus.OK, view(models=[model]), X_Served_By="node-a") as url:
        result = xgen_model("doctor", "--server", url, "--data-dir", tmp_path, "--output", "json")

    checks = {each["subject"]: each for each in json.loads(result.stdout)["checks"]}
    assert checks["model chat"]["next"].startswith(step)


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_events_of_a_model_that_nobody_knows_are_an_error(follow: list[str]) -> None:
    body = problem("model_not_found", "cannot find model nope; nearest: note")
    with answering(HTTPStatus.NOT_FOUND, body, X_Served_By="node-a") as url:
        result = xgen_model("events", "--model", "nope", *follow, "--server", url)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: cannot find model nope; nearest: note\n"


def test_a_model_that_never_started_has_no_log_yet(tmp_path: Path) -> None:
    with answering(HTTPStatus.OK, b"", X_Served_By="node-a") as url:
        result = xgen_model("logs", "chat", "--server", url, "--data-dir", tmp_path)
        none_wanted = xgen_model("logs", "chat", "-n", "0", "--server", url)

    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "chat has not started yet: no log\n"
    assert none_wanted.stderr == ""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("..", b"/models/%2E%2E/logs"),
        (".", b"/models/%2E/logs"),
        ("a/../b", b"/models/a%2F..%2Fb/logs"),
        ("gpt-4.1", b"/models/gpt-4.1/logs"),
    ],
)
def test_no_name_leads_to_another_path(name: str, path: bytes) -> None:
    assert httpx.URL(f"http://node-a/models/{segment(name)}/logs").raw_path == path


def test_crashes_and_what_cannot_be_left_are_shown(tmp_path: Path) -> None:
    agent = {
        "pid": 7,
        "on_exit": "leave",
        "on_exit_problem": "the supervisor is process 1",
        "supervision": {"restarts": 2, "crash": "killed by SIGSEGV"},
    }
    with answering(HTTPStatus.OK, view(agent=agent), X_Served_By="node-a") as url:
        status = xgen_model("status", "--server", url)
        doctor = xgen_model("doctor", "--server", url, "--data-dir", tmp_path, "--output", "json")

    crashed = "the agent has crashed 2 times and was started anew; last: killed by SIGSEGV"
    problem = "--on-exit leave cannot work: the supervisor is process 1"
    assert f"node-a: {crashed}" in status.stdout
    assert f"node-a: {problem}" in status.stdout
    checks = [each for each in json.loads(doctor.stdout)["checks"] if "agent of" in each["subject"]]
    assert [(each["level"], each["message"]) for each in checks[1:]] == [
        (
            "ok",
            "its backends are stopped when it is told to end; a supervisor starts it anew after a "
            "crash",
        ),
        ("warn", crashed),
        ("warn", problem),
    ]
