"""Plan cases as data: from the YAML of `cases/` to values, and from a plan to lines to compare.

A model's `spec` is its spec hash, its files are named by their digest. Its `strategy` is
`recreate`, unless it says another. Times count from 0.
"""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from reconciler.plan.actions import (
    AbortFetch,
    Action,
    FetchFiles,
    KeepBackend,
    Outlook,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.desired import (
    Desired,
    DesiredModel,
    Format,
    ModelSpec,
    Strategy,
    Timeouts,
)
from reconciler.plan.ids import (
    FilesDigest,
    GpuUuid,
    Instance,
    ModelName,
    NodeName,
    Nonce,
    Place,
    SpecHash,
)
from reconciler.plan.memory import HOST, Need, Pool, Room, User
from reconciler.plan.observed import (
    Adoption,
    EffectKind,
    Failure,
    FilesCached,
    FilesMissing,
    Hang,
    InFlight,
    Leftover,
    Observed,
    ObservedModel,
    ObservedProcess,
)

Data = dict[str, Any]

MIB = 1024**2
CASES = Path(__file__).parent / "cases"


def load_cases() -> list[Data]:
    yaml = YAML(typ="safe")
    return [
        {**case, "file": path.stem}
        for path in sorted(CASES.glob("*.yaml"))
        for case in yaml.load(path)
    ]


def gpus(data: Data) -> tuple[GpuUuid, ...]:
    return tuple(GpuUuid(gpu) for gpu in data.get("gpus", ()))


def desired_model(name: str, data: Data) -> DesiredModel:
    return DesiredModel(
        name=ModelName(name),
        spec=ModelSpec(
            source=f"gguf/{name}",
            digest=data.get("digest"),
            gpu_ids=tuple(data.get("gpu_ids", ())),
            skip_memory_check=data.get("skip_memory_check", False),
        ),
        spec_hash=SpecHash(data.get("spec", "s1")),
        place=Place(file="models.yaml", line=1, column=1),
        enabled=data.get("enabled", True),
        strategy=Strategy(data.get("strategy", "recreate")),
        keep_last_good=data.get("keep_last_good", True),
        priority=data.get("priority", 0),
        timeouts=Timeouts(ready=data.get("ready", 1800.0)),
        gpus=gpus(data),
        gpu_share=data.get("share"),
        gpus_to_spare=data.get("to_spare", False),
    )


def desired(data: Data | None, *, suspend: bool = False) -> Desired | None:
    if data is None:
        return None
    models = tuple(desired_model(name, model or {}) for name, model in sorted(data.items()))
    return Desired(node=NodeName("node"), revision="r1", models=models, suspend=suspend)


def process(data: Data) -> ObservedProcess:
    """`loaded` is the moment at which it was; absent: it still loads. `hung` says why, and `since`
    when it worked last. `adopted` is when; `was_loaded`: by then."""
    return ObservedProcess(
        nonce=Nonce(f"nonce-{data['pid']}"),
        pid=data["pid"],
        instance=Instance(
            spec_hash=SpecHash(data.get("spec", "s1")),
            files_digest=FilesDigest(data.get("files", "f1")),
        ),
        started_at=data.get("started", 0.0),
        loaded_at=data.get("loaded"),
        gpus=gpus(data),
        gpu_share=data.get("share"),
        misplaced=data.get("misplaced"),
        hung=Hang(reason=data["hung"], since=data["since"]) if "hung" in data else None,
        reads_removed_files=data.get("reads_removed_files", False),
        failed_check=data.get("failed_check"),
        died=data.get("died", False),
        lacks=data.get("lacks", ""),
        held={pool: size * MIB for pool, size in _by_pool(data.get("held")).items()},
        adopted=Adoption(at=data["adopted"], was_loaded=data.get("was_loaded", False))
        if "adopted" in data
        else None,
    )


def _by_pool(data: Any) -> dict[Pool, Any]:
    """A mapping from GPUs (`G0`), or what is of the host."""
    if data is None:
        return {}
    if isinstance(data, dict) and all(str(name).startswith("G") for name in data):
        return {Pool(name): each for name, each in data.items()}
    return {HOST: data}


def need(data: Data) -> Need:
    """In MiB: `weights`, `kv`, `rest`, `mapped`, `claimed`, `checked`."""
    return Need(
        weights_bytes=data["weights"] * MIB if "weights" in data else None,
        kv_cache_bytes=data["kv"] * MIB if "kv" in data else None,
        overhead_bytes=data.get("rest", 0) * MIB,
        tokens=data.get("tokens"),
        mapped_bytes=data.get("mapped", 0) * MIB,
        claimed_bytes=data["claimed"] * MIB if "claimed" in data else None,
        checked_bytes=data["checked"] * MIB if "checked" in data else None,
        grows=data.get("grows", False),
    )


def room(data: Data) -> Room:
    return Room(
        total_bytes=data["total"] * MIB,
        free_bytes=data["free"] * MIB,
        where=data.get("where"),
        unknown=data.get("unknown"),
        returning=tuple(data.get("returning", ())),
        users=tuple(
            User(pid=pid, who=who, held_bytes=size and size * MIB)
            for pid, who, size in data.get("users", ())
        ),
        untold=data.get("untold"),
    )


def observed_model(name: str, data: Data) -> ObservedModel:
    files = data.get("files")
    cached = files and FilesCached(
        digest=FilesDigest(files), path="/m/x.gguf", root="/m", format=Format.GGUF
    )
    under_way = data.get("under_way")
    failure = data.get("failure")
    return ObservedModel(
        name=ModelName(name),
        processes=tuple(process(each) for each in data.get("processes", ())),
        files=cached or FilesMissing(),
        refusal=data.get("refusal"),
        gives_way=data.get("gives_way"),
        hindrance=data.get("hindrance"),
        unknown=data.get("unknown"),
        unoffered=data.get("unoffered"),
        needs={pool: need(each) for pool, each in _by_pool(data.get("need")).items()},
        resuming=data.get("resuming", False),
        in_flight=under_way
        and InFlight(
            kind=EffectKind(under_way["kind"]),
            spec_hash=SpecHash(under_way.get("spec", "s1")),
            since=0.0,
            detail=under_way.get("detail", ""),
            gpus=gpus(under_way),
            gpu_share=under_way.get("share"),
            nonce=Nonce(f"nonce-{under_way['pid']}") if "pid" in under_way else None,
            aborting=under_way.get("aborting", False),
            revocable=under_way.get("revocable", False),
        ),
        failure=failure
        and Failure(
            spec_hash=SpecHash(failure.get("spec", "s1")),
            files_digest=FilesDigest(failure["files"]) if "files" in failure else None,
            at=failure.get("at", 0.0),
            count=failure.get("count", 1),
            reason=failure["reason"],
            during=failure["during"],
            permanent=failure.get("permanent", False),
            damaged=failure.get("damaged", False),
            own_files_in_the_way=failure.get("own_files_in_the_way", False),
            ever_loaded=failure.get("ever_loaded", False),
            exited=failure["during"] in ("load", "run"),
            retry_after_seconds=failure.get("retry_after"),
        ),
    )


def observed(
    data: Data,
    *,
    leftovers: list[Data],
    loads: int = 2,
    processes_read: bool = True,
    engines_known: bool = True,
    engines_failure: str | None = None,
    memory: Data | None = None,
) -> Observed:
    return Observed(
        processes_read=processes_read,
        engines_known=engines_known,
        engines_failure=engines_failure,
        models={ModelName(name): observed_model(name, model) for name, model in data.items()},
        leftovers=tuple(
            Leftover(
                nonce=Nonce(f"nonce-{each['pid']}"),
                model=ModelName(each["model"]),
                pid=each["pid"],
                gpus=gpus(each),
                why=each.get("why", ""),
                stopping=each.get("stopping", False),
            )
            for each in leftovers
        ),
        max_parallel_loads=loads,
        rooms={pool: room(each) for pool, each in _by_pool(memory).items()},
    )


def action_line(action: Action) -> str:
    return f"{_order(action)}: {action.reason}"


def _order(action: Action) -> str:
    match action:
        case FetchFiles():
            return f"fetch {action.model} {action.spec_hash}"
        case StartBackend():
            instance = f"{action.instance.spec_hash}/{action.instance.files_digest}"
            on = f" on {' '.join(action.gpus)}" if action.gpus else ""
            return f"start {action.model} {instance}{on}"
        case StopBackend():
            how = " drain" if action.drain else ""
            how += ", revocable" if action.revocable else ""
            failed = f" failure({action.failure})" if action.failure else ""
            ran = f" ran {action.ran_seconds:g} s" if action.ran_seconds is not None else ""
            return f"stop {action.model} pid {action.pid}{how}{failed}{ran}"
        case KeepBackend():
            return f"keep {action.model} pid {action.pid}"
        case StopLeftover():
            return f"stop leftover {action.model} pid {action.pid}"
        case AbortFetch():
            return f"abort fetch {action.model}"


def outlook_lines(outlook: Outlook) -> list[str]:
    """The state; then, where there are, what is coming, what drains, and when it is tried again."""
    lines = [f"{outlook.state}: {outlook.reason}"]
    if outlook.target is not None:
        target = outlook.target
        lines.append(f"→ {target.spec_hash} {target.state}: {target.reason}")
    if outlook.left_pid is not None:
        lines.append(f"left pid {outlook.left_pid}")
    if outlook.asked_again:
        lines.append("asked again")
    for each in outlook.draining:
        since = f" since {each.since:g}" if each.since is not None else ""
        lines.append(f"drains pid {each.pid}, {each.spec_hash}{since}: {each.reason}")
    if outlook.retry_at is not None:
        lines.append(f"retry at {outlook.retry_at:.1f}")
    return lines
