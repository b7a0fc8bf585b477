"""Follows one other agent: asks, waits, takes what it says, and asks again.

asked ──answer──▶ reachable ──failure, or one that routing met──▶ unreachable ──a probe──▶ …
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.peers import document
from reconciler.proxy.peers.client import PeerFailed, PeerRefused, Question
from reconciler.proxy.peers.document import Told, Unchanged, Unreadable
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.peers.pace import OLD_RELEASE_SECONDS, Pace, probe_after
from reconciler.proxy.peers.peer import Latest, Peer, PeerModel

_log = structlog.get_logger("xgen.peers")

_LARGE_BYTES = 256 * 1024
"""Read in a thread, so that nobody waits for it."""
_PROBE_SECONDS = 0.5
"""Between two tries, however often routing fails."""
NOT_ASKED = "has not been asked yet"


class Asker(Protocol):
    """See `PeerClient`."""

    async def ask(self, address: Address, question: Question, *, kept: bool) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """What all followers have in common. `pace`, and `count` of all, are as of now. `changed`: a
    peer is another one. `welcome`: whether an agent that has said who it is goes on being followed.
    `lost`: one has not answered."""

    asker: Asker
    wall: Callable[[float], str]
    pace: Callable[[], Pace]
    count: Callable[[], int]
    changed: Callable[[], None]
    welcome: Callable[["Follower", Told], bool]
    lost: Callable[["Follower"], None]
    clock: Callable[[], float]
    chance: random.Random


class Follower:
    """`peer` is what is known of it, `latest` what it said last of what changes all the time."""

    def __init__(self, address: Address, company: Company) -> None:
        self.address = address
        self._company = company
        self._told: Told | None = None
        self.peer = Peer(
            address=address, document=b"", because=NOT_ASKED, since=company.wall(company.clock())
        )
        self.latest: Latest | None = None
        self.unreachable_since: float | None = company.clock()
        self._asking: asyncio.Task[bytes] | None = None
        self._poked = asyncio.Event()
        self._failures = 0
        self._spread = False

    async def run(self) -> None:
        """Until cancelled, or until it is no peer."""
        stays = True
        while stays:
            began = self._company.clock()
            try:
                answer = await self._ask()
                stays = answer is None or self._take(answer)
                seconds = began + self._period() - self._company.clock()
            except (PeerFailed, Unreadable) as exc:
                seconds = self._failed(str(exc), refuses=isinstance(exc, PeerRefused))
            except Exception as exc:  # noqa: BLE001  the boundary of the task: it tries again
                _log.exception("following a peer failed", peer=str(self.address))
                seconds = self._failed(f"cannot be followed, by an error of this agent: {exc!r}")
            await self._pause(seconds, began)

    def fail(self, because: str) -> None:
        """Somebody else could not reach it: unreachable from now on, and asked again."""
        self._lose(because)
        self._poked.set()
        if self._asking is not None:
            self._asking.cancel()

    def move(self, address: Address) -> None:
        """The same agent, at another address."""
        self.address = address
        self._be(replace(self.peer, address=address))

    def heard(self, model: ModelName, load: ModelLoad) -> None:
        before = self.latest
        loads = {**(before.loads if before else {}), model: load}
        moment = before.moment if before else {}
        self.latest = Latest(heard_at=self._company.clock(), loads=loads, moment=moment)

    def load(self, model: ModelName) -> ModelLoad:
        return self.latest.loads.get(model, IDLE) if self.latest is not None else IDLE

    async def _ask(self) -> Told | Unchanged | None:
        """None: `fail` came meanwhile. Raises PeerFailed or Unreadable."""
        pace, told = self._company.pace(), self._told
        question = Question()
        if told is not None and told.agent_id is not None:
            wait = pace.wait_seconds if self.peer.reachable else 0.0
            question = Question(
                after=told.version, agent_id=told.agent_id, silent=told.silent, wait_seconds=wait
            )
        self._asking = asyncio.create_task(
            self._company.asker.ask(self.address, question, kept=pace.held),
            name=f"ask:{self.address}",
        )
        try:
            await asyncio.wait((self._asking,))
        except asyncio.CancelledError:
            self._asking.cancel()
            await asyncio.wait((self._asking,))
            raise
        if self._asking.cancelled():
            return None
        body = self._asking.result()
        if len(body) > _LARGE_BYTES:
            return await asyncio.to_thread(document.read, body)
        return document.read(body)

    def _take(self, answer: Told | Unchanged) -> bool:
        """Whether it goes on being followed."""
        now = self._company.clock()
        if isinstance(answer, Unchanged):
            if self._told is None:  # an answer to a question that nobody asked
                self._lose("is not an xgen-model agent: its answer leaves out what it is")
                return True
            self.latest = Latest(heard_at=now, loads=answer.loads, moment=answer.moment)
            self._know(self._told)
            return True
        if not self._company.welcome(self, answer):
            return False
        self.latest = Latest(heard_at=now, loads=answer.loads)
        self._know(answer)
        return True

    def _know(self, told: Told) -> None:
        self._failures = 0
        self.unreachable_since = None
        before, now = self.peer, self._company.clock()
        if told is self._told and before.reachable:
            return
        models = _since(told.models, before, now, first=self._told is None)
        self._told = told
        self._be(
            Peer(
                address=self.address,
                document=told.document,
                node=told.node,
                agent_id=told.agent_id,
                pod_name=told.pod_name,
                pod_ip=told.pod_ip,
                reachable=True,
                since=before.since if before.reachable else self._company.wall(now),
                draining=told.draining,
                silent=told.silent,
                applied=told.applied,
                gpu_free_bytes=told.gpu_free_bytes,
                models=models,
            )
        )

    def _lose(self, because: str, *, refuses: bool = False) -> None:
        before, now = self.peer, self._company.clock()
        if before.reachable or self.unreachable_since is None:
            self.unreachable_since = now
        if before.reachable or before.because != because:
            since = self._company.wall(now) if before.reachable else before.since
            lost = replace(before, reachable=False, because=because, since=since)
            self._be(replace(lost, refuses=refuses))

    def _be(self, peer: Peer) -> None:
        self.peer = peer
        self._company.changed()

    def _failed(self, because: str, *, refuses: bool = False) -> float:
        """How long to wait then."""
        self._lose(because, refuses=refuses)
        self._company.lost(self)
        self._failures += 1
        return probe_after(self._failures, self._company.count(), self._company.chance)

    def _period(self) -> float:
        pace = self._company.pace()
        usual = pace.period_seconds
        if not pace.held:  # all were found at one moment; from then on they are spread
            usual *= self._company.chance.uniform(*((0.8, 1.2) if self._spread else (0.0, 1.0)))
        self._spread = not pace.held
        old = self._told is not None and self._told.agent_id is None
        return max(usual, OLD_RELEASE_SECONDS) if old else usual

    async def _pause(self, seconds: float, began: float) -> None:
        """`fail` ends it, but not within half a second of the last question's beginning."""
        if seconds <= 0 and not self._poked.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        if self._poked.is_set():
            self._poked.clear()
            await asyncio.sleep(max(began + _PROBE_SECONDS - self._company.clock(), 0.0))


def _since(
    models: Mapping[ModelName, PeerModel], before: Peer, now: float, *, first: bool
) -> dict[ModelName, PeerModel]:
    """With the moment from when on each was seen to serve. What serves when we see the agent for
    the `first` time may have done so for long."""
    found = {}
    for name, model in models.items():
        if model.serves and not first:
            was = before.models.get(name)
            since = was.serves_since if was is not None and was.serves else now
            model = replace(model, serves_since=since)
        found[name] = model
    return found
