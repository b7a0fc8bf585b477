"""The tasks by which an agent takes part in a cluster: none dies unseen."""

import asyncio

import pytest

from reconciler.events import Journal
from reconciler.node.clock import SystemClock
from reconciler.node.cluster import Cluster
from reconciler.plan.ids import NodeName
from reconciler.plan.peering import Address, ListedPeers
from reconciler.proxy.peers.client import PeerClient
from reconciler.proxy.peers.discovery import Discovery
from reconciler.proxy.peers.following import PeersFollowed
from reconciler.proxy.peers.own_address import own_address
from reconciler.proxy.peers.peer import Peers
from reconciler.proxy.peers.side import ClusterSide


class _Failing(PeersFollowed):
    """It fails the task of that name, which asks who there is."""

    fails = ""

    def current(self) -> Peers:
        task = asyncio.current_task()
        if task is not None and task.get_name() == self.fails:
            raise RuntimeError(f"{self.fails} fails")
        return super().current()


@pytest.mark.parametrize("name", ["silence", "peer-news"])
async def test_a_task_that_dies_ends_the_rest_and_is_heard_of(name: str) -> None:
    """Then the agent ends, as by any other of its parts, and is started again."""
    clock, own = SystemClock(), own_address(("127.0.0.1", 8000), [])
    discovery = Discovery(ListedPeers(addresses=()), own=own, clock=clock)
    async with PeerClient(lambda: None) as client, asyncio.timeout(30):
        followed = _Failing(discovery, client, agent_id="own", clock=clock)
        followed.fails = name
        side = ClusterSide(peers=followed, loads=followed)
        cluster = Cluster(side=side, discovery=discovery, followed=followed)
        with pytest.raises(ExceptionGroup) as failed:
            await cluster.run(Journal(node=NodeName("node-a"), now=lambda: "now"), _nobody)
    assert [str(each) for each in failed.value.exceptions] == [f"{name} fails"]


def _nobody(address: Address, seconds: float) -> None:
    raise AssertionError(f"{address} is given up after {seconds:g} s")
