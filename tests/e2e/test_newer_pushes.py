"""`refresh:` and `digest:` end to end: a push to the hub, and what the node makes of it."""

import json
import os
import signal
from pathlib import Path

import pytest

from reconciler.hub.catalog import Catalog
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.push import push
from tests.cli.command import xgen_model
from tests.e2e.agent import MINIMAL_GGUF, Agent
from tests.e2e.manifests import manifest, model
from tests.hub.test_push import Silent, folder_of, order
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PREFIX = "gguf/test_model"


def pushed(agent: Agent, extra: bytes) -> Catalog:
    """Push a model to the agent's hub, told from others by what follows its tensors."""
    content = {"model.gguf": MINIMAL_GGUF + extra}
    folder = folder_of(agent.root, content, f"push-{extra.decode()}")
    return push(DirectoryWriter(agent.hub), order(folder, PREFIX), Silent()).catalog


def look_now(agent: Agent) -> None:
    """As `xgen-model reconcile`: else the next look may be minutes away."""
    assert agent.post("/api/management/reconcile", {}).status_code == 200


def events(agent: Agent, kind: str) -> list[str]:
    told = agent.client.get(f"{agent.url}/api/management/events").json()["events"]
    return [each["reason"] for each in told if each["kind"] == kind]


def test_a_newer_push_is_reported_and_not_taken_up(agent: Agent) -> None:
    first = pushed(agent, b"1")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    before = agent.wait_state("a", "loaded")
    assert (before["digest"], before["prefix_digest"]) == (first.digest, first.digest)
    assert (before["verified"], before["newer"]) == (True, None)
    (held,) = agent.client.get(f"{agent.url}/api/storage/models").json()["models"]
    assert (held["prefix"], held["digest"], held["nodes"]) == (PREFIX, first.digest, ["node-a"])

    second = pushed(agent, b"2")
    look_now(agent)
    told = agent.wait_model("a", lambda entry: entry["newer"] is not None)

    reason = (
        f"a newer push is in the hub: digest {second.digest}; "
        "`refresh: auto` or `digest:` takes it up"
    )
    assert told["newer"] == {"digest": second.digest, "reason": reason}
    assert (told["pid"], told["digest"], told["state"]) == (before["pid"], first.digest, "loaded")
    assert events(agent, "PushNoticed") == [reason]
    shown = xgen_model("status", "--server", agent.url)
    assert second.digest in shown.stdout


def test_a_file_that_rots_under_a_model_does_not_move_it_to_a_newer_push(agent: Agent) -> None:
    """`refresh: never`: the push that is here is fetched again, and what runs goes on."""
    first = pushed(agent, b"1")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    before = agent.wait_state("a", "loaded")
    second = pushed(agent, b"2")
    look_now(agent)
    agent.wait_model("a", lambda entry: entry["newer"] is not None)
    path = Path(agent.data, f"models/.rev/{PREFIX}/{first.digest}/model.gguf")
    content = path.read_bytes()

    path.write_bytes(content[:-1] + b"?")
    look_now(agent)

    wait_until(lambda: bool(events(agent, "FileRotten")), what="the rot is seen")
    wait_until(lambda: path.is_file() and path.read_bytes() == content, what="it is fetched again")
    look_now(agent)
    after = agent.wait_model("a", lambda entry: entry["newer"] is not None)
    assert (after["pid"], after["digest"], after["target"]) == (before["pid"], first.digest, None)
    assert (after["state"], after["newer"]["digest"]) == ("loaded", second.digest)
    verified = xgen_model("cache", "verify", "--data-dir", agent.data)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_refresh_auto_takes_a_newer_push_up(agent: Agent) -> None:
    pushed(agent, b"1")
    agent.write(manifest(model("a", refresh="auto")))
    agent.start()
    agent.wait_up()
    before = agent.wait_state("a", "loaded")

    second = pushed(agent, b"2")
    look_now(agent)
    after = agent.wait_model("a", lambda entry: entry["digest"] == second.digest)

    after = agent.wait_model("a", lambda entry: entry["state"] == "loaded")
    assert after["pid"] != before["pid"]
    assert after["newer"] is None
    assert any("files changed" in reason for reason in events(agent, "ActionBegun"))


def test_a_digest_brings_an_older_push_back(agent: Agent) -> None:
    digests = [pushed(agent, extra).digest for extra in (b"1", b"2", b"3")]
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    before = agent.wait_state("a", "loaded")
    assert before["digest"] == digests[2]
    agent.write(manifest(model("a", digest=digests[2], aliases="[pinned]")))
    pinned = agent.wait_model("a", lambda e: e["aliases"] == ["pinned"])
    assert (pinned["pid"], pinned["state"], pinned["target"]) == (before["pid"], "loaded", None)

    agent.write(manifest(model("a", digest=digests[0])))

    agent.wait_model("a", lambda e: (e["state"], e["digest"]) == ("loaded", digests[0]))
    agent.write(manifest(model("a", digest="f" * 64)))
    waiting = agent.wait_model(
        "a", lambda e: e["target"] is not None and "does not have it" in e["target"]["reason"]
    )
    assert f"it has {digests[2]} (in force)" in waiting["target"]["reason"]
    assert (waiting["state"], waiting["digest"]) == ("loaded", digests[0])


def test_a_catalog_for_what_is_served_changes_the_digest_and_nothing_else(agent: Agent) -> None:
    """R4: the model is not started anew, and a crash later starts it under the new digest."""
    (agent.hub / PREFIX / "model.gguf").write_bytes(MINIMAL_GGUF + b"1")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    before = agent.wait_state("a", "loaded")
    assert before["verified"] is False

    catalog = pushed(agent, b"1")
    look_now(agent)
    after = agent.wait_model("a", lambda entry: entry["verified"] is True)

    assert (after["digest"], after["prefix_digest"]) == (catalog.digest, catalog.digest)
    assert (after["pid"], after["state"], after["target"]) == (before["pid"], "loaded", None)
    assert after["restarts"] == 0
    record = Path(agent.data, f"models/.rev/{PREFIX}/{catalog.digest}.json")
    assert json.loads(record.read_bytes())["present"] == ["model.gguf"]

    os.kill(after["pid"], signal.SIGKILL)

    again = agent.wait_model(
        "a", lambda entry: entry["state"] == "loaded" and entry["pid"] != before["pid"]
    )
    assert (again["digest"], again["verified"]) == (catalog.digest, True)
