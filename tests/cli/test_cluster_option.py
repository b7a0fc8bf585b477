"""What tells an agent of its cluster, and of its pod."""

import pytest
import typer

from reconciler.cli.cluster_option import peering_of, pod_ip, pod_name
from reconciler.plan.peering import DnsPeers


@pytest.mark.parametrize("given", [None, "", "  "])
def test_an_agent_that_is_told_nothing_is_alone(given: str | None) -> None:
    assert peering_of(given) is None


def test_peers_are_read_and_refused_by_the_flags_name() -> None:
    assert peering_of("dns:agents:8000") == DnsPeers(name="agents", port=8000)
    with pytest.raises(typer.BadParameter, match="'gpu-b' has no port") as caught:
        peering_of("gpu-a:8000,gpu-b")
    assert caught.value.param_hint == "--peers (XGEN_PEERS)"


def test_off_kubernetes_there_is_no_pod() -> None:
    assert (pod_name({}), pod_ip({})) == (None, None)
    assert (pod_name({"POD_NAME": " "}), pod_ip({"POD_IP": ""})) == (None, None)


def test_a_pod_has_the_name_and_the_address_that_it_was_told() -> None:
    assert pod_name({"POD_NAME": "agent-7"}) == "agent-7"
    assert pod_ip({"POD_IP": "10.0.0.7"}) == "10.0.0.7"
    assert pod_ip({"POD_IP": "FD00:0::7"}) == "fd00::7"


def test_refuses_a_pods_address_that_is_none() -> None:
    with pytest.raises(typer.BadParameter, match=r"'\$\(POD_IP\)' is no IP address"):
        pod_ip({"POD_IP": "$(POD_IP)"})
