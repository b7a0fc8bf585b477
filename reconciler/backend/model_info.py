"""What a model's files say of it, in whichever format, as a value (PURE)."""

from dataclasses import dataclass

from reconciler.plan.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """How large a model's tensors are: of each block, and what comes before and after them.

    `tied`: the embedding of words, which is the most of what comes before, is the output's too.
    """

    blocks: tuple[int, ...]
    input_bytes: int
    output_bytes: int
    tied: bool

    @property
    def total_bytes(self) -> int:
        return sum(self.blocks) + self.input_bytes + self.output_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """None: the files do not say, or not for sure. Figures in bytes and tokens.

    `architecture`: in the words of the format. `kind`: "model"; None in older GGUFs. `pooling`
    None: the model has none of its own, so it was not made for embeddings. `causal` False: an
    encoder, which reads a text as a whole and generates none. `scores`: it has a classification
    head, as rerankers do. `deaf`: it reads text alone, for sure. `dtype`: of the weights, as
    config.json names it. `kv_bytes_per_token`: of the cache, where all layers keep all tokens;
    `windows`: where some do not. `kv_heads`: on how many it is spread. `shards`: how many GGUFs it
    is split into. `layers`: their sizes.
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
    deaf: bool = False
    dtype: str | None = None
    kv_bytes_per_token: int | None = None
    windows: Windows | None = None
    kv_heads: int | None = None
    weights_bytes: int | None = None
    shards: int = 1
    layers: Layers | None = None
