"""The paths that are passed to engines (PURE). Nothing else of theirs can be reached.

An engine that has not the path of its model answers 404 itself.
"""

from dataclasses import dataclass

from reconciler.plan.desired import ModelType
from reconciler.proxy import error_shape
from reconciler.proxy.error_shape import ErrorShape

_LLM = (ModelType.LLM,)
_EMBEDDING = (ModelType.EMBEDDING,)
_RERANK = (ModelType.RERANK,)
_HEARS_OR_SPEAKS = (ModelType.TRANSCRIPTION, ModelType.LLM)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePath:
    """`path` as engines have it. `types` of models that have it. `streams`: it may, when asked.

    `form`: it takes a multipart form, not JSON. `computes`: the model does; engines count tokens
    without it.
    """

    path: str
    types: tuple[ModelType, ...]
    streams: bool = False
    form: bool = False
    computes: bool = True

    @property
    def errors(self) -> ErrorShape:
        return error_shape.of_path(self.path)


ENGINE_PATHS = (
    EnginePath(path="/v1/chat/completions", types=_LLM, streams=True),
    EnginePath(path="/v1/completions", types=_LLM, streams=True),
    EnginePath(path="/v1/embeddings", types=_EMBEDDING),
    EnginePath(path="/v1/responses", types=_LLM, streams=True),
    EnginePath(path="/v1/messages", types=_LLM, streams=True),
    EnginePath(path="/v1/messages/count_tokens", types=_LLM, computes=False),
    EnginePath(path="/v2/embed", types=_EMBEDDING),
    EnginePath(path="/pooling", types=(*_EMBEDDING, *_RERANK)),
    EnginePath(path="/v1/rerank", types=_RERANK),
    EnginePath(path="/v2/rerank", types=_RERANK),
    EnginePath(path="/rerank", types=_RERANK),
    EnginePath(path="/v1/score", types=_RERANK),
    EnginePath(path="/score", types=_RERANK),
    EnginePath(path="/classify", types=_RERANK),
    EnginePath(path="/v1/audio/transcriptions", types=_HEARS_OR_SPEAKS, streams=True, form=True),
    EnginePath(path="/v1/audio/translations", types=_HEARS_OR_SPEAKS, streams=True, form=True),
    EnginePath(path="/v1/audio/speech", types=_HEARS_OR_SPEAKS),
    EnginePath(path="/v1/moderations", types=(*_RERANK, *_LLM)),
    EnginePath(path="/tokenize", types=tuple(ModelType), computes=False),
    EnginePath(path="/detokenize", types=tuple(ModelType), computes=False),
)

NOT_OFFERED_YET = ("/v1/realtime",)
"""Not passed on yet: a WebSocket."""

KEPT_BY_ENGINES = "/v1/responses/{rest:path}"
"""What an engine made earlier, by its id: it says neither model nor node, and dies with it."""
