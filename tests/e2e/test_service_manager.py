"""An agent under a service manager's socket: what it says from its start to its end."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.e2e.streams import stream_in_flight
from tests.service_socket import ServiceSocket, service_socket
from tests.supervised import agents_below
from tests.waiting import wait_until

WATCHDOG_SECONDS = 1.0


@pytest.fixture(params=["path", "abstract"])
def systemd(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServiceSocket]:
    with service_socket(tmp_path, abstract=request.param == "abstract") as made:
        yield made


def under(systemd: ServiceSocket, agent: Agent, *, watchdog: bool = True) -> Agent:
    agent.environment |= systemd.environment
    if watchdog:
        agent.environment["WATCHDOG_USEC"] = f"{WATCHDOG_SECONDS * 1_000_000:.0f}"
    return agent


def test_it_is_ready_before_its_models_and_says_how_many_serve(
    systemd: ServiceSocket, agent: Agent
) -> None:
    slow = model("slow", env='{STAND_IN: "--ready-after 600"}')
    agent.write(manifest(model("quick"), slow))
    under(systemd, agent).start()
    systemd.wait("READY=1")
    assert agent.client.get(f"{agent.url}/healthz").status_code == 200
    systemd.wait("WATCHDOG=1")
    agent.wait_state("quick", "loaded")
    agent.wait_state("slow", "loading")
    applied = agent.self_view()["revision"]["applied"][:12]
    systemd.wait(f"STATUS=revision {applied}, 1 of 2 models loaded, slow loading")
    entry = agent.model("quick")
    assert entry is not None
    told = Path(f"/proc/{entry['pid']}/environ").read_bytes()
    assert b"NOTIFY_SOCKET" not in told
    assert b"WATCHDOG" not in told
    assert agent.stop() == 0
    assert [line for line in systemd.read() if line in ("READY=1", "STOPPING=1")] == [
        "READY=1",
        "STOPPING=1",
    ]


@pytest.mark.parametrize("systemd", ["path"], indirect=True)
def test_a_drain_lengthens_the_time_to_stop(systemd: ServiceSocket, agent: Agent) -> None:
    agent.write(
        manifest(model("m", env='{STAND_IN: "--chunks 100000 --chunk-interval 0.05 --probe-well"}'))
    )
    under(systemd, agent).start()
    agent.wait_up()
    agent.wait_state("m", "loaded")
    with stream_in_flight(agent, "m"):
        assert agent.process is not None
        agent.process.send_signal(signal.SIGTERM)
        systemd.wait("STOPPING=1")
        systemd.wait("EXTEND_TIMEOUT_USEC=30000000")
        systemd.wait("STATUS=ending: ")
        assert agent.exited is None
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(60) == 0


@pytest.mark.parametrize("systemd", ["path"], indirect=True)
def test_a_stopped_agent_and_a_blocked_loop_feed_no_watchdog(
    systemd: ServiceSocket, agent: Agent, tmp_path: Path
) -> None:
    blocked = tmp_path / "block"
    agent.module = ["tests.deploy.blocked_agent", str(blocked), "run"]
    agent.args += ["--on-exit", "leave"]
    agent.environment["XGEN_ON_EXIT"] = "leave"
    agent.write(manifest(model("m")))
    under(systemd, agent).start()
    systemd.wait("READY=1")
    entry = agent.wait_state("m", "loaded")
    assert agent.process is not None
    agent.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: not systemd.quiet_for(3 * WATCHDOG_SECONDS), what="no word of a stopped one")
    agent.process.send_signal(signal.SIGCONT)
    systemd.forget()
    systemd.wait("WATCHDOG=1")
    blocked.touch()
    wait_until(lambda: not systemd.quiet_for(3 * WATCHDOG_SECONDS), what="no word of a blocked one")
    agent.process.send_signal(signal.SIGABRT)  # as systemd does then
    assert agent.process.wait(60) == -signal.SIGABRT
    assert is_alive(entry["pid"])

    agent.module = ["reconciler", "run"]
    agent.start("--on-exit", "stop")
    agent.wait_up()
    assert agent.wait_state("m", "loaded")["pid"] == entry["pid"]
    assert agent.stop() == 0


@pytest.mark.parametrize("systemd", ["path"], indirect=True)
def test_below_a_supervisor_the_agent_speaks_and_its_successor_too(
    systemd: ServiceSocket, make_agent: MakeAgent
) -> None:
    """With NotifyAccess=all; the watchdog names the supervisor, which is the main process."""
    agent = under(systemd, make_agent("--supervise"))
    agent.model_file()
    agent.wrapper = ["sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh"]
    agent.write(manifest(model("m")))
    agent.start()
    systemd.wait("READY=1")
    systemd.wait("WATCHDOG=1")
    assert agent.process is not None
    (first, *_) = agents_below(agent.process.pid)
    systemd.forget()
    agent.end_stranger(first)
    systemd.wait("READY=1")
    systemd.wait("WATCHDOG=1")
    assert agent.stop() == 0
