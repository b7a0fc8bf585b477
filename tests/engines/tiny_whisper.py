"""A tiny model that a real vLLM loads and that writes down what it hears, as nonsense."""

from pathlib import Path

from tests.engines.tiny_models import (
    Shapes,
    linear,
    norm,
    write_byte_tokenizer,
    write_json,
    write_weights,
)

_WIDTH, _INNER, _HEADS, _LAYERS = 64, 128, 2, 2
_MELS, _RATE, _HOP, _FFT = 80, 16000, 160, 400
_CLIP_SECONDS = 5
"""Whisper's own is 30; shorter is quicker."""
_END, _START = "<|endoftext|>", "<|startoftranscript|>"
_SPECIAL = [
    *(_END, _START, "<|en|>", "<|transcribe|>", "<|translate|>"),
    *("<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
]


def write_whisper(folder: Path) -> Path:
    """Returns its folder."""
    frames = _CLIP_SECONDS * _RATE // _HOP
    words = write_byte_tokenizer(folder, _SPECIAL)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "WhisperTokenizer",
            **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), _END),
            "model_max_length": 448,
        },
    )
    write_json(
        folder / "preprocessor_config.json",
        {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "processor_class": "WhisperProcessor",
            "feature_size": _MELS,
            "sampling_rate": _RATE,
            "hop_length": _HOP,
            "n_fft": _FFT,
            "chunk_length": _CLIP_SECONDS,
            "n_samples": _CLIP_SECONDS * _RATE,
            "nb_max_frames": frames,
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": False,
        },
    )
    write_json(
        folder / "config.json",
        {
            "architectures": ["WhisperForConditionalGeneration"],
            "model_type": "whisper",
            "is_encoder_decoder": True,
            "vocab_size": len(words),
            "num_mel_bins": _MELS,
            "d_model": _WIDTH,
            **dict.fromkeys(("encoder_layers", "decoder_layers", "num_hidden_layers"), _LAYERS),
            **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), _HEADS),
            **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), _INNER),
            "max_source_positions": frames // 2,
            "max_target_positions": 448,
            "activation_function": "gelu",
            "decoder_start_token_id": words[_START],
            **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), words[_END]),
            "torch_dtype": "bfloat16",
        },
    )
    write_weights(folder / "model.safetensors", _shapes(len(words), frames // 2))
    return folder


def _shapes(words: int, positions: int) -> Shapes:
    shapes: dict[str, tuple[int, ...]] = {
        "model.encoder.conv1.weight": (_WIDTH, _MELS, 3),
        "model.encoder.conv1.bias": (_WIDTH,),
        "model.encoder.conv2.weight": (_WIDTH, _WIDTH, 3),
        "model.encoder.conv2.bias": (_WIDTH,),
        "model.encoder.embed_positions.weight": (positions, _WIDTH),
        "model.decoder.embed_tokens.weight": (words, _WIDTH),
        "model.decoder.embed_positions.weight": (448, _WIDTH),
    }
    for half, attentions in (
        ("encoder", ["self_attn"]),
        ("decoder", ["self_attn", "encoder_attn"]),
    ):
        shapes |= norm(f"model.{half}.layer_norm", _WIDTH)
        for layer in range(_LAYERS):
            name = f"model.{half}.layers.{layer}"
            for attention in attentions:
                for part in ("q_proj", "v_proj", "out_proj"):
                    shapes |= linear(f"{name}.{attention}.{part}", _WIDTH, _WIDTH)
                shapes[f"{name}.{attention}.k_proj.weight"] = (_WIDTH, _WIDTH)
                shapes |= norm(f"{name}.{attention}_layer_norm", _WIDTH)
            shapes |= linear(f"{name}.fc1", _INNER, _WIDTH)
            shapes |= linear(f"{name}.fc2", _WIDTH, _INNER)
            shapes |= norm(f"{name}.final_layer_norm", _WIDTH)
    return shapes
