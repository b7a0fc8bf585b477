"""The commands as an operator uses them, each a process, against a real agent."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.command import on_a_terminal, started, xgen_model
from tests.cli.plan_answers import plan_of
from tests.e2e.agent import Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model

MODELS = manifest(
    model("chat", aliases="[gpt-4o-mini]", extra_args="{ctx_size: 2048}"),
    model("off", enabled="false"),
    model("far", nodes="[node-b]"),
)


def up(agent: Agent) -> Agent:
    """It serves `chat`; `off` is disabled, `far` is for another node."""
    agent.write(MODELS)
    agent.start()
    agent.wait_up()
    agent.wait_state("chat", "loaded")
    return agent


@pytest.fixture
def running(agent: Agent) -> Agent:
    return up(agent)


@pytest.fixture(scope="module")
def untouched(make_lasting_agent: MakeAgent) -> Agent:
    """One agent for the tests that only ask."""
    agent = make_lasting_agent()
    agent.model_file()
    return up(agent)


def candidate(folder: Path, *models: str) -> Path:
    path = folder / "candidate.yaml"
    path.write_text(manifest(*models), encoding="utf-8")
    return path


def test_status_says_the_same_at_80_and_120_columns_and_piped(untouched: Agent) -> None:
    pid = untouched.wait_state("chat", "loaded")["pid"]
    where = ("status", "--data-dir", untouched.data)

    piped = xgen_model(*where).stdout.splitlines()
    wide = on_a_terminal(*where, columns=120, env={"NO_COLOR": "1"})[1].splitlines()
    narrow = on_a_terminal(*where, columns=80, env={"NO_COLOR": "1"})[1].splitlines()

    assert piped[0].startswith("node-a  agent 0.1.0, manifest ")
    assert piped[0].endswith(", takes requests")
    title, none = (f"{text:<{max(len(str(pid)), 3)}}" for text in ("PID", "-"))
    assert piped[2:] == [
        f"MODEL               STATE     TYPE  BACKEND           {title}  BUSY  REASON",
        f"chat (gpt-4o-mini)  loaded    llm   llama-server-cpu  {pid}  0     serves (pid {pid})",
        f"off                 disabled  llm   llama-server-cpu  {none}  0     enabled: false",
    ]
    assert [line.rstrip() for line in wide[2:]] == piped[2:]
    assert "BUSY" not in narrow[2]
    assert all(len(line) <= 80 for line in narrow)
    assert narrow[-1].rstrip().endswith(f"  {none}  enabled: false")


def test_status_as_json_is_the_view_of_the_cluster(untouched: Agent) -> None:
    view = json.loads(xgen_model("status", "--server", untouched.url, "--output", "json").stdout)

    assert (view["api"], view["count"], view["self_node"]) == (1, 1, "node-a")


@pytest.mark.slow
def test_watch_redraws_without_erasing_and_goes_on_past_a_restart(running: Agent) -> None:
    with started("status", "--watch", "--data-dir", running.data, columns=80) as watching:
        watching.wait_for("serves (pid")
        running.stop(signal.SIGTERM)
        watching.wait_for("no answer since")
        watching.wait_for("What it said last:")
        running.start()
        running.wait_up()
        pid = running.wait_state("chat", "loaded")["pid"]
        watching.wait_for(f"serves (pid {pid})")

        assert watching.interrupt() == 130
        assert "\x1b[2J" not in watching.raw
        assert "\x1b[2K" not in watching.raw
        assert watching.raw.count("\x1b[?1049h") == watching.raw.count("\x1b[?1049l") == 1
        assert watching.text.rstrip().endswith("enabled: false")


def test_watch_prints_a_line_a_change_where_it_is_piped(running: Agent) -> None:
    with started("status", "--watch", "--data-dir", running.data) as watching:
        watching.wait_for("node-a off disabled enabled: false\n")
        running.write(manifest(model("chat", enabled="false")))
        watching.wait_for("node-a off gone\n")
        watching.wait_for("node-a chat disabled enabled: false\n")


def test_plan_against_an_agent_says_what_would_change(running: Agent, tmp_path: Path) -> None:
    running.write(
        manifest(
            model("chat", extra_args="{ctx_size: 2048}"),
            model("goes"),
            model("same", type="embedding"),
            model("off", enabled="false"),
        )
    )
    for name in ("chat", "goes", "same"):
        running.wait_state(name, "loaded")
    file = candidate(
        tmp_path,
        model("chat", extra_args="{ctx_size: 4096}"),
        model("new"),
        model("same", type="embedding", aliases="[e1]"),
        model("off", enabled="false"),
    )

    result = xgen_model("plan", "--manifest", file, "--data-dir", running.data)

    assert (result.returncode, result.stderr) == (2, "")
    timed = "      ready after about "  # of what was loaded here before
    lines = [line for line in result.stdout.splitlines() if not line.startswith(timed)]
    through = f"asked through the agent at {running.url}"
    assert lines[0] == f"node-a, compared with what runs there ({through})"
    assert lines[2].startswith("  ^ chat  surge      spec changed (1:")
    assert "KV cache not known for 4,096 tokens" in lines[5]
    (memory,) = [number for number, line in enumerate(lines) if line.startswith("  memory: ")]
    assert " used, at least " in lines[memory]
    lines[memory] = "MEMORY"
    assert [lines[1], *lines[3:5], *lines[6:]] == [
        "",
        "      no gap (surge)",
        "      source: gguf/test_model, already cached",
        "      extra_args.ctx_size: 2048 → 4096",
        "  - goes  stop       removed from the manifest",
        "  + new   start      in the manifest and not running",
        "      source: gguf/test_model, already cached",
        "      needs at least 90 MiB of memory (weights 0 MiB, KV cache not known, 90 MiB else)",
        "  = off   unchanged  enabled: false",
        "  > same  reroute    changes without a restart",
        '      aliases: [] → ["e1"]',
        "  in this order: stop goes → start new → start chat → stop chat",
        "MEMORY",
        "",
        "+ start  ^ surge: restart without a gap  > reroute: no restart  - stop  = unchanged",
        "1 to start, 0 to restart, 1 to stop, 1 to surge, 1 to reroute, 1 unchanged",
    ]


def test_what_plan_said_is_what_the_agent_does(running: Agent, tmp_path: Path) -> None:
    file = candidate(tmp_path, model("chat", extra_args="{ctx_size: 4096}"), model("new"))
    old = running.wait_state("chat", "loaded")
    planned = plan_of(
        xgen_model(
            *("plan", "--manifest", file, "--data-dir", running.data, "--output", "json")
        ).stdout
    )

    running.write(file.read_text(encoding="utf-8"))
    running.wait_state("new", "loaded")
    running.wait_model("chat", lambda now: now["pid"] != old["pid"] and now["state"] == "loaded")
    running.wait_gone("off")
    after = xgen_model("plan", "--manifest", file, "--data-dir", running.data)

    (node,) = planned["nodes"]
    assert {each["model"]: each["action"] for each in node["models"]} == {
        "chat": "surge",
        "new": "start",
        "off": "unchanged",
    }
    assert (after.returncode, after.stdout.splitlines()[-1]) == (
        0,
        "0 to start, 0 to restart, 0 to stop, 2 unchanged",
    )


def test_plan_refuses_what_the_node_has_refused(running: Agent) -> None:
    running.write(manifest(model("chat", backend="xllamacpp", extra_args="{bogus: 1}")))
    running.wait_model("chat", lambda now: bool(now["target"]))

    own = xgen_model("plan", "--data-dir", running.data)
    same = xgen_model("plan", "--data-dir", running.data, "--manifest", running.manifests)

    assert (own.returncode, same.returncode) == (1, 1)
    assert "  ! chat  refused    " in own.stdout
    assert "0 to start, 0 to restart, 0 to stop, 1 refused, 0 unchanged\n" in same.stdout


def test_plan_of_a_suspended_node_is_one_answer(running: Agent) -> None:
    settings = "  node_settings:\n    node-a: {suspend: true}\n"
    pending = model("chat", extra_args="{ctx_size: 4096}"), model("new")
    running.write(manifest(*pending, spec=settings))
    running.wait_model("chat", lambda now: bool(now["target"]))
    running.wait_state("new", "pending")

    own = xgen_model("plan", "--data-dir", running.data, "--output", "json")
    same = xgen_model(
        *("plan", "--data-dir", running.data, "--output", "json"),
        *("--manifest", running.manifests),
    )

    assert (own.returncode, same.returncode) == (2, 2)
    told, compared = (plan_of(each.stdout)["nodes"][0] for each in (own, same))
    assert told["models"] == compared["models"]
    found = {each["model"]: (each["action"], each["held"]) for each in told["models"]}
    assert {name: action for name, (action, _) in found.items()} == {
        "chat": "surge",
        "new": "start",
    }
    assert all(held.startswith("suspended") for _, held in found.values())
    assert (told["order"], len(told["notes"])) == ([], 1)


def test_plan_without_a_manifest_is_the_agents_own(untouched: Agent) -> None:
    result = xgen_model("plan", "--server", untouched.url)

    assert result.returncode == 0
    assert result.stdout.startswith(f"node-a, as the agent at {untouched.url} plans it now\n")
    assert "  = chat  unchanged  serves (pid " in result.stdout


def test_plan_for_a_node_that_the_agent_does_not_know(untouched: Agent, tmp_path: Path) -> None:
    file = candidate(tmp_path, model("chat"))
    asked = ("plan", "--manifest", file, "--node", "node-b", "--data-dir", untouched.data)

    result = xgen_model(*asked)

    assert result.returncode == 1
    assert "knows node-a; add --offline" in result.stderr
    assert xgen_model(*asked, "--offline").returncode == 2


def test_logs_follow_a_model_over_its_restart(running: Agent) -> None:
    where = ("--data-dir", running.data)
    last = xgen_model("logs", "gpt-4o-mini", "-n", "1", *where).stdout
    assert last.startswith("listening on ")

    with started("logs", "chat", "-f", *where) as following:
        following.wait_for("listening on ")
        running.write(manifest(model("chat", extra_args="{ctx_size: 4096}")))
        following.wait_for("--ctx-size 4096")
        following.wait_for("listening on ", times=2)
        assert following.interrupt() == 130


def test_logs_are_read_from_the_data_folder_when_the_agent_is_gone(running: Agent) -> None:
    where = ("--data-dir", running.data)
    running.stop()

    result = xgen_model("logs", "chat", "-n", "500", *where)
    unknown = xgen_model("logs", "chta", *where)

    assert result.returncode == 0
    assert "listening on " in result.stdout
    assert result.stderr == f"no agent is known; reading {running.data}/logs/chat@1.log\n"
    assert unknown.returncode == 1
    assert "it has logs of chat\n" in unknown.stderr


def test_logs_of_a_model_that_was_removed_can_still_be_read(running: Agent) -> None:
    running.write(manifest(model("other")))
    running.wait_gone("chat")

    result = xgen_model("logs", "chat", "--data-dir", running.data)

    assert result.returncode == 0
    assert "listening on " in result.stdout
    assert "cannot find model 'chat'" in result.stderr


def test_an_unknown_model_names_the_nearest(untouched: Agent) -> None:
    result = xgen_model("logs", "chst", "--data-dir", untouched.data)

    assert (result.returncode, result.stdout) == (1, "")
    assert "nearest: chat" in result.stderr


def test_a_shell_completes_the_names_of_models(untouched: Agent) -> None:
    asked = {
        "_XGEN_MODEL_COMPLETE": "complete_bash",
        "COMP_WORDS": "xgen-model logs c",
        "COMP_CWORD": "2",
        "XGEN_DATA_DIR": str(untouched.data),
    }

    assert xgen_model(env=asked).stdout == "chat\n"


def test_events_tell_the_story_and_go_on_past_a_restart(running: Agent) -> None:
    where = ("--data-dir", running.data)
    page = json.loads(xgen_model("events", "--model", "chat", "--output", "json", *where).stdout)
    assert page["api"] == 1
    assert page["events"][-1]["reason"].startswith("serves (pid ")

    with started("events", "-f", "--output", "json", *where) as following:
        following.wait_for('"BackendLoaded"')
        running.stop(signal.SIGTERM)
        following.wait_for("waiting for it to come back")
        running.start()
        running.wait_up()
        following.wait_for('"BackendLoaded"', times=2)
        assert following.text.count('"AgentStarted"') == 2
        assert following.interrupt() == 130


def test_events_fit_a_terminal(untouched: Agent) -> None:
    shown = on_a_terminal("events", "--data-dir", untouched.data, columns=80, env={"NO_COLOR": "1"})

    lines = shown[1].splitlines()
    assert (lines[0].split()[0], lines[0].split()[-1]) == ("TIME", "REASON")
    assert max(map(len, lines)) <= 80
    assert xgen_model("events", "-n", "1", "--data-dir", untouched.data).stdout.count("\n") == 2


@pytest.mark.slow
def test_reconcile_retries_what_failed_and_waits_for_the_outcome(running: Agent) -> None:
    running.write(manifest(model("chat", env='{STAND_IN: "--exit-after 0 --exit-code 3"}')))
    running.wait_model("chat", lambda entry: (entry["target"] or entry)["state"] == "error")
    where = ("--data-dir", running.data)

    plain = xgen_model("reconcile", *where)
    retried = xgen_model("reconcile", "--retry", "--model", "chat", "--wait", *where)

    assert (plain.returncode, plain.stdout) == (0, "node-a looks again\n")
    assert retried.returncode == 1
    assert retried.stdout.startswith("node-a looks again, and tries chat anew\n")
    assert "; coming: error, exited with code 3" in retried.stdout


def test_reconcile_fails_where_the_newest_manifest_is_refused(running: Agent) -> None:
    """A deploy script took a refused push for a success: all served, by the one before."""
    running.write("spec: [")
    refused = xgen_model("reconcile", "--wait", "--data-dir", running.data)
    assert refused.returncode == 1
    assert "chat: loaded" in refused.stdout
    assert (
        "not in force: ManifestValid is False (Invalid): no valid ModelManifest" in refused.stderr
    )


def test_reconcile_waits_until_all_serve(running: Agent) -> None:
    running.write(manifest(model("chat", extra_args="{ctx_size: 4096}"), model("new")))

    result = xgen_model("reconcile", "--wait", "--output", "json", "--server", running.url)

    answer = json.loads(result.stdout)
    assert (result.returncode, answer["settled"], answer["not_taken"]) == (0, True, [])
    assert [(each["name"], each["state"]) for each in answer["models"]] == [
        ("chat", "loaded"),
        ("new", "loaded"),
    ]


def test_doctor_with_an_agent_tells_what_it_says_of_itself(running: Agent) -> None:
    running.write("spec: [")
    running.wait_condition("ManifestValid", "False")

    result = xgen_model("doctor", "--data-dir", running.data, "--output", "json")

    found: dict[tuple[str, str], str] = {}
    for check in json.loads(result.stdout)["checks"]:
        of = check["subject"], check["level"]
        found[of] = f"{found.get(of, '')}\n{check['message']}"
    assert f"pid {running.process.pid if running.process else 0} " in found["lock", "ok"]
    assert "1 of 2 models loaded" in found["agent of node-a", "ok"]
    assert "its backends are stopped when it is told to end" in found["agent of node-a", "ok"]
    assert "ManifestValid is False" in found["agent of node-a", "warn"]


@pytest.mark.slow
def test_an_agent_that_was_killed_is_told_from_one_that_is_busy(running: Agent) -> None:
    assert running.process is not None
    backend = running.wait_state("chat", "loaded")["pid"]
    running.process.kill()
    running.process.wait(10)

    result = xgen_model("status", "--data-dir", running.data)

    assert (result.returncode, result.stdout) == (1, "")
    assert f"what an agent left that has ended (pid {running.process.pid})" in result.stderr
    doctor = xgen_model("doctor", "--data-dir", running.data).stdout
    assert f"an agent that is gone left chat (pid {backend})" in doctor
    running.start()
    running.wait_up()
    assert running.wait_state("chat", "loaded")["pid"] == backend


def test_what_is_no_agent_is_told_from_one(untouched: Agent) -> None:
    backend = untouched.wait_state("chat", "loaded")["port"]

    result = xgen_model("events", "--server", f"127.0.0.1:{backend}")

    assert result.returncode == 1
    assert "what answers there is no xgen-model agent" in result.stderr
