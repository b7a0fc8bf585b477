"""Weights that end in zeros: which are taken for a download that did not end."""

import json
import struct
from pathlib import Path

import pytest

from reconciler.errors import Rejected
from reconciler.hub.local_files import Hashed, files_below, hash_file
from reconciler.hub.writable import Watch
from reconciler.node.zeros import check_no_zeros
from tests.cli.command import xgen_model
from tests.gguf_file import Tensor, header

KIB = 1024
BLOCK_BYTES = 4 * KIB * KIB


def gguf(content: bytes) -> bytes:
    """Right by its size and its header."""
    head = header({"general.architecture": "llama"}, tensors=[Tensor((len(content) // 4,))])
    return head + b"\0" * (-len(head) % 32) + content


def safetensors(content: bytes) -> bytes:
    tensor = {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}
    head = json.dumps({"t": tensor}).encode()
    return struct.pack("<Q", len(head)) + head + content


def hashed(folder: Path, name: str, content: bytes) -> list[Hashed]:
    (folder / name).write_bytes(content)
    watch = Watch(on_bytes=lambda _count: None, check=lambda: None)
    return [hash_file(file, watch) for file in files_below(folder)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.gguf", gguf(bytes(200 * KIB))),
        ("M.GGUF", gguf(b"\1" * BLOCK_BYTES + bytes(64 * KIB))),
        ("m.gguf", gguf(b"\1" + bytes(3 * BLOCK_BYTES - 1))),
        ("m.gguf", gguf(bytes(8))),
        ("m.safetensors", safetensors(b"\1" * 10 + bytes(64 * KIB))),
        ("m.safetensors", safetensors(bytes(2))),
    ],
)
def test_what_did_not_come_is_refused_with_its_place(
    tmp_path: Path, name: str, content: bytes
) -> None:
    files = hashed(tmp_path, name, content)
    begin = len(content.rstrip(b"\0"))
    assert len(content) - files[0].zero_bytes == begin
    with pytest.raises(Rejected, match=f"{name}: it holds only zeros from byte {begin} to its end"):
        check_no_zeros(files)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.gguf", gguf(b"\1" * 8 + bytes(64 * KIB - 4))),
        ("m.gguf", gguf(bytes(200 * KIB) + b"\0\0\0\1")),
        ("m.safetensors", safetensors(bytes(9) + b"\1")),
        ("m.safetensors", safetensors(b"")),
        ("notes.bin", bytes(200 * KIB)),
    ],
)
def test_a_few_zeros_are_weights(tmp_path: Path, name: str, content: bytes) -> None:
    check_no_zeros(hashed(tmp_path, name, content))


def test_a_push_refuses_it_unless_that_is_meant(tmp_path: Path) -> None:
    folder, hub = tmp_path / "model", tmp_path / "hub"
    folder.mkdir()
    hub.mkdir()
    (folder / "m.gguf").write_bytes(gguf(bytes(200 * KIB)))
    words = ("hub", "push", folder, "gguf/org_m", "--hub", hub)

    refused = xgen_model(*words)
    assert (refused.returncode, list(hub.iterdir())) == (1, [])
    assert "--allow-zeros pushes it as it is" in refused.stderr
    assert xgen_model(*words, "--allow-zeros").returncode == 0
