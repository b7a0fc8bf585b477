"""The one real question that each type of model is asked before it counts as loaded (PURE).

All engines answer them at the same paths.
"""

from collections.abc import Mapping

from reconciler.backend.launch import Probe
from reconciler.errors import Rejected
from reconciler.plan.desired import ModelType
from reconciler.plan.ids import ModelName

_QUESTIONS: Mapping[ModelType, tuple[str, Mapping[str, object]]] = {
    ModelType.LLM: ("/v1/completions", {"prompt": "ready?", "max_tokens": 1}),
    ModelType.EMBEDDING: ("/v1/embeddings", {"input": "ready?"}),
    ModelType.RERANK: ("/v1/rerank", {"query": "ready?", "documents": ["ready", "not yet"]}),
}


def probe(name: ModelName, model_type: ModelType) -> Probe:
    """Raises Rejected for a type without a question."""
    if (question := _QUESTIONS.get(model_type)) is None:
        raise Rejected(f"cannot serve type {model_type}: it is not supported yet")
    path, body = question
    return Probe(
        health_path="/health",
        models_path="/v1/models",
        served_name=name,
        answer_path=path,
        answer_body={"model": name, **body},
        type=model_type,
    )
