import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.backend.gguf import HEADER_LIMIT_BYTES, check_whole, read_header
from reconciler.backend.model_info import ModelInfo
from reconciler.errors import Rejected, Transient
from tests.gguf_file import Tensor, header
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
    assert read_header(written(tmp_path, header(BERT))) == ModelInfo(
        architecture="bert",
        kind="model",
        name="tiny",
        context_length=512,
        embedding_length=384,
        block_count=6,
        pooling="cls",
        causal=False,
    )


@pytest.mark.parametrize(("number", "pooling"), [(0, "none"), (1, "mean"), (3, "last"), (9, None)])
def test_names_the_pooling(tmp_path: Path, number: int, pooling: str | None) -> None:
    content = header({**BERT, "bert.pooling_type": number})
    assert read_header(written(tmp_path, content)).pooling == pooling


@pytest.mark.parametrize("name", ["cls.weight", "cls.output.weight"])
def test_knows_a_reranker_by_its_head(tmp_path: Path, name: str) -> None:
    """Older ones name no pooling, and some that name it have no head (llama.cpp#25447)."""
    scores = header(BERT, tensors=[Tensor((1,)), Tensor((1,), name=name)])
    rank = header({**BERT, "bert.pooling_type": 4}, tensors=[Tensor((1,), name="cls.bias")])
    assert read_header(written(tmp_path, scores.ljust(2048, b"\0"))).scores
    assert not read_header(written(tmp_path, rank.ljust(2048, b"\0"))).scores


def test_a_head_may_be_in_a_later_shard(tmp_path: Path) -> None:
    shards = [tmp_path / f"m-{number:05}-of-00002.gguf" for number in (1, 2)]
    head = [Tensor((1,), name="cls.output.weight")]
    for number, (path, tensors) in enumerate(zip(shards, ([], head), strict=True)):
        keys = {**BERT, "split.no": number, "split.count": 2}
        path.write_bytes(header(keys, tensors=tensors).ljust(2048, b"\0"))
    assert read_header(str(shards[0])).scores


@pytest.mark.engine
def test_reads_a_real_model() -> None:
    found = read_header(str(gemma()))
    assert found.layers is not None
    assert (len(found.layers.blocks), found.layers.tied) == (18, True)
    assert found.windows is not None
    assert replace(found, layers=None, windows=None) == ModelInfo(
        architecture="gemma3",
        kind="model",
        name="Gemma 3 270m",
        context_length=32768,
        embedding_length=640,
        block_count=18,
    )


@pytest.mark.engine
@pytest.mark.parametrize("size", [100_000_000, -1])
def test_a_real_model_that_was_cut_is_known_by_its_size(tmp_path: Path, size: int) -> None:
    """A copy that is under way, or a disk that was full: llama.cpp would only find it in a load."""
    path = tmp_path / "model.gguf"
    shutil.copyfile(gemma(), path)
    whole = path.stat().st_size
    os.truncate(path, size if size > 0 else whole + size)
    with pytest.raises(Rejected, match=rf"it is cut off: .* of at least {whole} bytes are there"):
        read_header(str(path))


@pytest.mark.parametrize(
    ("dimensions", "kind", "needed"),
    [((256, 2), 0, 2048), ((256,), 1, 512), ((512, 3), 12, 864), ((64, 2), 39, 68), ((8,), 99, 0)],
)
def test_the_least_size_is_that_of_the_tensors(
    tmp_path: Path, dimensions: tuple[int, ...], kind: int, needed: int
) -> None:
    """F32, F16, Q4_K, MXFP4, and one that nobody knows yet, which may be as small as it likes."""
    head = header(BERT, tensors=[Tensor(dimensions, kind, 64)])
    begin = -(-len(head) // 32) * 32 + 64
    whole = head.ljust(begin, b"\0") + bytes(needed)
    assert read_header(written(tmp_path, whole)).architecture == "bert"
    with pytest.raises(Rejected, match=f"{len(whole) - 1} of at least {len(whole)} bytes"):
        read_header(written(tmp_path, whole[:-1]))


def test_the_files_own_alignment_counts(tmp_path: Path) -> None:
    head = header({**BERT, "general.alignment": 4096}, tensors=[Tensor((1,))])
    path = written(tmp_path, head.ljust(4096, b"\0") + bytes(3))
    with pytest.raises(Rejected, match="4099 of at least 4100 bytes"):
        read_header(path)


def test_a_later_shard_that_was_cut_is_found(tmp_path: Path) -> None:
    shards = [tmp_path / f"m-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for number, path in enumerate(shards):
        path.write_bytes(header({**BERT, "split.no": number, "split.count": 3}))
    assert read_header(str(shards[0])).shards == 3
    shards[2].write_bytes(shards[2].read_bytes()[:-1])
    with pytest.raises(Rejected, match=r"m-00003-of-00003\.gguf: truncated header"):
        read_header(str(shards[0]))


def test_what_is_no_model_of_its_own_can_be_whole(tmp_path: Path) -> None:
    content = header({"general.architecture": "clip"})
    check_whole(written(tmp_path, content))
    with pytest.raises(Rejected, match="truncated header"):
        check_whole(written(tmp_path, content[:-1]))


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
        (header(BERT, tensors=[Tensor((1,) * 9)]), "a tensor of 9 dimensions"),
        (header(BERT, tensors=[Tensor((1,))])[:-1], "truncated header"),
        (header(BERT)[:8] + struct.pack("<Q", HUGE) + header(BERT)[16:], f"claims {HUGE} tensors"),
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
