"""A BERT of one layer that llama.cpp loads in some milliseconds: a tenth of a megabyte.

Its weights are random, but always the same, so what it says means nothing and never changes. It
reads lower-case letters, digits and some marks. Tensors and keys as llama.cpp's own converter
writes them (conversion of BertForSequenceClassification, `convert_hf_to_gguf.py`).
"""

import math
import random
import string
from collections.abc import Mapping

from tests.gguf_file import Weights, gguf

WIDTH = 32
CONTEXT = 512
_INNER = 64
_HEADS = 2
_LETTERS = [*string.ascii_lowercase, *string.digits, *".,?!"]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_PAD, _UNKNOWN, _CLS, _SEP, _MASK = range(len(_SPECIAL))
_WORDS = [*_SPECIAL, *(f"▁{letter}" for letter in _LETTERS), *_LETTERS]
"""Word pieces: `▁` begins a word."""
_NORMAL, _CONTROL = 1, 3
_POOLINGS = {"mean": 1, "cls": 2, "rank": 4}


def tiny_bert(*, pooling: str | None = "rank", head: bool = True) -> bytes:
    """`head`: what makes a score of a text. Rerankers of before 2025 have one and no `pooling`."""
    keys = dict(_KEYS)
    if pooling is not None:
        keys["bert.pooling_type"] = _POOLINGS[pooling]
    return gguf(keys, _weights(random.Random(1), head=head))


_KEYS: Mapping[str, object] = {
    "general.architecture": "bert",
    "general.type": "model",
    "general.name": "tiny",
    "bert.block_count": 1,
    "bert.context_length": CONTEXT,
    "bert.embedding_length": WIDTH,
    "bert.feed_forward_length": _INNER,
    "bert.attention.head_count": _HEADS,
    "bert.attention.layer_norm_epsilon": 1e-12,
    "bert.attention.causal": False,
    "tokenizer.ggml.model": "bert",
    "tokenizer.ggml.tokens": _WORDS,
    "tokenizer.ggml.token_type": [
        *[_CONTROL] * len(_SPECIAL),
        *[_NORMAL] * (len(_WORDS) - len(_SPECIAL)),
    ],
    "tokenizer.ggml.token_type_count": 2,
    "tokenizer.ggml.bos_token_id": _CLS,
    "tokenizer.ggml.eos_token_id": _SEP,
    "tokenizer.ggml.unknown_token_id": _UNKNOWN,
    "tokenizer.ggml.seperator_token_id": _SEP,  # so spelt in the format
    "tokenizer.ggml.padding_token_id": _PAD,
    "tokenizer.ggml.cls_token_id": _CLS,
    "tokenizer.ggml.mask_token_id": _MASK,
}


def _weights(source: random.Random, *, head: bool) -> dict[str, Weights]:
    def table(*dimensions: int) -> Weights:
        count = math.prod(dimensions)
        return Weights(dimensions, [source.gauss(0, 0.3) for _ in range(count)])

    def linear(name: str, inputs: int, outputs: int) -> dict[str, Weights]:
        bias = Weights((outputs,), [0.0] * outputs)
        return {f"{name}.weight": table(inputs, outputs), f"{name}.bias": bias}

    def norm(name: str) -> dict[str, Weights]:
        ones, zeros = [1.0] * WIDTH, [0.0] * WIDTH
        return {f"{name}.weight": Weights((WIDTH,), ones), f"{name}.bias": Weights((WIDTH,), zeros)}

    weights = {
        "token_embd.weight": table(WIDTH, len(_WORDS)),
        "token_types.weight": table(WIDTH, 2),
        "position_embd.weight": table(WIDTH, CONTEXT),
        **norm("token_embd_norm"),
        **norm("blk.0.attn_output_norm"),
        **linear("blk.0.ffn_up", WIDTH, _INNER),
        **linear("blk.0.ffn_down", _INNER, WIDTH),
        **norm("blk.0.layer_output_norm"),
    }
    for part in ("q", "k", "v", "output"):
        weights |= linear(f"blk.0.attn_{part}", WIDTH, WIDTH)
    if head:
        weights |= linear("cls", WIDTH, WIDTH) | linear("cls.output", WIDTH, 1)
    return weights
