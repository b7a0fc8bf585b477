"""Models of a fifth of a megabyte that a real vLLM loads: config, tokenizer and random weights.

What they say means nothing, and never changes. Their tensors are named as `transformers` has them;
heads are 32 wide, the smallest that vLLM computes on CPU.
"""

import json
import math
import random
import string
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.e2e.byte_tokenizer import byte_alphabet

CONTEXT = 8192
_WIDTH, _INNER, _HEADS, _LAYERS = 64, 128, 2, 2
_IM_END = "<|im_end|>"
_SPECIAL = ["<s>", "</s>", "<|im_start|>", _IM_END]
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Shapes = Mapping[str, tuple[int, ...]]


def write_llama(folder: Path) -> Path:
    """A chat model over bytes. Returns its folder."""
    words = write_byte_tokenizer(folder, _SPECIAL)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": _TEMPLATE,
            "model_max_length": CONTEXT,
        },
    )
    write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(words),
            "hidden_size": _WIDTH,
            "intermediate_size": _INNER,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _HEADS,
            "max_position_embeddings": CONTEXT,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "bos_token_id": words["<s>"],
            "eos_token_id": words["</s>"],
            "torch_dtype": "bfloat16",
        },
    )
    write_weights(folder / "model.safetensors", _llama_shapes(len(words)))
    return folder


def write_reranker(folder: Path) -> Path:
    """A BERT with a classification head of one score. Returns its folder."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = string.ascii_lowercase + string.digits + ".,?!"
    words = {w: n for n, w in enumerate([*special, *letters, *(f"##{c}" for c in letters)])}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "added_tokens": _added({word: words[word] for word in special}),
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "BertProcessing",
                "sep": ["[SEP]", words["[SEP]"]],
                "cls": ["[CLS]", words["[CLS]"]],
            },
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": words,
            },
        },
    )
    names = {f"{word[1:-1].lower()}_token": word for word in special}
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "BertTokenizerFast", "model_max_length": 512, **names},
    )
    write_json(
        folder / "config.json",
        {
            "architectures": ["BertForSequenceClassification"],
            "model_type": "bert",
            "vocab_size": len(words),
            "hidden_size": _WIDTH,
            "intermediate_size": _INNER,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": _HEADS,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-12,
            "pad_token_id": 0,
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
            "torch_dtype": "bfloat16",
        },
    )
    write_weights(folder / "model.safetensors", _bert_shapes(len(words)))
    return folder


def _llama_shapes(words: int) -> Shapes:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (words, _WIDTH)}
    for layer in range(_LAYERS):
        name = f"model.layers.{layer}"
        for part in "qkvo":
            shapes[f"{name}.self_attn.{part}_proj.weight"] = (_WIDTH, _WIDTH)
        shapes[f"{name}.mlp.gate_proj.weight"] = (_INNER, _WIDTH)
        shapes[f"{name}.mlp.up_proj.weight"] = (_INNER, _WIDTH)
        shapes[f"{name}.mlp.down_proj.weight"] = (_WIDTH, _INNER)
        shapes[f"{name}.input_layernorm.weight"] = (_WIDTH,)
        shapes[f"{name}.post_attention_layernorm.weight"] = (_WIDTH,)
    return {**shapes, "model.norm.weight": (_WIDTH,), "lm_head.weight": (words, _WIDTH)}


def _bert_shapes(words: int) -> Shapes:
    def layer_norm(name: str) -> Shapes:
        return norm(f"{name}.LayerNorm", _WIDTH)

    shapes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (words, _WIDTH),
        "bert.embeddings.position_embeddings.weight": (512, _WIDTH),
        "bert.embeddings.token_type_embeddings.weight": (2, _WIDTH),
        **layer_norm("bert.embeddings"),
        **linear("bert.pooler.dense", _WIDTH, _WIDTH),
        **linear("classifier", 1, _WIDTH),
    }
    for layer in range(_LAYERS):
        name = f"bert.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            shapes |= linear(f"{name}.attention.self.{part}", _WIDTH, _WIDTH)
        shapes |= linear(f"{name}.attention.output.dense", _WIDTH, _WIDTH)
        shapes |= layer_norm(f"{name}.attention.output")
        shapes |= linear(f"{name}.intermediate.dense", _INNER, _WIDTH)
        shapes |= linear(f"{name}.output.dense", _WIDTH, _INNER)
        shapes |= layer_norm(f"{name}.output")
    return shapes


def linear(name: str, outputs: int, inputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def write_weights(path: Path, shapes: Shapes) -> None:
    source, header, data, end = random.Random(1), {}, [], 0
    for name, shape in shapes.items():
        values = _bfloat16(_values(name, math.prod(shape), source))
        header[name] = {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [end, end + len(values)],
        }
        end += len(values)
        data.append(values)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def write_byte_tokenizer(folder: Path, special: Sequence[str]) -> Mapping[str, int]:
    """Text as bytes, so that there is nothing that it does not know. Makes the folder; returns the
    numbers of its words, the special ones last."""
    words = {word: number for number, word in enumerate([*byte_alphabet(), *special])}
    bytes_alone = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "added_tokens": _added({word: words[word] for word in special}),
            "normalizer": None,
            "pre_tokenizer": {**bytes_alone, "use_regex": True},
            "post_processor": None,
            "decoder": bytes_alone,
            "model": {"type": "BPE", "vocab": words, "merges": []},
        },
    )
    return words


def _values(name: str, count: int, source: random.Random) -> list[float]:
    if "norm" in name.lower() and name.endswith("weight"):
        return [1.0] * count
    return [0.0 if name.endswith("bias") else source.gauss(0, 0.05) for _ in range(count)]


def _bfloat16(values: list[float]) -> bytes:
    """The upper halves of 32-bit numbers."""
    whole = array("f", values).tobytes()
    return b"".join(whole[at + 2 : at + 4] for at in range(0, len(whole), 4))


def _added(words: Mapping[str, int]) -> Iterable[Mapping[str, object]]:
    return [
        {
            "id": number,
            "content": word,
            "special": True,
            "normalized": False,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        for word, number in words.items()
    ]


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
