"""A tokenizer without a download: one token a byte, in the files that `transformers` reads."""

import json
from pathlib import Path

_END = "<eos>"


def write_tokenizer(folder: Path) -> Path:
    """A folder for `--tokenizer` of load generators. Returns it."""
    folder.mkdir()
    vocabulary = {letter: number for number, letter in enumerate(byte_alphabet())}
    end = {"id": len(vocabulary), "content": _END, "special": True, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{**end, "single_word": False, "lstrip": False, "rstrip": False}],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {**vocabulary, _END: end["id"]}, "merges": []},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": _END}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def byte_alphabet() -> list[str]:
    """A printable letter for each of the 256 bytes, as GPT-2 has them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]
