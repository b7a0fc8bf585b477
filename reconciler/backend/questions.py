"""The one real question that each type of model is asked before it counts as loaded (PURE).

All engines answer them at the same paths. A second of silence is what is heard by one that hears.
"""

import struct
from collections.abc import Mapping

from reconciler.backend.launch import Probe
from reconciler.plan.desired import ModelType
from reconciler.plan.ids import ModelName

_QUESTIONS: Mapping[ModelType, tuple[str, Mapping[str, object]]] = {
    ModelType.LLM: ("/v1/completions", {"prompt": "ready?", "max_tokens": 1}),
    ModelType.EMBEDDING: ("/v1/embeddings", {"input": "ready?"}),
    ModelType.TRANSCRIPTION: (
        "/v1/audio/transcriptions",
        {"language": "en", "max_completion_tokens": 1},
    ),
    ModelType.RERANK: ("/v1/rerank", {"query": "ready?", "documents": ["ready", "not yet"]}),
}


def silence(seconds: float = 1.0, rate: int = 16000) -> bytes:
    """A WAV of one channel, 16 bits a sample."""
    data = bytes(2 * int(seconds * rate))
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    chunks = b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
    return struct.pack("<4sI", b"RIFF", len(chunks)) + chunks


_SILENCE = silence()


def probe(name: ModelName, model_type: ModelType) -> Probe:
    path, body = _QUESTIONS[model_type]
    return Probe(
        health_path="/health",
        models_path="/v1/models",
        served_name=name,
        answer_path=path,
        answer_body={"model": name, **body},
        type=model_type,
        answer_file=_SILENCE if model_type is ModelType.TRANSCRIPTION else None,
    )
