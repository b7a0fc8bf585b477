import os
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.backend.gguf import HEADER_LIMIT_BYTES, GgufInfo, read_header
from reconciler.errors import Rejected, Transient
from tests.backend.build import header
from tests.model_files import gemma

BERT = {
    "general.architecture": "bert",
    "general.type": "model",
    "general.name": "tiny",
    "bert.context_length": 512,
    "bert.embedding_length": 384,
    "bert.block_count": 6,
    "bert.attention.layer_norm_epsilon": 1e-12,
    "bert.attention.causal": False,
    "tokenizer.ggml.tokens": ["[PAD]", "a", "b"],
    "bert.pooling_type": 2,
}


def written(folder: Path, content: bytes) -> str:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return str(path)


def test_reads_what_a_model_says_of_itself(tmp_path: Path) -> None:
    assert read_header(written(tmp_path, header(BERT))) == GgufInfo(
        architecture="bert",
        kind="model",
        name="tiny",
        context_length=512,
        embedding_length=384,
        block_count=6,
        pooling="cls",
    )


@pytest.mark.parametrize(("number", "pooling"), [(0, "none"), (1, "mean"), (3, "last"), (9, None)])
def test_names_the_pooling(tmp_path: Path, number: int, pooling: str | None) -> None:
    content = header({**BERT, "bert.pooling_type": number})
    assert read_header(written(tmp_path, content)).pooling == pooling


@pytest.mark.engine
def test_reads_a_real_model() -> None:
    assert read_header(str(gemma())) == GgufInfo(
        architecture="gemma3",
        kind="model",
        name="Gemma 3 270m",
        context_length=32768,
        embedding_length=640,
        block_count=18,
    )


def test_takes_the_first_shard_of_a_split_model_only(tmp_path: Path) -> None:
    first = {**BERT, "split.no": 0, "split.count": 3}
    assert read_header(written(tmp_path, header(first))).shards == 3
    with pytest.raises(Rejected, match="it is shard 2 of 3, not the first"):
        read_header(written(tmp_path, header({**first, "split.no": 1})))


HUGE = 2**60


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated header"),
        (b"GG", "truncated header"),
        (b"hello, world", "not a GGUF file"),
        (bytes(4096), "not a GGUF file"),
        (header(BERT)[:100], "truncated header"),
        (header(BERT, version=1), "GGUF version 1 is not known"),
        (header(BERT, count=HUGE), f"claims {HUGE} keys"),
        (header(BERT, count=len(BERT) + 1), "truncated header"),
        (header({})[:16] + struct.pack("<QQ", 1, HUGE), "claims more than 64 MiB"),
        (header({}), "names no architecture"),
        (header({"general.architecture": 7}), "names no architecture"),
        (header({"general.architecture": "clip"}), "it is a multimodal projector, not a model"),
        (header({**BERT, "general.type": "mmproj"}), "it is a multimodal projector, not a model"),
        (header({**BERT, "general.type": "adapter"}), "it is an adapter, not a model"),
        (
            header({}, count=1) + struct.pack("<QsIIQ", 1, b"a", 9, 8, HUGE),
            "truncated header",
        ),
        (
            header({}, count=1) + struct.pack("<QsIIQ", 1, b"a", 9, 4, HUGE),
            "claims more than 64 MiB",
        ),
        (header({}, count=1) + struct.pack("<QsIIQ", 1, b"a", 9, 9, 1), "the unknown type 9"),
        (header({}, count=1) + struct.pack("<QsI", 1, b"a", 77), "the unknown type 77"),
    ],
)
def test_rejects_what_is_not_a_model(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(Rejected) as error:
        read_header(path)
    assert str(error.value).startswith(f"cannot read {path}: ")
    assert message in str(error.value)


def test_does_not_read_a_hole_of_a_hundred_gigabytes(tmp_path: Path) -> None:
    path = written(tmp_path, header({}, count=1) + struct.pack("<QsIIQ", 1, b"a", 9, 8, HUGE))
    os.truncate(path, 100 * 2**30)
    with pytest.raises(Rejected, match="claims more than 64 MiB"):
        read_header(path)
    assert HEADER_LIMIT_BYTES == 64 * 2**20


def test_a_file_that_cannot_be_read_may_be_readable_later(tmp_path: Path) -> None:
    with pytest.raises(Transient, match="No such file"):
        read_header(str(tmp_path / "gone.gguf"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(header(BERT)) - 1), st.integers(0, 255), st.booleans())
def test_a_damaged_header_is_read_or_rejected(
    tmp_path: Path, position: int, byte: int, cut: bool
) -> None:
    content = bytearray(header(BERT))
    content[position] = byte
    path = written(tmp_path, bytes(content[:position] if cut else content))
    try:
        read_header(path)
    except Rejected:
        return
    assert not cut
