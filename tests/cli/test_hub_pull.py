"""`xgen-model hub pull` as a shell runs it: real hubs, real folders, real signals."""

import fcntl
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.cache.export import Export
from reconciler.cache.journal import read_claims
from reconciler.cache.record import RecordedObject
from reconciler.errors import Rejected, Transient
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.pulled import pulled_catalog
from tests.cache.conftest import small_disk
from tests.cli.command import XGEN_MODEL, environment, started, xgen_model
from tests.cli.test_hub import CONFIG, PREFIX, in_a_directory, model, run, safetensors, told
from tests.hub.fault_proxy import FaultProxy, Get, fault_proxy
from tests.hub.hubs import Hub, Servers, hub, new_hub, servers
from tests.hub.test_push import Silent, current, files_of, folder_of, pushed
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

__all__ = ["hub", "servers", "small_disk"]

MIB = 1 << 20
PART_BYTES = 8 * MIB
in_rclone = pytest.mark.parametrize("hub", ["rclone"], indirect=True)
wherever_files_come_from = pytest.mark.parametrize("hub", ["directory", "rclone"], indirect=True)


def content(folder: Path) -> dict[str, bytes]:
    """Without hidden names."""
    paths = [path for path in folder.rglob("*") if path.is_file() and ".xgen" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@in_rclone
def test_a_model_goes_through_a_folder_to_a_hub_without_a_network(
    hub: Hub, servers: Servers, tmp_path: Path
) -> None:
    """The air gap: its digest, licence, upstream and revision are the same on the other side."""
    folder, carried = model(tmp_path, shards=2, size_bytes=2 * MIB), tmp_path / "usb" / "model"
    catalog = pushed(
        hub, folder, PREFIX, licence="mit", upstream="org/model", revision="abc"
    ).catalog

    pulled = told(hub, "pull", PREFIX, carried)
    again = told(hub, "pull", PREFIX, carried)
    with new_hub("directory", servers, tmp_path) as other:
        arrived = told(other, "push", carried, PREFIX)
        there = current(other.writer, PREFIX)
        assert files_of(other, there, PREFIX) == content(folder)

    assert content(carried) == content(folder)
    assert (pulled["prefix"], pulled["folder"]) == (PREFIX, str(carried))
    assert pulled["verified"]
    assert pulled["fetched_bytes"] == pulled["size_bytes"] == catalog.size_bytes
    assert (again["fetched_bytes"], again["present_bytes"]) == (0, catalog.size_bytes)
    assert {each["proof"] for each in pulled["files"]} == {"sha256"}
    assert all(each["fetched"] for each in pulled["files"])
    assert not any(each["fetched"] for each in again["files"])
    assert pulled["digest"] == arrived["digest"] == there.digest == catalog.digest
    assert (there.licence, there.upstream) == (catalog.licence, catalog.upstream)
    assert (arrived["licence"], arrived["upstream"], arrived["revision"]) == (
        "mit",
        "org/model",
        "abc",
    )
    assert sorted(path.name for path in (carried / ".xgen").iterdir()) == ["catalog.json", "lock"]


@in_a_directory
def test_what_was_said_of_other_files_is_not_taken_over(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, model(tmp_path), PREFIX, licence="mit", upstream="org/model")
    folder, prefix = tmp_path / "pulled", "huggingface/org_other"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "notes.txt").write_text("mine")

    pulled = run(hub, "pull", PREFIX, folder)
    other = run(hub, "push", folder, prefix)
    (folder / ".xgen" / "catalog.json").write_text("{}")
    damaged = run(hub, "push", folder, prefix)

    assert "holds 1 file beside the model's, which a push of it takes too: sub/notes.txt" in (
        pulled.stderr
    )
    assert "say it if it holds: --licence mit --upstream org/model" in other.stderr
    there = current(hub.writer, prefix)
    assert (there.licence, there.upstream, len(there.files)) == (None, None, 3)
    assert damaged.returncode == 1
    assert "remove it, or pull the model again" in damaged.stderr


@in_a_directory
def test_one_gguf_comes_with_what_belongs_to_it(hub: Hub, tmp_path: Path) -> None:
    prefix, target = "gguf/org_two", tmp_path / "q4"
    names = ("m-q4-00001-of-00002.gguf", "m-q4-00002-of-00002.gguf", "m-q8.gguf", "mmproj-f16.gguf")
    files = {**{name: name.encode() for name in names}, "LICENSE": b"text"}
    whole = pushed(hub, folder_of(tmp_path, files), prefix, licence="mit").catalog

    pulled = told(hub, "pull", prefix, target, "--file", names[0])
    unknown = run(hub, "pull", prefix, tmp_path / "none", "--file", "m-q5.gguf")
    other = pushed(hub, target, "gguf/org_q4", pulled=pulled_catalog(target)).catalog

    paths = [each["path"] for each in pulled["files"]]
    assert paths == sorted(content(target)) == ["LICENSE", names[0], names[1], names[3]]
    assert pulled["prefix_digest"] == whole.digest != pulled["digest"]
    assert (other.digest, other.licence) == (pulled["digest"], "mit")
    assert unknown.returncode == 1
    assert "no m-q5.gguf; nearest: " in unknown.stderr
    assert not (tmp_path / "none").exists()


@in_a_directory
def test_an_older_push_is_pulled_by_its_digest(hub: Hub, tmp_path: Path) -> None:
    old = model(tmp_path, seed=1)
    first = pushed(hub, old, PREFIX).catalog.digest
    pushed(hub, model(tmp_path, seed=2), PREFIX)

    pulled = told(hub, "pull", PREFIX, tmp_path / "old", "--digest", f"sha256:{first[:12]}")
    refused = run(hub, "pull", PREFIX, tmp_path / "x", "--digest", "")

    assert pulled["digest"] == first
    assert content(tmp_path / "old") == content(old)
    assert refused.returncode == 1
    assert "it has no catalog of digest ''; it has " in refused.stderr
    assert first in refused.stderr


class _Valve:
    """Lets so many parts through, and the first bytes of the others."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self._open_bytes = 0
        self._released = threading.Event()
        proxy.pace = self._pace

    def let(self, parts: int) -> None:
        self._open_bytes = parts * PART_BYTES
        self._released.clear()

    def release(self) -> None:
        """What is held back goes on, and what follows."""
        self._released.set()

    def _pace(self, get: Get, count: int) -> None:
        if get.offset >= self._open_bytes:
            self._released.wait()


@contextmanager
def throttled(hub: Hub) -> Iterator[tuple[FaultProxy, _Valve, Mapping[str, str]]]:
    """A way to the hub, its valve, and what a command is given to take it."""
    port = int(hub.environment["MINIO_ENDPOINT"].rpartition(":")[2])
    with fault_proxy(port) as proxy:
        valve = _Valve(proxy)
        try:
            yield proxy, valve, {**hub.environment, "MINIO_ENDPOINT": proxy.endpoint}
        finally:
            valve.release()


def finished_bytes(folder: Path) -> int:
    """What the journals in there say."""
    found = [read_claims(path) for path in folder.glob(".xgen/partial/*.journal")]
    return sum(claims.done_bytes for claims in found if claims is not None)


@in_rclone
def test_a_pull_goes_on_after_ctrl_c_and_after_a_kill(hub: Hub, tmp_path: Path) -> None:
    folder, target = model(tmp_path, size_bytes=5 * PART_BYTES), tmp_path / "pulled"
    size_bytes = pushed(hub, folder, PREFIX).catalog.size_bytes
    words = ("hub", "pull", PREFIX, target, "--hub", hub.location)

    with throttled(hub) as (proxy, valve, env):
        valve.let(1)
        with started(*words, columns=100, env=env) as command:
            wait_until(lambda: finished_bytes(target) >= PART_BYTES, what="a part")
            interrupted = command.interrupt()
            said = command.text
        valve.release()
        wait_until(lambda: proxy.open_now == 0, what="the transfer has ended")

        valve.let(3)
        argv = [XGEN_MODEL, *map(str, words)]
        with subprocess.Popen(argv, env=environment(**env), stderr=subprocess.DEVNULL) as process:
            wait_until(lambda: finished_bytes(target) >= 3 * PART_BYTES, what="three parts")
            process.send_signal(signal.SIGKILL)
        valve.release()
        wait_until(lambda: proxy.open_now == 0, what="the transfer has ended")
        left = sorted(content(target))
        finished, before = finished_bytes(target), proxy.passed

        result = xgen_model(*words, "--output", "json", env=env)
        brought = proxy.passed - before

    assert interrupted == 130, said
    assert "fetching" in said
    assert "interrupted: what is whole is kept; the same command brings the rest" in said
    assert "Traceback" not in said
    assert left == ["config.json"]
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["size_bytes"] == size_bytes
    assert answer["fetched_bytes"] == size_bytes - finished - len(json.dumps(CONFIG))
    assert answer["present_bytes"] == size_bytes - answer["fetched_bytes"]
    assert brought < size_bytes - 3 * PART_BYTES + MIB  # with the catalog, which is read anew
    assert content(target) == content(folder)
    assert not (target / ".xgen" / "partial").exists()


@in_rclone
def test_what_is_rotten_in_the_hub_gets_no_name(hub: Hub, tmp_path: Path) -> None:
    folder, target = model(tmp_path, shards=2), tmp_path / "pulled"
    pushed(hub, folder, PREFIX)
    (name, *_) = sorted(path.name for path in folder.glob("*.safetensors"))
    rotten = bytearray((folder / name).read_bytes())
    rotten[-1] ^= 1
    hub.writer.save(PREFIX, name, bytes(rotten))

    result = run(hub, "pull", PREFIX, target)
    left = content(target)
    pushed(hub, folder, PREFIX, again=True)
    again = told(hub, "pull", PREFIX, target)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: cannot fetch ")
    assert name in result.stderr
    assert "its content does not match its sha256, after 3 fetches; push it again" in result.stderr
    assert name not in left
    assert left.items() <= content(folder).items()
    assert again["verified"]
    assert content(target) == content(folder)


@wherever_files_come_from
def test_without_a_catalog_it_is_compared_as_far_as_the_hub_tells(hub: Hub, tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(1, 10), "config.json": b"{}"}
    for name, each in files.items():
        hub.writer.save(PREFIX, name, each)

    result = run(hub, "pull", PREFIX, tmp_path / "a folder")

    assert content(tmp_path / "a folder") == files
    proof = {"directory": "size alone", "rclone": "MD5"}[hub.kind]
    assert f"verified  2 by {proof}\n" in result.stdout
    assert "digest    none: it has no catalog\n" in result.stdout
    assert f"push '{tmp_path}/a folder' {PREFIX} --hub PLACE\n" in result.stdout
    assert f"{PREFIX} is unverified: " in result.stderr


@in_a_directory
def test_other_files_are_replaced_only_when_that_is_said(hub: Hub, tmp_path: Path) -> None:
    folder, target = model(tmp_path), tmp_path / "pulled"
    pushed(hub, folder, PREFIX)
    (weights,) = (path.name for path in folder.glob("*.safetensors"))
    target.mkdir()
    same_size = bytes((folder / weights).stat().st_size)
    mine = {"config.json": b"mine", weights: same_size}
    for name, each in mine.items():
        (target / name).write_bytes(each)

    refused = run(hub, "pull", PREFIX, target)
    kept = content(target)
    replaced = told(hub, "pull", PREFIX, target, "--force")

    assert refused.returncode == 1
    assert (
        f"other files have names of the model's there: config.json, {weights}; " in refused.stderr
    )
    assert "--force replaces them" in refused.stderr
    assert kept == mine
    assert all(each["fetched"] for each in replaced["files"])
    assert content(target) == content(folder)


def export(tmp_path: Path, target: Path, *paths: str) -> None:
    """Pull one byte at each of these paths, replacing what is there, without a command."""
    hub = tmp_path / "hub"
    (hub / PREFIX).mkdir(parents=True, exist_ok=True)
    (hub / PREFIX / "x").write_bytes(b"x")
    store = DirectoryStore(hub)
    (stored,) = store.objects(PREFIX)
    items = [
        RecordedObject(path=path, key=stored.key, size_bytes=1, version=stored.version)
        for path in paths
    ]
    Export(store, PREFIX, target, replace=True).run(
        items, Silent(), on_wait=lambda: None, on_done=lambda: None
    )


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "a\\x", "a//x", "a\nx"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    """Names of objects are whatever somebody pushed."""
    with pytest.raises(Transient, match="cannot pull"):
        export(tmp_path, tmp_path / "pulled", "fine", path)

    assert [each.name for each in tmp_path.iterdir()] == ["hub"]


def test_what_stands_in_the_way_is_named_and_stays(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "pulled"
    for folder in (outside, target / "folder", tmp_path / "linked"):
        folder.mkdir(parents=True)
    (target / "link").symlink_to(outside)
    (target / "file").write_text("mine")
    (tmp_path / "linked" / ".xgen").symlink_to(outside)

    with pytest.raises(Rejected, match=f"a link in it leads link/x out to {outside}"):
        export(tmp_path, target, "link/x")
    with pytest.raises(Rejected, match="a file stands where a folder of file/x belongs"):
        export(tmp_path, target, "file/x")
    with pytest.raises(Rejected, match="folder is a folder there"):
        export(tmp_path, target, "folder")
    with pytest.raises(Rejected, match=f"a link in it leads .xgen/lock out to {outside}"):
        export(tmp_path, tmp_path / "linked", "x")

    export(tmp_path, target, "link", "new/x")
    assert content(target) == {"file": b"mine", "link": b"x", "new/x": b"x"}
    assert list(outside.iterdir()) == []


@in_a_directory
def test_two_pulls_into_one_folder_write_one_after_the_other(hub: Hub, tmp_path: Path) -> None:
    folder, target = model(tmp_path, shards=3), tmp_path / "pulled"
    pushed(hub, folder, PREFIX)
    (target / ".xgen").mkdir(parents=True)
    with (target / ".xgen" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = ("hub", "pull", PREFIX, target, "--hub", hub.location)
        with started(*words) as one, started(*words) as other:
            for command in (one, other):
                command.wait_for(f"another pull writes into {target}; waiting for its end")
            waited = content(target)
            lock.close()
            codes = one.wait(), other.wait()
            said = one.text + other.text

    assert waited == {}
    assert codes == (0, 0), said
    assert said.count("pulled: fetched 4 files") == 1
    assert said.count("nothing to do: all of it was there") == 1
    assert content(target) == content(folder)


def test_room_is_compared_before_the_first_byte(small_disk: Path, tmp_path: Path) -> None:
    place = tmp_path / "hub"
    (place / PREFIX).mkdir(parents=True)
    for name in ("a.safetensors", "b.safetensors"):
        (place / PREFIX / name).write_bytes(safetensors(1, 3 * MIB))

    result = xgen_model("hub", "pull", PREFIX, small_disk / "model", "--hub", place)

    assert result.returncode == 1
    said = f"cannot pull {PREFIX} into {small_disk}/model: 6.0 MiB are needed and "
    assert said in result.stderr
    assert " MiB are free" in result.stderr
    assert list(small_disk.iterdir()) == []


@in_a_directory
def test_mistakes_are_explained(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, model(tmp_path), PREFIX)
    file, prefix = tmp_path / "file", tmp_path / "prefix"
    file.write_text("x")
    (prefix / ".xgen" / "catalogs").mkdir(parents=True)

    unknown = run(hub, "pull", "huggingface/org_modle")
    into_a_file = run(hub, "pull", PREFIX, file)
    into_a_prefix = run(hub, "pull", PREFIX, prefix)
    beside_it = run(hub, "pull", PREFIX, tmp_path / "new")
    shutil.rmtree(prefix)
    into_the_hub = run(hub, "pull", PREFIX, Path(hub.location) / "gguf" / "org_new")
    unwritable = run(hub, "pull", PREFIX, "/proc/model")

    assert {each.returncode for each in (unknown, unwritable)} == {1}
    assert f"nearest: {PREFIX}" in unknown.stderr
    for refused in (into_a_prefix, beside_it, into_the_hub):
        assert refused.returncode == 1
        assert "it lies in a hub, which would take it for a model" in refused.stderr
    assert not (Path(hub.location) / "gguf").exists()
    assert f"cannot pull {PREFIX} into /proc/model: " in unwritable.stderr
    assert into_a_file.returncode == 64
    for each in (unknown, into_a_file, into_a_prefix, unwritable):
        assert "Traceback" not in each.stderr
