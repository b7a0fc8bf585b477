"""A person edits the manifest in a git repository, and an agent follows it."""

import os
import shutil
import signal
import stat
import sys
from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, is_alive
from tests.e2e.manifests import manifest, model
from tests.e2e.test_history import wait_outcomes
from tests.source.git_repository import Repository
from tests.waiting import wait_for, wait_until

NEVER = "3600"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(root=tmp_path / "remote")
    made.push({"prod/models.yaml": manifest(model("a"))})
    return made


def start(agent: Agent, repository: Repository, *, interval: str = "0.2") -> None:
    url = repository.url("ref=main&path=prod")
    agent.start("--manifest", url, "--git-interval", interval, "--git-timeout", NEVER)
    agent.wait_up()


def wait_revision(agent: Agent, **revision: str | None) -> None:
    wait_until(
        lambda: revision.items() <= agent.self_view()["revision"].items(),
        what=f"{revision}; log:\n{agent.recent_log}",
    )


def gits(agent: Agent) -> list[int]:
    """Living gits and helpers of this agent: by the configuration that only they get."""
    mark = f"GIT_CONFIG_GLOBAL={agent.data}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or not is_alive(int(entry.name)):
            continue
        try:
            if mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def hanging_git(agent: Agent, *, when: Path) -> None:
    """A git that, while `when` is there, takes its lock in a fetch and then hangs."""
    real = shutil.which("git")
    path = agent.root / "bin" / "git"
    path.parent.mkdir()
    path.write_text(
        f"""#!{sys.executable}
import os, subprocess, sys
if "fetch" in sys.argv and os.path.exists({str(when)!r}):
    open("shallow.lock", "w").close()
    helper = subprocess.Popen(["sleep", "600"])
    open("helper", "w").write(str(helper.pid))
    helper.wait()
os.execv({real!r}, sys.argv)
"""
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    agent.environment["PATH"] = f"{path.parent}:{os.environ['PATH']}"


def helper_of(agent: Agent) -> int:
    """The helper of a git that hangs in its fetch."""

    def look() -> int | None:
        for file in agent.data.glob("git/repository-*/helper"):
            if text := file.read_text():
                return int(text)
        return None

    return wait_for(look, what="a git that hangs")


def test_what_is_pushed_runs(agent: Agent, repository: Repository) -> None:
    start(agent, repository)
    first = agent.wait_state("a", "loaded")
    commit = repository.push({"prod/more.yaml": manifest(model("b"))})
    agent.wait_state("b", "loaded")
    wait_revision(agent, applied=commit, attempted=commit)
    assert agent.wait_condition("SourceReady", "True")["message"].startswith("read git+file://")
    (repository.work / "prod/more.yaml").unlink()
    repository.push()
    agent.wait_gone("b")
    assert agent.wait_state("a", "loaded")["pid"] == first["pid"]


def test_reconcile_looks_at_once(agent: Agent, repository: Repository) -> None:
    start(agent, repository, interval=NEVER)
    agent.wait_state("a", "loaded")
    commit = repository.push({"prod/models.yaml": manifest(model("a"), model("b"))})
    assert agent.post("/api/management/reconcile", {}).status_code == 200
    wait_revision(agent, applied=commit)
    commit = repository.push({"prod/models.yaml": manifest(model("a"))})
    assert xgen_model("reconcile", "--server", agent.url).returncode == 0
    wait_revision(agent, applied=commit)


def test_a_webhook_looks_at_once_if_it_knows_the_secret(
    agent: Agent, repository: Repository, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    agent.args += ["--git-webhook-secret-file", str(secret)]
    start(agent, repository, interval=NEVER)
    agent.wait_state("a", "loaded")
    seen = agent.self_view()["revision"]
    commit = repository.push({"prod/models.yaml": manifest(model("a"), model("b"))})
    body = {"ref": "refs/heads/main"}
    path = "/api/management/pushed"
    token = {"X-Gitlab-Token": "s3cr3t"}
    assert agent.post(path, body, **token).status_code == 503
    secret.write_text("")
    assert agent.post(path, body, **{"X-Gitlab-Token": ""}).status_code == 503
    secret.write_text("s3cr3t\n")
    for wrong in ({}, {"X-Gitlab-Token": "s3cr3"}, {"X-Hub-Signature-256": f"sha256={'0' * 64}"}):
        assert agent.post(path, body, **wrong).status_code == 403
    assert agent.self_view()["revision"] == seen
    # As it comes through a proxy in front of the agent.
    answer = agent.post(path, body, **token, **{"X-Forwarded-For": "192.0.2.1"})
    assert (answer.status_code, answer.json()) == (202, {"api": 1, "looking": True})
    wait_revision(agent, applied=commit)


@pytest.mark.slow
def test_nothing_that_happens_to_the_repository_stops_a_model(
    agent: Agent, repository: Repository
) -> None:
    """Scenarios 40 to 42: argo-cd#2573, #3996, #10987, flux2#1577."""
    start(agent, repository)
    pid = agent.wait_state("a", "loaded")["pid"]
    good = repository.run("rev-parse", "HEAD")

    broken = repository.push({"prod/models.yaml": "spec: ["})
    wait_revision(agent, applied=good, attempted=broken)

    repository.run("rm", "-r", "--quiet", "prod")
    gone = repository.push({"x": "x"})
    assert "there is no prod" in agent.wait_condition("SourceReady", "False")["message"]
    wait_revision(agent, applied=good, attempted=gone)
    wait_outcomes(agent, "refused", "refused", "applied")

    repository.run("update-ref", "-d", "refs/heads/main", folder=repository.bare)
    _wait_said(agent, "no branch and no tag main")

    away = repository.bare.rename(repository.root / "away")
    _wait_said(agent, "it was reached last at 20")
    assert agent.wait_state("a", "loaded")["pid"] == pid

    agent.stop(signal.SIGKILL)
    start(agent, repository)
    _wait_said(agent, "not reached since the agent started")
    assert agent.wait_state("a", "loaded")["pid"] == pid

    away.rename(repository.bare)
    commit = repository.push({"prod/models.yaml": manifest(model("a"), model("b"))})
    agent.post("/api/management/reconcile", {})
    wait_revision(agent, applied=commit, attempted=commit)
    agent.wait_state("b", "loaded")
    assert agent.wait_state("a", "loaded")["pid"] == pid


def _wait_said(agent: Agent, words: str) -> None:
    wait_until(
        lambda: words in (agent.condition("SourceReady") or {}).get("message", ""),
        what=f"{words}; log:\n{agent.recent_log}",
    )


@pytest.mark.slow
def test_a_manifest_that_moves_from_a_folder_to_a_repository_is_the_same_files(
    agent: Agent, repository: Repository
) -> None:
    """One of them is broken on the way, and counts as it stood in the folder (R2)."""
    agent.write(manifest(model("a")), "models.yaml")
    agent.write(manifest(model("b")), "more.yaml")
    agent.start()
    agent.wait_up()
    pids = [agent.wait_state(name, "loaded")["pid"] for name in "ab"]
    agent.stop(signal.SIGKILL)
    commit = repository.push({"prod/more.yaml": "spec: ["})
    start(agent, repository)
    wait_revision(agent, attempted=commit)
    assert "more.yaml" in agent.wait_condition("ManifestValid", "False")["message"]
    assert [agent.wait_state(name, "loaded")["pid"] for name in "ab"] == pids


def test_an_agent_that_ends_takes_a_hanging_git_with_it(
    agent: Agent, repository: Repository, tmp_path: Path
) -> None:
    hangs = tmp_path / "hangs"
    hangs.touch()
    hanging_git(agent, when=hangs)
    start(agent, repository)
    helper = helper_of(agent)
    assert agent.stop() == 0
    wait_until(lambda: not is_alive(helper) and not gits(agent), what="all of git dead")


@pytest.mark.slow
def test_a_git_that_outlives_a_killed_agent_is_in_nobodys_way(
    agent: Agent, repository: Repository, tmp_path: Path
) -> None:
    """Scenario 25: gpustack#1621, #1882: a stale lock file blocks for ever."""
    hangs = tmp_path / "hangs"
    hanging_git(agent, when=hangs)
    start(agent, repository)
    pid = agent.wait_state("a", "loaded")["pid"]
    hangs.touch()
    commit = repository.push({"prod/models.yaml": manifest(model("a"), model("b"))})
    helper = helper_of(agent)
    agent.stop(signal.SIGKILL)
    hangs.unlink()
    start(agent, repository)
    wait_revision(agent, applied=commit)
    assert agent.wait_state("a", "loaded")["pid"] == pid
    assert is_alive(helper)
    for each in gits(agent):
        agent.end_stranger(each)


@pytest.mark.slow
def test_a_url_that_cannot_be_is_bad_usage_and_repeats_no_password(tmp_path: Path) -> None:
    url = "git+https://bot:s3cr3t@host/r.git"
    for command in (["run", "--data-dir", str(tmp_path)], ["plan", "--offline"], ["doctor"]):
        done = xgen_model(*command, "--manifest", url)
        assert done.returncode == 64
        assert "s3cr3t" not in done.stdout + done.stderr
        assert "--git-token-file" in done.stderr.replace("\n", " ")


@pytest.mark.slow
def test_plan_and_doctor_read_a_repository_and_validate_says_how(
    repository: Repository, tmp_path: Path
) -> None:
    url = repository.url("ref=main&path=prod")
    data = ("--data-dir", str(tmp_path / "none"))
    done = xgen_model("plan", "--offline", "--node", "n", "--manifest", url, *data)
    assert (done.returncode, done.stderr) == (2, "")
    assert "+ a" in done.stdout
    looked = xgen_model("doctor", "--manifest", url, *data)
    assert f"{url} is valid, with 1 models" in looked.stdout
    repository.push({"prod/models.yaml": manifest(model("a", typo="1"))})
    done = xgen_model("plan", "--offline", "--manifest", url, *data)
    assert done.returncode == 1
    assert "prod/models.yaml:6:" in done.stderr
    missing = xgen_model("plan", "--offline", "--manifest", f"{url}x", *data)
    assert (missing.returncode, "there is no prodx" in missing.stderr) == (1, True)
    refused = xgen_model("validate", url)
    assert (refused.returncode, "plan --offline" in refused.stderr) == (64, True)
