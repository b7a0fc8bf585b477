"""Plans with all that a plan may have, as values."""

from reconciler.plan.balance import Balance
from reconciler.plan.changes import Change, Evicted, FieldChange, NodeChanges, Planned, Verb
from reconciler.plan.desired import Elsewhere
from reconciler.plan.ids import GpuUuid, ModelName, NodeName
from reconciler.plan.memory import HOST, Need, Pool
from reconciler.plan.phase import State

GIB = 1 << 30
GPU = Pool("GPU-5f1")
NEED = Need(weights_bytes=8 * GIB, kv_cache_bytes=GIB, overhead_bytes=GIB, tokens=4096)


def change(name: str, verb: Verb, reason: str = "why", **more: object) -> Change:
    return Change(model=ModelName(name), verb=verb, reason=reason, **more)  # type: ignore[arg-type]


def node(*changes: Change, name: str = "node-a", **more: object) -> NodeChanges:
    return NodeChanges(node=NodeName(name), changes=changes, **more)  # type: ignore[arg-type]


FULL = node(
    change(
        "chat",
        Verb.RESTART,
        "spec changed (1:750b → 1:a6e2)",
        state=State.LOADED,
        fields=(FieldChange(path="extra_args.ctx_size", old=2048, new=4096),),
        fetch=False,
        source="gguf/org_chat",
        needs={HOST: NEED},
        downtime_seconds=38.2,
    ),
    change(
        "code",
        Verb.SURGE,
        "spec changed; pid 4711 serves until the new one is loaded",
        state=State.LOADED,
        fetch=True,
        source="gguf/org_code",
        download_bytes=7 * GIB,
        cached_bytes=2 * GIB,
        needs={GPU: NEED},
        downtime_seconds=0.0,
        engine="b2 (llama-server-cuda) is version 6200",
    ),
    change(
        "embed",
        Verb.REROUTE,
        "changes without a restart",
        fields=(FieldChange(path="aliases", old=[], new=["e1"]),),
    ),
    change(
        "new",
        Verb.START,
        "in the manifest and not running",
        fetch=True,
        source="huggingface/org_new",
        fallback="gguf/org_new",
    ),
    change("old", Verb.STOP, "removed from the manifest", state=State.LOADED),
    change(
        "rail",
        Verb.RESTART,
        "spec changed",
        state=State.LOADED,
        fetch=False,
        source="file:///srv/rail",
        held="waits for the maintenance window that opens at 02:00",
    ),
    change("same", Verb.UNCHANGED, "loaded (pid 7)", state=State.LOADED),
    change("wrong", Verb.REFUSED, "it has no flag --no-such-flag", state=State.BLOCKED),
    elsewhere=(Elsewhere(name=ModelName("far"), reason="nodes: [node-b]; this node is node-a"),),
    gpus=(
        Balance(
            gpu=GPU,
            index=0,
            total_bytes=80 * GIB,
            used_bytes=GIB,
            after_bytes=90 * GIB,
            complete=False,
        ),
    ),
    host=Balance(
        gpu=HOST,
        index=None,
        total_bytes=64 * GIB,
        used_bytes=8 * GIB,
        after_bytes=18 * GIB,
        complete=True,
    ),
    order=(
        Planned(kind="FetchFiles", model=ModelName("code"), reason="its files are not here"),
        Planned(kind="StopBackend", model=ModelName("chat"), reason="spec changed"),
        Planned(
            kind="StartBackend",
            model=ModelName("chat"),
            reason="spec changed",
            gpus=(GpuUuid("GPU-5f1"),),
        ),
    ),
    evictions=(Evicted(prefix="gguf/org_gone", revision="ab" * 32, size_bytes=4 * GIB),),
    notes=("suspended: nothing is started or stopped",),
    errors=("prod.yaml:7:9: spec.models[0].typo: unknown key",),
)
PLAN = (FULL, node(name="node-b"))
