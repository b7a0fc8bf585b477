"""`xgen-model hub …` as a shell runs it, on a directory, rclone's S3 server and moto's."""

import hashlib
import json
import random
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.hub.catalog import CATALOG
from tests.cli.command import XGEN_MODEL, environment, on_a_terminal, started, xgen_model
from tests.hub.hubs import Hub, hub, servers
from tests.hub.test_push import current, files_of
from tests.model_files import gemma
from tests.s3_server import KEYS
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

__all__ = ["hub", "servers"]

PREFIX = "huggingface/org_model"
in_a_directory = pytest.mark.parametrize("hub", ["directory"], indirect=True)
"""Where the kind of hub makes no difference: that is tested beside the hubs."""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def safetensors(seed: int, size_bytes: int) -> bytes:
    header = {"t": {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + random.Random(seed).randbytes(size_bytes)


def model(tmp_path: Path, *, seed: int = 1, shards: int = 1, size_bytes: int = 1000) -> Path:
    folder = tmp_path / f"model-{seed}"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for number in range(1, shards + 1):
        name = f"model-{number:05}-of-{shards:05}.safetensors"
        (folder / name).write_bytes(safetensors(seed * 100 + number, size_bytes))
    return folder


def run(hub: Hub, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return xgen_model("hub", *words, "--hub", hub.location, env=hub.environment)


def told(hub: Hub, *words: str | Path, code: int = 0) -> dict[str, Any]:
    result = run(hub, *words, "--output", "json")
    assert result.returncode == code, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    assert answer["api"] == 1
    return answer


def listed(hub: Hub, prefix: str = PREFIX) -> dict[str, Any]:
    return next(row for row in told(hub, "list")["models"] if row["prefix"] == prefix)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_model_is_pushed_listed_verified_and_removed(hub: Hub, tmp_path: Path) -> None:
    folder = model(tmp_path)

    pushed = told(hub, "push", folder, PREFIX, "--licence", "mit", "--upstream", "org/model")

    assert {each["path"]: each["sha256"] for each in pushed["files"]} == digests(folder)
    assert (pushed["format"], pushed["weights_bytes"]) == ("safetensors", 1000)
    assert (pushed["kv_bytes_per_token"], pushed["context_length"]) == (131072, 8192)
    assert (pushed["kv_windows"], pushed["kv_heads"]) == (None, 8)
    row = listed(hub)
    assert (row["state"], row["verified"], row["files"]) == ("verified", True, 2)
    assert (row["digest"], row["licence"]) == (pushed["digest"], "mit")
    checked = told(hub, "verify", PREFIX, "--deep")
    assert (checked["ok"], checked["deep"], checked["bad"]) == (True, True, [])
    removed = told(hub, "rm", PREFIX, "--yes")
    assert removed["removed"] == 4
    assert told(hub, "list")["models"] == []


@in_a_directory
def test_what_is_pushed_again_is_said_to_be_there(hub: Hub, tmp_path: Path) -> None:
    folder = model(tmp_path)
    first = told(hub, "push", folder, PREFIX)

    second = told(hub, "push", folder, PREFIX)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "eos_token_id": 2}))
    dry = told(hub, "push", folder, PREFIX, "--dry-run")
    third = told(hub, "push", folder, PREFIX)

    assert (second["changed"], second["uploaded_bytes"]) == (False, 0)
    assert [each["path"] for each in dry["files"] if each["uploaded"]] == ["config.json"]
    assert (third["digest"], third["digest_before"]) == (dry["digest"], first["digest"])
    assert listed(hub)["digests"] == [third["digest"], first["digest"]]


@pytest.mark.parametrize("objects", [1, 3])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_push_that_is_killed_is_never_in_force(
    hub: Hub, tmp_path: Path, objects: int, is_first: bool
) -> None:
    """Killed once so many of its objects are there; a second push goes on where it was cut off."""
    old = model(tmp_path, seed=1)
    if not is_first:
        told(hub, "push", old, PREFIX)
    folder = model(tmp_path, seed=2, shards=4, size_bytes=12 << 20)
    before = {each.key for each in hub.writer.stored(PREFIX)}

    with subprocess.Popen(
        [XGEN_MODEL, "hub", "push", folder, PREFIX, "--hub", hub.location],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(**hub.environment),
    ) as process:
        wait_until(lambda: len(hub.writer.stored(PREFIX)) >= len(before) + objects, what="objects")
        process.send_signal(signal.SIGKILL)
    there = {each.key for each in hub.writer.stored(PREFIX)}
    row = listed(hub)
    again = told(hub, "push", folder, PREFIX)

    assert row["state"] == ("verified" if CATALOG in there else "incomplete")  # it may be quick
    uploaded = {each["path"] for each in again["files"] if each["uploaded"]}
    assert not uploaded & there
    assert len(uploaded) <= 6 - objects
    found = files_of(hub, current(hub.writer, PREFIX), PREFIX)
    assert {name: hashlib.sha256(each).hexdigest() for name, each in found.items()} == digests(
        folder
    )
    assert before <= there


def test_pushes_at_once_all_stay_pullable(hub: Hub, tmp_path: Path) -> None:
    folders = [model(tmp_path, seed=seed, size_bytes=9 << 20) for seed in (1, 2, 3)]
    commands = [
        subprocess.Popen(
            [XGEN_MODEL, "hub", "push", folder, PREFIX, "--hub", hub.location, "--output", "json"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(**hub.environment),
        )
        for folder in folders
    ]
    answers = [json.loads(command.communicate(timeout=60)[0]) for command in commands]

    assert all(command.returncode == 0 for command in commands)
    assert len({answer["digest"] for answer in answers}) == 3
    for answer in answers:
        words = ("verify", PREFIX, "--deep", "--digest", answer["digest"])
        assert told(hub, *words)["ok"]
    assert listed(hub)["digest"] in {answer["digest"] for answer in answers}


@in_a_directory
def test_every_damaged_file_is_named(hub: Hub, tmp_path: Path) -> None:
    told(hub, "push", model(tmp_path, shards=3), PREFIX)
    first, second = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2))
    hub.writer.delete(PREFIX, first)
    content = bytearray(b"".join(hub.writer.read(PREFIX, second)))
    content[-1] ^= 1
    hub.writer.save(PREFIX, second, bytes(content))

    shallow = run(hub, "verify", PREFIX)
    deep = run(hub, "verify", PREFIX, "--deep")

    assert (shallow.returncode, deep.returncode) == (1, 1)
    assert shallow.stderr == f"error: {PREFIX}/{first}: it is missing\n"
    assert f"{PREFIX}/{second}: its content is not what was pushed" in deep.stderr
    told(hub, "push", model(tmp_path, shards=3), PREFIX, "--again")
    assert run(hub, "verify", PREFIX, "--deep").returncode == 0


@in_a_directory
def test_a_prefix_without_a_catalog_is_unverified(hub: Hub) -> None:
    hub.writer.save(PREFIX, "model.safetensors", safetensors(1, 10))
    hub.writer.save(PREFIX, "config.json", b"{}")

    row = listed(hub)
    result = run(hub, "verify", PREFIX)

    assert (row["state"], row["verified"], row["format"]) == ("unverified", False, "safetensors")
    assert result.returncode == 0
    assert result.stderr.startswith(f"{PREFIX} is unverified: ")


@in_a_directory
def test_a_damaged_catalog_is_shown(hub: Hub, tmp_path: Path) -> None:
    told(hub, "push", model(tmp_path), PREFIX)
    hub.writer.save(PREFIX, ".xgen/catalog.json", b"{}")

    row = listed(hub)

    assert (row["state"], row["verified"]) == ("damaged", False)
    assert row["reason"].startswith("cannot read catalog")
    assert "it is damaged" in run(hub, "verify", PREFIX).stderr


@in_a_directory
def test_gc_frees_what_old_pushes_need(hub: Hub, tmp_path: Path) -> None:
    first, second = (
        told(hub, "push", model(tmp_path, seed=seed), PREFIX)["digest"] for seed in (1, 2)
    )

    young = told(hub, "gc")
    dry = told(hub, "gc", "--keep", "1", "--min-age", "0", "--dry-run")
    pinned = told(hub, "gc", "--keep", "1", "--min-age", "0", "--keep-digest", first)
    unknown = run(hub, "gc", "--keep-digest", "abc")
    swept = told(hub, "gc", PREFIX, "--keep", "1", "--min-age", "0")

    assert young["freed_bytes"] == pinned["freed_bytes"] == 0
    assert unknown.returncode == 1
    assert "cannot keep digest abc: " in unknown.stderr
    assert dry["models"][0]["digests"] == swept["models"][0]["digests"] == [first]
    assert dry["freed_bytes"] == swept["freed_bytes"] > 1000
    assert listed(hub)["digests"] == [second]
    assert told(hub, "verify", PREFIX, "--deep")["ok"]


@in_a_directory
def test_a_prefix_that_is_not_there_is_named_with_the_nearest(hub: Hub, tmp_path: Path) -> None:
    told(hub, "push", model(tmp_path), PREFIX)

    for words in (["verify"], ["rm", "--yes"], ["list"], ["gc"]):
        result = run(hub, words[0], "huggingface/org_modle", *words[1:])
        assert (result.returncode, result.stdout) == (1, "")
        assert f"nearest: {PREFIX}" in result.stderr


@in_a_directory
def test_removing_asks_on_a_terminal_and_says_what_goes(hub: Hub, tmp_path: Path) -> None:
    told(hub, "push", model(tmp_path), PREFIX)
    words = ("hub", "rm", PREFIX, "--hub", hub.location)

    unasked = run(hub, "rm", PREFIX)
    with started(*words, columns=200, env=hub.environment) as command:
        command.wait_for("? [y/N]: ")
        command.type("n\n")
        declined = command.wait()
        said = command.text
    there = listed(hub)["state"]
    with started(*words, columns=200, env=hub.environment) as command:
        command.wait_for("? [y/N]: ")
        command.type("y\n")
        agreed = command.wait()

    assert unasked.returncode == 64
    assert (declined, agreed) == (1, 0)
    assert f"Remove {PREFIX} in " in said
    assert "4 objects" in said
    assert there == "verified"
    assert told(hub, "list")["models"] == []


def test_a_real_model_is_pushed_with_a_bar_on_a_terminal(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "gemma"
    folder.mkdir()
    shutil.copyfile(gemma(), folder / gemma().name)

    code, shown = on_a_terminal(
        "hub", "push", folder, "gguf/google_gemma-3-270m", "--hub", hub.location,
        columns=100, env=hub.environment,
    )  # fmt: skip

    assert code == 0, shown
    assert "hashing" in shown
    assert "uploading" in shown
    assert "pushed: uploaded 1 of 1 file, 241 MiB" in shown
    assert told(hub, "verify", "gguf/google_gemma-3-270m", "--deep")["ok"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "it holds no file"),
        ({"README.md": b"x"}, "it holds no GGUF and no safetensors"),
        ({"m.gguf": b"\0" * 4096}, "not a GGUF file"),
        ({"m.safetensors": b"\0" * 4096}, "not a safetensors file"),
        ({"m.safetensors": safetensors(1, 9)[:-1], "config.json": b"{}"}, "it is cut off"),
        ({"model-00001-of-00002.safetensors": safetensors(1, 9)}, "1 of 2 shards missing"),
        ({"m.safetensors": safetensors(1, 9), "M.safetensors": b"x"}, "cannot push 'm.saf"),
        ({"m.safetensors": safetensors(1, 9), "a\\b": b"x"}, "it holds a backslash"),
    ],
)
def test_what_no_node_could_use_is_not_pushed(
    tmp_path: Path, files: dict[str, bytes], said: str
) -> None:
    """ollama#17520: a block of zeros passes as a model."""
    folder, place = tmp_path / "model", tmp_path / "hub"
    folder.mkdir()
    place.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)

    result = xgen_model("hub", "push", folder, PREFIX, "--hub", place)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: cannot ")
    assert said in result.stderr
    assert list(place.iterdir()) == []


def test_a_hub_that_is_not_mounted_is_not_created(tmp_path: Path) -> None:
    result = xgen_model("hub", "push", model(tmp_path), PREFIX, "--hub", tmp_path / "mnt")

    assert result.returncode == 1
    assert "No such file or directory; is it mounted?" in result.stderr
    assert not (tmp_path / "mnt").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"MINIO_SECRET_KEY": "wrong-secret"}, "the secret key is wrong; check MINIO_SECRET_KEY"),
        ({"MINIO_ACCESS_KEY": "nobody"}, "check MINIO_ACCESS_KEY"),
        ({"MINIO_ENDPOINT": "http://127.0.0.1:1"}, "it does not accept connections"),
        ({"MINIO_ENDPOINT": ""}, "no endpoint is set (MINIO_ENDPOINT)"),
    ],
)
def test_a_hub_that_does_not_let_us_in_says_what_to_check(
    servers: Any, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    settings = servers.settings("rclone")
    env = {
        "MINIO_ENDPOINT": settings.endpoint,
        **KEYS,
        **changes,
    }

    for words in (["list"], ["push", str(model(tmp_path)), PREFIX]):
        result = xgen_model("hub", *words, "--hub", "s3://models", env=env)
        assert result.returncode == 1
        assert said in result.stderr
        assert "wrong-secret" not in result.stderr + result.stdout
        assert KEYS["MINIO_SECRET_KEY"] not in result.stderr + result.stdout


def test_ctrl_c_ends_a_push_and_leaves_the_old_one_in_force(hub: Hub, tmp_path: Path) -> None:
    told(hub, "push", model(tmp_path, seed=1), PREFIX)
    before = listed(hub)["digest"]
    folder = model(tmp_path, seed=2, shards=4, size_bytes=24 << 20)

    with started(
        "hub", "push", folder, PREFIX, "--hub", hub.location, columns=100, env=hub.environment
    ) as command:
        command.wait_for("uploading")
        code = command.interrupt()

    assert "Traceback" not in command.text
    if code == 130:
        assert "interrupted: nothing of this push is in force; the same" in command.text
        assert listed(hub)["digest"] == before
    assert told(hub, "verify", PREFIX, "--deep")["ok"]


def test_without_a_command_the_group_lists_them() -> None:
    result = xgen_model("hub")

    assert result.returncode == 64
    for name in ("list", "push", "pull", "verify", "import", "rm", "gc"):
        assert f"\n  {name} " in result.stderr
    assert sys.executable not in result.stderr
