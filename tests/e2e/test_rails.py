"""Rails before what costs a service: a mass deletion, a node in maintenance, hours that are not for
changes; each of them over a restart of the agent, too (gpustack#4207)."""

import os
import signal
import subprocess

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, Entry
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FOUR = ("a", "b", "c", "d")
NEVER = "  maintenance_windows: [{days: [mon], start: 03:00, duration: 1s}]\n"


def pids(agent: Agent, *names: str) -> list[object]:
    return [(agent.model(name) or {}).get("pid") for name in names]


def command(agent: Agent, *words: str) -> subprocess.CompletedProcess[str]:
    return xgen_model(*words, "--data-dir", agent.data)


def condition(agent: Agent, kind: str) -> str | None:
    found = agent.condition(kind)
    return str(found["message"]) if found is not None else None


def said_of(entry: Entry) -> str:
    return f"{entry['reason']}; {(entry['target'] or {}).get('reason')}"


def told(agent: Agent, kind: str) -> int:
    events = agent.client.get(f"{agent.url}/api/management/events").json()["events"]
    return sum(each["kind"] == kind for each in events)


def test_a_mass_deletion_waits_over_a_restart_until_it_is_confirmed(agent: Agent) -> None:
    """argo-cd#3996, #10987: one commit wipes all."""
    agent.write(manifest(*map(model, FOUR)))
    agent.start("--max-parallel-loads", "4")
    agent.wait_up()
    for name in FOUR:
        agent.wait_state(name, "loaded")
    agent.write(manifest(model("a")))
    agent.wait_condition("ConfirmationNeeded", "True")
    revision = str(agent.self_view()["revision"]["attempted"])
    why = condition(agent, "ConfirmationNeeded") or ""
    assert f"revision {revision[:12]} waits for confirmation: it would stop 3 of 4" in why
    assert "(b, c, d)" in why
    candidate = agent.manifests / "models.yaml"
    plan = command(agent, "plan", "--manifest", str(candidate))
    assert "it would wait for confirmation: it would stop 3 of 4 running models" in plan.stdout
    held = agent.client.get(f"{agent.url}/api/management/plan").json()["held"]
    assert [(each["action"], each["model"]) for each in held] == [
        ("StopBackend", name) for name in "bcd"
    ]

    agent.stop()  # and all backends with it
    agent.start("--max-parallel-loads", "4")
    agent.wait_up()
    for name in FOUR:
        agent.wait_state(name, "loaded")
    assert condition(agent, "ConfirmationNeeded") is not None
    before = pids(agent, "a")

    refused = command(agent, "reconcile", "--confirm", "0123456789")
    assert refused.returncode == 1
    assert "does not wait here" in refused.stderr
    done = command(agent, "reconcile", "--confirm", revision[:12])
    assert done.returncode == 0, done.stderr
    for name in "bcd":
        agent.wait_gone(name)
    assert pids(agent, "a") == before
    assert condition(agent, "ConfirmationNeeded") is None
    assert agent.self_view()["revision"] == {"applied": revision, "attempted": revision}


def test_a_revision_that_waits_is_confirmed_by_the_manifest(agent: Agent) -> None:
    agent.write(manifest(model("a"), model("b"), spec="  stop_limit: 0\n"))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    agent.wait_state("b", "loaded")
    agent.write(manifest(model("a"), spec="  stop_limit: 0\n"))
    agent.wait_condition("ConfirmationNeeded", "True")
    revision = str(agent.self_view()["revision"]["attempted"])
    spec = f'  stop_limit: 0\n  confirm_stop: "{revision[:10]}"\n'
    agent.write(manifest(spec=f"{spec}  allow_empty: true\n"))  # it stops more
    wait_until(lambda: told(agent, "RevisionWaits") == 2, what="the second is told")
    assert agent.model("a")["state"] == "loaded"  # type: ignore[index]

    (pid,) = pids(agent, "b")
    os.kill(int(str(pid)), signal.SIGKILL)  # what is in force is mended, and told so
    agent.wait_model("b", lambda entry: entry["state"] == "error")
    waited = command(agent, "reconcile", "--retry", "--model", "b", "--wait")
    assert "b: loaded: serves" in waited.stdout
    assert waited.returncode == 1
    assert "not in force: ConfirmationNeeded is True (StopLimit): revision" in waited.stderr

    agent.write(manifest(model("a"), spec=spec))
    agent.wait_gone("b")
    assert condition(agent, "ConfirmationNeeded") is None


def test_what_a_command_suspends_stays_so_over_a_restart(agent: Agent) -> None:
    agent.write(manifest(model("a"), model("b")))
    agent.start("--on-exit", "leave")
    agent.wait_up()
    agent.wait_state("a", "loaded")
    agent.wait_state("b", "loaded")
    before = pids(agent, "a", "b")
    said = command(agent, "suspend", "a", "--reason", "driver update", "--by", "kim")
    assert said.returncode == 0, said.stderr
    assert "a is suspended by kim since " in said.stdout

    agent.stop()
    agent.write(manifest(model("a", extra_args="{ctx_size: 256}"), model("b")))
    agent.start("--on-exit", "leave")
    agent.wait_up()
    agent.wait_state("b", "loaded")
    agent.wait_model("a", lambda entry: "suspended by kim (driver update)" in said_of(entry))
    assert pids(agent, "a", "b") == before
    assert "driver update" in (condition(agent, "ModelsSuspended") or "")
    plan = command(agent, "plan")
    assert "driver update" in plan.stdout

    said = command(agent, "resume", "a")
    assert "a is suspended no more" in said.stdout
    wait_until(lambda: pids(agent, "a") not in ([None], before[:1]), what="a restarted")
    assert condition(agent, "ModelsSuspended") is None
    agent.stop()
    agent.start("--on-exit", "stop")
    agent.wait_up()
    agent.stop()


def test_what_has_crashed_while_it_was_suspended_is_told_over_a_restart(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    pid = agent.wait_state("a", "loaded")["pid"]
    assert command(agent, "suspend", "a", "--by", "kim").returncode == 0
    os.kill(pid, signal.SIGKILL)
    crashed = agent.wait_model("a", lambda entry: "SIGKILL" in said_of(entry))

    agent.stop()
    agent.start()
    agent.wait_up()

    entry = agent.wait_model("a", lambda entry: "suspended by kim" in said_of(entry))
    assert (entry["state"], entry["reason"]) == (crashed["state"], crashed["reason"])
    assert command(agent, "resume", "a").returncode == 0
    agent.wait_state("a", "loaded")
    agent.stop()


def test_what_the_manifest_suspends_no_command_lifts(agent: Agent) -> None:
    agent.write(manifest(model("a", suspend="true"), model("b")))
    agent.start()
    agent.wait_up()
    agent.wait_state("b", "loaded")
    refused = command(agent, "resume", "a")
    assert refused.returncode == 1
    assert "the manifest suspends it (models.yaml:6:" in refused.stderr
    assert agent.model("a")["state"] == "pending"  # type: ignore[index]


def test_a_restart_waits_for_the_window_or_for_somebody_in_a_hurry(agent: Agent) -> None:
    agent.write(manifest(model("a", strategy="recreate"), spec=NEVER))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    before = pids(agent, "a")
    changed = model("a", strategy="recreate", extra_args="{ctx_size: 256}")
    agent.write(manifest(changed, model("b"), spec=NEVER))
    agent.wait_state("b", "loaded")
    agent.wait_model("a", lambda entry: "maintenance window that opens Mon " in said_of(entry))
    assert pids(agent, "a") == before
    waited = command(agent, "reconcile", "--wait", "--timeout", "60")
    assert waited.returncode == 1  # at once: it does not serve what is wanted
    assert "waits for the maintenance window" in waited.stdout
    done = command(agent, "reconcile", "--now")
    assert "does now what waited for the maintenance window: a" in done.stdout
    wait_until(lambda: pids(agent, "a") not in ([None], before), what="a restarted")


def test_a_node_under_another_name_stops_nothing_until_that_is_meant(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    agent.start("--on-exit", "leave")
    agent.wait_up()
    agent.wait_state("a", "loaded")
    before = pids(agent, "a")
    agent.stop()
    agent.start("--on-exit", "leave", "--node", "node-b")
    assert not agent.comes_up()
    assert "add --rename-node node-a" in agent.log
    assert before[0] in agent.processes()

    agent.start("--on-exit", "leave", "--node", "node-b", "--rename-node", "node-a")
    agent.wait_up()
    agent.wait_state("a", "loaded")
    assert (pids(agent, "a"), agent.self_view()["node"]) == (before, "node-b")
    agent.stop()
    agent.start("--on-exit", "stop", "--node", "node-b")  # once is enough
    agent.wait_up()
    agent.stop()
