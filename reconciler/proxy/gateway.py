"""What all inference endpoints share."""

from dataclasses import dataclass

from reconciler.metrics import Metrics
from reconciler.plan.ids import ModelName
from reconciler.proxy.board import Routes
from reconciler.proxy.errors import Header
from reconciler.proxy.forward import Upstream
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.intake import Intake
from reconciler.proxy.local_loads import LocalLoads
from reconciler.proxy.peeking import Peeking
from reconciler.proxy.peers import load
from reconciler.proxy.peers.side import ClusterSide
from reconciler.proxy.replicas import Replicas
from reconciler.proxy.slot_news import SlotNews
from reconciler.proxy.spool import Spool
from reconciler.proxy.turns import Turns
from reconciler.proxy.visits import Visits


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    routes: Routes
    metrics: Metrics
    traffic: Traffic
    upstream: Upstream
    intake: Intake
    spool: Spool
    peeking: Peeking
    turns: Turns
    heartbeat_seconds: float
    cluster: ClusterSide
    loads: LocalLoads
    replicas: Replicas
    visits: Visits
    slot_news: SlotNews

    def served_by(self, model: str | None) -> bytes:
        node = self.routes.current().status.node
        return (f"{node}/{model}" if model is not None else node).encode()

    def load_of(self, model: str) -> Header:
        """How busy this node's replica is, for whoever passed a request on."""
        return load.HEADER, load.encode(self.loads.figures(ModelName(model)))
