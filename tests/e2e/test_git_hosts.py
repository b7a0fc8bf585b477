"""An agent that follows a repository on a host with TLS and a token, and one over ssh."""

from pathlib import Path

import pytest

from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.source.git_https import GitHost, certificate, serving
from tests.source.git_repository import Repository
from tests.source.git_sshd import sshd
from tests.waiting import wait_until

pytestmark = pytest.mark.net

TOKEN = "t0k3n-of-the-agent"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(root=tmp_path / "remote")
    made.push({"prod/models.yaml": manifest(model("a"))})
    return made


def wait_applied(agent: Agent, commit: str) -> None:
    wait_until(
        lambda: agent.self_view()["revision"]["applied"] == commit,
        what=f"{commit} applied; log:\n{agent.recent_log}",
    )


def test_over_https_with_a_token_that_shows_nowhere(
    agent: Agent, repository: Repository, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    made = GitHost(
        projects=repository.root,
        certificate=certificate(tmp_path, "ours"),
        passwords={"x-access-token": TOKEN},
    )
    with serving(made) as host:
        url = f"git+https://{host.place}/repository.git?ref=main&path=prod"
        files = ("--git-token-file", str(token), "--git-ca-file", str(host.certificate))
        agent.start("--manifest", url, *files, "--git-interval", "0.2")
        agent.wait_up()
        pid = agent.wait_state("a", "loaded")["pid"]
        wait_applied(agent, repository.push({"prod/models.yaml": manifest(model("a"), model("b"))}))

        host.passwords = {"x-access-token": "another"}
        said = agent.wait_condition("SourceReady", "False")["message"]
        assert "refuses the token in --git-token-file" in said
        commit = repository.push({"prod/models.yaml": manifest(model("a"))})
        token.write_text("another")
        wait_applied(agent, commit)
        assert agent.wait_state("a", "loaded")["pid"] == pid

        pages = [
            agent.client.get(f"{agent.url}{path}").text
            for path in ("/cluster", "/api/management/events", "/metrics", "/api/management/plan")
        ]
    shown = {path: path.read_bytes() for path in agent.data.rglob("*") if path.is_file()}
    shown[agent.root / "agent.log"] = agent.log.encode()
    assert not [path for path, content in shown.items() if TOKEN.encode() in content]
    assert not [page for page in pages if TOKEN in page]


def test_over_ssh(agent: Agent, repository: Repository, tmp_path: Path) -> None:
    with sshd(tmp_path / "sshd") as host:
        url = f"git+ssh://{host.place}{repository.bare}?ref=main&path=prod"
        files = ("--git-ssh-key", str(host.key), "--git-known-hosts", str(host.known_hosts))
        agent.start("--manifest", url, *files, "--git-interval", "0.2")
        agent.wait_up()
        agent.wait_state("a", "loaded")
        wait_applied(agent, repository.push({"prod/models.yaml": manifest(model("a"), model("b"))}))
    assert "Connection refused" in agent.wait_condition("SourceReady", "False")["message"]
    assert agent.wait_state("a", "loaded")
