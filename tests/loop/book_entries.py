"""Books of one model, and what may be entered into them."""

from pathlib import Path

from reconciler.apply.backends import BackendExited, BackendView
from reconciler.apply.outcomes import EffectFailed
from reconciler.backend.launch import Launch, Probe
from reconciler.loop.books import Books
from reconciler.plan.desired import ModelSpec, ModelType, OnFailure
from reconciler.plan.ids import FilesDigest, Instance, ModelName, Nonce, SpecHash
from reconciler.plan.revert import LastGood

M = ModelName("m")
WANTED = Instance(spec_hash=SpecHash("1:new"), files_digest=FilesDigest("d"))
OLD = Instance(spec_hash=SpecHash("1:old"), files_digest=FilesDigest("d"))
GOOD = LastGood(
    spec=ModelSpec(source="gguf/a"), spec_hash=OLD.spec_hash, files_digest=OLD.files_digest
)


def books() -> Books:
    made = Books()
    made.want({M: [WANTED.spec_hash]})
    return made


def view(nonce: str = "n1", instance: Instance = WANTED, loaded: bool = False) -> BackendView:
    probe = Probe(
        health_path="/health",
        models_path="/v1/models",
        served_name="m",
        answer_path="/v1/completions",
        answer_body={},
        type=ModelType.LLM,
    )
    return BackendView(
        model=M,
        nonce=Nonce(nonce),
        pid=1,
        instance=instance,
        launch=Launch(backend="b", argv=("b",), env={}, host="127.0.0.1", port=1, probe=probe),
        gpus=(),
        started_at=0.0,
        loaded_at=1.0 if loaded else None,
        log_path=Path("log"),
        stopping=False,
    )


def exited(during: str, nonce: str = "n1", instance: Instance = WANTED) -> BackendExited:
    return BackendExited(
        model=M,
        nonce=Nonce(nonce),
        pid=1,
        instance=instance,
        during=during,
        code=1,
        signal=None,
        uptime_seconds=1.0,
        loaded_seconds=0.0,
        last_lines=("bad flag",),
        reason="exited with code 1",
        at=10.0,
    )


def failed(during: str, spec_hash: SpecHash = WANTED.spec_hash) -> EffectFailed:
    return EffectFailed(
        model=M,
        spec_hash=spec_hash,
        files_digest=None,
        during=during,
        reason="cannot do it",
        permanent=False,
    )


def books_of(policy: OnFailure) -> Books:
    """What is wanted has a predecessor that was good."""
    made = Books()
    made.want({M: [WANTED.spec_hash, OLD.spec_hash]}, {M: policy})
    made.note_good(M, GOOD)
    return made
