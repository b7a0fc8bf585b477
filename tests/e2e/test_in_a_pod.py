"""An agent in a pod: its service account, as kubelet mounts and rotates it, is all it needs."""

import subprocess
from pathlib import Path

import pytest

from reconciler.source.kubernetes_access import SERVICE_ACCOUNT
from tests.cli.command import xgen_model
from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.source.atomic_writer import ConfigMapVolume
from tests.source.git_https import certificate
from tests.source.kubernetes_server import Server, serving

pytestmark = pytest.mark.slow

PLACE = "configmap://models/models"


def pod_of(account: Path) -> list[str]:
    """What a command is started with so that it has this service account, and nobody else."""
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs the right to mount")
    mount = (
        f"mount -t tmpfs tmpfs /var/run && mkdir -p {SERVICE_ACCOUNT} && "
        f'mount --bind {account} {SERVICE_ACCOUNT} && exec "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", mount, "sh"]


def test_its_service_account_is_enough_and_may_be_rotated(agent: Agent, tmp_path: Path) -> None:
    authority = certificate(tmp_path, "ours")
    account = ConfigMapVolume(tmp_path / "account")
    account.write({"token": "old", "ca.crt": authority.read_text(), "namespace": "xgen-model"})
    with serving(Server(certificate=authority, tokens={"old"})) as server:
        server.store.put({"models.yaml": manifest(model("a"))})
        agent.wrapper = pod_of(account.folder)
        agent.environment |= {
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        agent.start("--manifest", PLACE)
        agent.wait_up()
        pid = agent.wait_state("a", "loaded")["pid"]

        server.tokens = {"new"}
        server.drop()
        agent.post("/api/management/reconcile", {})
        assert "(401)" in agent.wait_condition("SourceReady", "False")["message"]
        server.store.put({"models.yaml": manifest(model("a"), model("b"))})
        account.write({"token": "new", "ca.crt": authority.read_text(), "namespace": "xgen-model"})
        agent.wait_state("b", "loaded")
        assert agent.wait_state("a", "loaded")["pid"] == pid
        asked = {token for _, token in server.asked}
        assert asked == {"old", "new"}

        env = {name: agent.environment[name] for name in agent.environment if "KUBE" in name}
        told = xgen_model("doctor", "--data-dir", agent.data, env=env)
        assert f"cannot read {SERVICE_ACCOUNT}/ca.crt: no such file" in told.stdout
        assert "the pod has no service account token" in told.stdout
