"""A manifest in a ConfigMap, by the Kubernetes API: an agent follows it, whatever befalls it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.source.git_https import certificate
from tests.source.kubernetes_files import kubeconfig
from tests.source.kubernetes_server import Server, serving
from tests.source.kubernetes_store import Refused
from tests.waiting import wait_until

PLACE = "configmap://models/models"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(Server(certificate=certificate(tmp_path, "ours"), tokens={"old"})) as made:
        yield made


def start(agent: Agent, server: Server) -> None:
    token = agent.root / "token"
    if not token.exists():
        token.write_text("old")
    path = kubeconfig(agent.root, server, user={"tokenFile": str(token)})
    agent.start("--manifest", PLACE, "--kubeconfig", str(path))
    agent.wait_up()


def put(server: Server, *names: str) -> None:
    server.store.put({"models.yaml": manifest(*map(model, names))})


def wait_runs(agent: Agent, *names: str) -> None:
    """These, by a manifest that was taken up whole."""

    def holds() -> bool:
        view = agent.self_view()
        revision = view["revision"]
        return revision["applied"] == revision["attempted"] and [*names] == [
            each["name"] for each in view["models"] if each["state"] == "loaded"
        ]

    wait_until(holds, what=f"{names} run; log:\n{agent.recent_log}", seconds=60)


def wait_said(agent: Agent, *parts: str) -> None:
    """Why the source cannot be read."""

    def said() -> str:
        found = agent.condition("SourceReady")
        return str(found["message"]) if found is not None and found["status"] == "False" else ""

    wait_until(lambda: all(part in said() for part in parts), what=f"{parts}\n{agent.recent_log}")


def test_what_is_put_runs_and_what_is_gone_stays(agent: Agent, server: Server) -> None:
    put(server, "a")
    start(agent, server)
    pid = agent.wait_state("a", "loaded")["pid"]
    assert agent.wait_condition("SourceReady", "True")["message"] == f"read {PLACE}"
    put(server, "a", "b")
    wait_runs(agent, "a", "b")
    server.store.put({"models.yaml": manifest(model("a", bakend="x"))})
    wait_until(lambda: len(server.store.events()) == 1, what="an Event")
    put(server, "a", "b")
    wait_until(lambda: len(server.store.events()) == 2, what="another Event")
    bad, good = server.store.events()
    assert (bad["type"], bad["reason"], bad["count"]) == ("Warning", "ManifestInvalid", 1)
    assert "models.yaml:6:69: spec.models[0].bakend: unknown key" in bad["message"]
    assert (good["type"], good["reason"]) == ("Normal", "ManifestTaken")
    server.store.delete()
    wait_said(agent, "there is no ConfigMap models in namespace models")
    put(server, "a")
    wait_runs(agent, "a")
    assert agent.wait_state("a", "loaded")["pid"] == pid


@pytest.mark.slow
def test_nothing_that_befalls_the_api_stops_a_model(agent: Agent, server: Server) -> None:
    """Scenarios 40 and 75: argo-cd#2573, dynamo#3493."""
    put(server, "a")
    start(agent, server)
    pid = agent.wait_state("a", "loaded")["pid"]

    server.cut_events = 1
    put(server, "a", "b")
    wait_runs(agent, "a", "b")

    for how in ("event", "status"):
        server.gone_as = how
        with server.store.changed:
            put(server, "a")
            server.store.expire()
            server.drop()
        wait_runs(agent, "a")
        put(server, "a", "b")
        wait_runs(agent, "a", "b")

    server.tokens = {"new"}
    server.drop()
    put(server, "a")
    assert agent.post("/api/management/reconcile", {}).status_code == 200
    wait_said(agent, "(401)")
    (agent.root / "token").write_text("new")
    wait_runs(agent, "a")

    for failing in (
        Refused(500, "InternalError", "etcd is away"),
        Refused(429, "TooManyRequests", "too many requests", wait=1),
    ):
        server.failing = failing
        server.drop()
        put(server, "a", "b")
        agent.post("/api/management/reconcile", {})
        wait_said(agent, f"answers {failing.code}", "it was reached last at 20")
        server.failing = None
        wait_runs(agent, "a", "b")
        put(server, "a")
        wait_runs(agent, "a")

    server.stop()
    agent.stop(signal.SIGKILL)
    start(agent, server)
    wait_said(agent, "not reached since the agent started")
    assert agent.wait_state("a", "loaded")["pid"] == pid
    put(server, "a", "b")
    server.start()
    wait_runs(agent, "a", "b")
    assert agent.wait_state("a", "loaded")["pid"] == pid
