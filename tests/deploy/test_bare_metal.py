"""A host with a real systemd, from the installation to the end: what lives, and what dies."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.helm import ROOT
from tests.deploy.machine import Failed, Machine, machine, why_no_machine
from tests.deploy.wheels import wheelhouse
from tests.e2e.agent import MINIMAL_GGUF, STAND_IN, llama_server_stand_in
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_for, wait_until

pytestmark = pytest.mark.timeout(900)

UNIT = "xgen-model.service"
INSTALL = "/systemd/install.sh"
PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
SETTINGS = """XGEN_NODE=host-a
XGEN_HUB=/opt/hub
XGEN_LLAMA_SERVER=/opt/engine/llama-server
XGEN_POLL_INTERVAL=0.5
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Nothing is installed yet; it has no network, as behind an air gap."""
    if (why := why_no_machine()) is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("machine")
    wheels = wheelhouse(tmp_path_factory)
    engine, hub = folder / "engine", folder / "hub"
    (hub / "gguf" / "test_model").mkdir(parents=True)
    (hub / "gguf" / "test_model" / "model.gguf").write_bytes(MINIMAL_GGUF)
    engine.mkdir()
    program = llama_server_stand_in(engine)
    text = program.read_text(encoding="utf-8").replace(
        str(STAND_IN), "/opt/tests/stand_in_backend.py"
    )
    program.write_text(f"#!/usr/bin/python3\n{text.partition(chr(10))[2]}", encoding="utf-8")
    program.chmod(0o755)
    binds = {
        wheels: "/wheels",
        ROOT / "deploy" / "systemd": "/systemd",
        ROOT / "tests": "/opt/tests",
        engine: "/opt/engine",
        hub: "/opt/hub",
    }
    with machine(folder, binds) as made:
        yield made


@pytest.fixture(scope="module")
def host(bare: Machine) -> Iterator[Machine]:
    """With the agent installed from wheels alone, and one model that serves; in the end it goes."""
    planned = bare.run(INSTALL, "--wheelhouse", "/wheels", "--dry-run")
    assert "would run: systemctl enable --quiet xgen-model.service" in planned
    assert bare.shell("ls -d /opt/xgen-model /etc/xgen-model 2>/dev/null", check=False) == ""
    assert "not started" in bare.run(INSTALL, "--wheelhouse", "/wheels", "--no-start")
    (bare.folder / "settings").write_text(SETTINGS)
    (bare.folder / "models.yaml").write_text(manifest(model("m")))
    bare.shell("cat /shared/settings >> /etc/xgen-model/xgen-model.env")
    bare.shell("install -m 644 /shared/models.yaml /etc/xgen-model/manifest/models.yaml")
    bare.run(INSTALL)
    loaded(bare)
    yield bare
    uninstall(bare)


def uninstall(host: Machine) -> None:
    """It goes without a trace but for what was asked to stay, and then with that."""
    pid, changes = loaded(host), f"/etc/systemd/system/{UNIT}.d"
    host.shell(f"mkdir {changes} && printf '[Service]\\nNice=1\\n' > {changes}/override.conf")
    killed_at(host, "rm", "/etc/systemd/system/xgen-model-stop.service", "--uninstall")
    assert not is_alive(host, pid)
    assert "by systemctl edit are kept" in host.run(INSTALL, "--uninstall")
    places = "/opt/xgen-model /usr/local/bin/xgen-model /etc/systemd/system/xgen-model*.service"
    gone = f"ls -d {places} 2>/dev/null"
    assert host.shell(gone, check=False) == ""
    assert host.shell("ls /etc/xgen-model/manifest /var/lib/xgen-model/models").count("\n") > 2
    host.run(INSTALL, "--uninstall", "--purge")
    left = (
        f"ls -d {changes} /etc/xgen-model /var/lib/xgen-model 2>/dev/null; getent passwd xgen-model"
    )
    assert host.shell(left, check=False) == ""


def killed_at(host: Machine, command: str, target: str, *options: str) -> None:
    """The script, as it would come to run `command` for `target`."""
    trap = host.folder / "trap" / command
    trap.parent.mkdir(exist_ok=True)
    program = host.run("which", command).strip()
    end = f'if [ "${{!#}}" = {target} ]; then kill -KILL $PPID; exit; fi'
    trap.write_text(f'#!/bin/bash\n{end}\nexec {program} "$@"\n')
    trap.chmod(0o755)
    try:
        with pytest.raises(Failed, match="ended with -9"):
            host.run("env", f"PATH=/shared/trap:{PATH}", "bash", INSTALL, *options)
    finally:
        trap.unlink()


def links(host: Machine) -> list[str]:
    """What `current` and `previous` lead to."""
    return host.shell("cd /opt/xgen-model && readlink current previous").split()


def running_release(host: Machine) -> str:
    return host.run("cat", f"/proc/{main_pid(host)}/cmdline").partition("/bin/")[0]


def view(host: Machine) -> Any:
    said = host.run("xgen-model", "status", "--output", "json", check=False)
    return json.loads(said)["servers"][0] if said.startswith("{") else None


def loaded(host: Machine) -> int:
    """Waits for the model to serve, asks it, and returns its pid."""

    def look() -> int | None:
        server = view(host)
        models = server["loaded_models"] if server else []
        return int(models[0]["pid"]) if models else None

    try:
        pid = wait_for(look, what="the model serves", seconds=120)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{host.log(UNIT)}") from exc
    asked = (
        "curl -sS -H 'Content-Type: application/json' localhost:8000/v1/chat/completions"
        """ -d '{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'"""
    )
    assert "choices" in json.loads(host.shell(asked))
    return pid


def is_alive(host: Machine, pid: int) -> bool:
    return host.shell(f"kill -0 {pid} 2>/dev/null && echo alive", check=False) == "alive\n"


def main_pid(host: Machine) -> str:
    return host.properties(UNIT, "MainPID")["MainPID"]


def test_the_unit_is_ready_and_says_what_serves(host: Machine) -> None:
    shown = host.properties(UNIT, "ActiveState", "Type", "Delegate", "User")
    assert shown["ActiveState"] == "active"
    wait_until(
        lambda: "1 of 1 models loaded" in host.properties(UNIT, "StatusText")["StatusText"],
        what="what serves is said",
    )
    group = host.shell(f"cat /proc/{loaded(host)}/cgroup | grep ^0::").strip()
    assert group.startswith(f"0::/system.slice/{UNIT}/xgen-")
    assert host.shell(f"stat -c %U /proc/{loaded(host)}").strip() == "xgen-model"


def test_a_restart_and_a_stop_cost_no_model(host: Machine) -> None:
    pid, first = loaded(host), main_pid(host)
    host.run("systemctl", "restart", UNIT)
    assert loaded(host) == pid
    assert main_pid(host) != first
    host.run("systemctl", "stop", UNIT)
    assert host.properties(UNIT, "ActiveState", "Result") == {
        "ActiveState": "inactive",
        "Result": "success",
    }
    assert is_alive(host, pid)
    host.run("systemctl", "start", UNIT)
    assert loaded(host) == pid


def test_a_killed_agent_comes_back_and_adopts(host: Machine) -> None:
    pid, first = loaded(host), main_pid(host)
    host.run("kill", "-KILL", first)
    wait_until(lambda: main_pid(host) not in ("0", first), what="the next agent", seconds=60)
    assert loaded(host) == pid


def test_the_watchdog_ends_an_agent_that_stands_still(host: Machine) -> None:
    pid = loaded(host)
    host.shell(
        f"mkdir -p /etc/systemd/system/{UNIT}.d && "
        f"printf '[Service]\\nWatchdogSec=2s\\nTimeoutAbortSec=20s\\n' "
        f"> /etc/systemd/system/{UNIT}.d/w.conf && "
        f"systemctl daemon-reload && systemctl restart {UNIT}"
    )
    first = main_pid(host)
    assert loaded(host) == pid
    host.run("kill", "-STOP", first)
    wait_until(lambda: main_pid(host) not in ("0", first), what="the next agent", seconds=120)
    assert loaded(host) == pid
    assert "Watchdog timeout" in host.log(UNIT)
    host.shell(f"rm -r /etc/systemd/system/{UNIT}.d && systemctl daemon-reload")
    host.run("systemctl", "restart", UNIT)
    assert loaded(host) == pid


def test_a_second_run_keeps_what_was_edited(host: Machine) -> None:
    pid, settings = loaded(host), host.shell("cat /etc/xgen-model/xgen-model.env")
    first, release = main_pid(host), host.run("readlink", "/opt/xgen-model/current")
    said = host.run(INSTALL, "--wheelhouse", "/wheels")
    assert "is installed; --upgrade takes another" in said
    assert host.shell("cat /etc/xgen-model/xgen-model.env") == settings
    assert "XGEN_NODE=host-a" not in host.shell("cat /etc/xgen-model/xgen-model.env.dist")
    assert (main_pid(host), loaded(host)) == (first, pid)
    assert host.run("readlink", "/opt/xgen-model/current") == release


def test_an_upgrade_and_the_way_back_cost_no_model(host: Machine) -> None:
    pid, first = loaded(host), host.run("readlink", "/opt/xgen-model/current")
    with pytest.raises(Failed, match="nothing was changed"):
        host.run(INSTALL, "--upgrade", "--wheelhouse", "/wheels", "--version", "99")
    assert host.run("readlink", "/opt/xgen-model/current") == first
    host.shell(f"umask 077; {INSTALL} --upgrade --wheelhouse /wheels")
    second = host.run("readlink", "/opt/xgen-model/current")
    assert second != first
    assert loaded(host) == pid
    host.run(INSTALL, "--rollback")
    assert host.run("readlink", "/opt/xgen-model/current") == first
    assert loaded(host) == pid


def test_an_upgrade_killed_before_its_restart_costs_no_release(host: Machine) -> None:
    pid, first = loaded(host), running_release(host)
    killed_at(host, "systemctl", UNIT, "--upgrade", "--wheelhouse", "/wheels")
    half_done, before = links(host)
    assert (before, running_release(host)) == (first, first)
    host.run(INSTALL, "--upgrade", "--wheelhouse", "/wheels")
    current, before = links(host)
    assert before == first
    assert current not in (first, half_done)
    assert set(host.shell("ls -d /opt/xgen-model/releases/*").split()) == {current, first}
    assert running_release(host) == current
    assert loaded(host) == pid


def test_a_kill_between_the_links_leaves_the_release_before_in_reach(host: Machine) -> None:
    pid, (current, before) = loaded(host), links(host)
    killed_at(host, "mv", "/opt/xgen-model/current", "--upgrade", "--wheelhouse", "/wheels")
    assert links(host)[0] == running_release(host) == current
    host.run(INSTALL, "--rollback")
    assert links(host) == [before, current]
    assert running_release(host) == before
    assert loaded(host) == pid


def test_each_release_brings_its_units(host: Machine) -> None:
    pid = loaded(host)
    host.shell(f"echo '# for a test' >> /opt/xgen-model/previous/units/{UNIT}")
    look = f"grep -c 'for a test' /etc/systemd/system/{UNIT}"
    host.run(INSTALL, "--rollback")
    assert host.shell(look) == "1\n"
    host.run(INSTALL, "--rollback")
    assert host.shell(look, check=False) == "0\n"
    assert loaded(host) == pid


def test_an_agent_that_was_stopped_stays_so(host: Machine) -> None:
    pid, first = loaded(host), links(host)
    host.run("systemctl", "disable", "--now", UNIT)
    for options in (["--upgrade", "--wheelhouse", "/wheels"], ["--rollback"]):
        assert "is stopped, and left so" in host.run(INSTALL, *options)
        shown = host.properties(UNIT, "ActiveState", "UnitFileState")
        assert shown == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    assert links(host)[0] == first[0]
    host.run("systemctl", "enable", "--now", UNIT)
    assert loaded(host) == pid


def test_two_at_once_do_not_meet(host: Machine) -> None:
    pid, first = loaded(host), host.run("readlink", "/opt/xgen-model/current")
    with pytest.raises(Failed, match="is at work on this host"):
        host.shell(f"flock /run/xgen-model-install.lock {INSTALL} --rollback")
    assert host.run("readlink", "/opt/xgen-model/current") == first
    assert loaded(host) == pid


def test_models_that_cannot_be_stopped_are_not_left_by_an_uninstall(host: Machine) -> None:
    pid = loaded(host)
    host.run("mv", "/usr/local/bin/xgen-model", "/usr/local/bin/aside")
    try:
        with pytest.raises(Failed, match="no model can be stopped"):
            host.run(INSTALL, "--uninstall", "--purge")
    finally:
        host.run("mv", "/usr/local/bin/aside", "/usr/local/bin/xgen-model")
    assert loaded(host) == pid


def test_one_command_stops_all_of_it_and_one_starts_it_again(host: Machine) -> None:
    pid = loaded(host)
    host.run("systemctl", "start", "xgen-model-stop.service")
    assert host.properties(UNIT, "ActiveState")["ActiveState"] == "inactive"
    assert not is_alive(host, pid)
    host.run("systemctl", "start", UNIT)
    assert loaded(host) != pid
