"""What a model's files say of it, in whichever format, as a value (PURE)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """None: the files do not say, or not for sure. Figures in bytes and tokens.

    `architecture`: in the words of the format. `kind`: "model"; None in older GGUFs. `pooling`
    None: the model has none of its own, so it was not made for embeddings. `causal` False: an
    encoder, which reads a text as a whole and generates none. `scores`: it has a classification
    head, as rerankers do. `dtype`: of the weights, as config.json names it.
    `kv_bytes_per_token`: of the cache. `shards`: how many GGUFs it is split
    into.
    """

    architecture: str | None = None
    kind: str | None = None
    name: str | None = None
    context_length: int | None = None
    embedding_length: int | None = None
    block_count: int | None = None
    pooling: str | None = None
    causal: bool = True
    scores: bool = False
    dtype: str | None = None
    kv_bytes_per_token: int | None = None
    weights_bytes: int | None = None
    shards: int = 1
