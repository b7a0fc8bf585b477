"""This agent's side of the cluster: who finds the others, and who follows them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from reconciler.events import Journal
from reconciler.loop.clock import Clock
from reconciler.node.peer_news import tell_of_peers
from reconciler.plan.peering import Address
from reconciler.proxy.peers.client import PeerClient
from reconciler.proxy.peers.conditions import ClusterConditions
from reconciler.proxy.peers.discovery import Discovery
from reconciler.proxy.peers.following import PeersFollowed
from reconciler.proxy.peers.own_address import own_address
from reconciler.proxy.peers.side import ALONE, ClusterSide
from reconciler.proxy.peers.silence import Silence
from reconciler.proxy.peers.token_file import TokenFile
from reconciler.settings import Settings
from reconciler.status import Status

_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`side`: for the HTTP side. `discovery`, `followed`: to be run; None: the agent is alone."""

    side: ClusterSide
    discovery: Discovery | None = None
    followed: PeersFollowed | None = None

    async def run(self, journal: Journal, give_up: Callable[[Address, float], None]) -> None:
        """Until cancelled. `give_up`: see `Silence`. What fails of it ends it as a whole."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look(), name="cluster-conditions")
            if self.discovery is not None and self.followed is not None:
                tasks.create_task(self.discovery.run(), name="discovery")
                tasks.create_task(self.followed.run(), name="peers")
                tasks.create_task(tell_of_peers(self.followed, journal), name="peer-news")
                tasks.create_task(Silence(self.followed, give_up).run(), name="silence")

    async def _look(self) -> None:
        """So that conditions say since when they hold, whenever somebody asks."""
        while True:
            self.side.conditions()
            await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def open_cluster(
    settings: Settings, clock: Clock, listen: tuple[str, int], status: Callable[[], Status]
) -> AsyncIterator[Cluster]:
    """`listen`: as it is bound. `status`: of this node, as of now. Raises Rejected when the token
    cannot be read."""
    own = own_address(listen, [settings.pod_ip])
    file = await asyncio.to_thread(_token_file, settings.cluster_token_file, clock)
    tokens = file.current if file is not None else _none
    conditions = partial(
        ClusterConditions,
        status=status,
        now=lambda: clock.wall(clock.monotonic()),
        address=lambda: own.shown,
        token_problem=file.problem if file is not None else _none,
    )
    if settings.peers is None:
        alone = conditions(found=None, peers=ALONE.peers.current)
        yield Cluster(side=replace(ALONE, tokens=tokens, own=own, conditions=alone.current))
        return
    discovery = Discovery(settings.peers, own=own, clock=clock)
    agent_id = secrets.token_hex(8)
    async with PeerClient(tokens) as client:
        followed = PeersFollowed(discovery, client, agent_id=agent_id, clock=clock)
        said = conditions(found=discovery.condition, peers=followed.current)
        yield Cluster(
            side=ClusterSide(
                peers=followed,
                loads=followed,
                tokens=tokens,
                agent_id=agent_id,
                own=own,
                latest=followed.latest,
                conditions=said.current,
            ),
            discovery=discovery,
            followed=followed,
        )


def _token_file(file: Path | None, clock: Clock) -> TokenFile | None:
    return TokenFile(file, clock=clock.monotonic) if file is not None else None


def _none() -> None:
    return None
