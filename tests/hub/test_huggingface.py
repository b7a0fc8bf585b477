"""Imports with the real huggingface_hub, from a hub of our own: whole, once, resumed, explained."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.cache.choose import Wish, choose_for_import
from reconciler.errors import Rejected, Transient
from reconciler.hub.catalog import CATALOG, Catalog, Upstream, parse_catalog
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.huggingface import Imported, ImportOrder, Judgement, import_model
from reconciler.plan.desired import Format
from reconciler.plan.repository import parse_repository, prefix_of
from tests.fake_hf_hub import FakeHub, Repo, serve_fake_hub
from tests.hub.hubs import Hub, Servers, hub, new_hub, servers
from tests.hub.test_push import folder_of, no_check, no_facts, pushed
from tests.waiting import wait_until

__all__ = ["hub", "servers"]

WEIGHTS = random.Random(2).randbytes(300_000)
MODEL = {
    "config.json": b'{"architectures": ["X"]}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "onnx/model.onnx": b"graph",
    ".gitattributes": b"*.bin filter=lfs",
    "README.md": b"# model",
}
CHOSEN = {path: MODEL[path] for path in ("config.json", "tokenizer.json", "model.safetensors")}
TOKEN = "hf_a-token-that-nobody-should-see"


@pytest.fixture
def upstream() -> Iterator[FakeHub]:
    quants = {f"m-{name}.gguf": name.encode() * 50_000 for name in ("Q4", "Q8")}
    repos = {
        "org/m": Repo(files=MODEL, revisions=("main", "v1", "refs/pr/1")),
        "org/m-GGUF": Repo(files=quants | {"mmproj-F16.gguf": b"projector"}, licence="mit"),
        "org/gated": Repo(files=MODEL, needs_token=TOKEN),
    }
    with serve_fake_hub(repos) as fake:
        yield fake


@pytest.fixture
def folder_hub(servers: Servers, tmp_path: Path) -> Iterator[Hub]:
    with new_hub("directory", servers, tmp_path) as made:
        yield made


@dataclass
class Steps:
    """What was told. `at`: called with each number of bytes that are downloaded."""

    at: Callable[[int], None] = lambda _: None
    downloads: list[tuple[int, int]] = field(default_factory=list)
    uploads: list[tuple[int, int]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def downloading(self, done: int, total: int) -> None:
        self.downloads.append((done, total))
        self.at(done)

    def uploading(self, done: int, total: int) -> None:
        self.uploads.append((done, total))

    def cancelled(self) -> bool:
        return self.stop.is_set()


class FailsOnce(DirectoryWriter):
    """A hub that does not take the first file."""

    failed = False

    def upload(self, prefix: str, key: str, *rest: Any) -> int:
        if not self.failed and not key.startswith(".xgen/"):
            self.failed = True
            raise Transient("the store is away")
        return super().upload(prefix, key, *rest)


@dataclass(kw_only=True)
class Importer:
    """A node: its hub, its folder, the Hugging Face that it asks."""

    upstream: FakeHub
    hub: Hub
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self, text: str, steps: Steps | None = None, *, file: str | None = None, **more: bool
    ) -> Imported:
        repository = parse_repository(text)
        prefix = prefix_of(repository, file=file, format=Format.AUTO)
        wish = Wish(where=prefix, file=file, format=Format.AUTO)
        order = ImportOrder(
            repository=repository,
            prefix=prefix,
            folder=self.folder / "an-import",
            pushed_at="2026-11-30T12:00:00Z",
            environment={
                **os.environ,
                **self.upstream.environment,
                "HF_HOME": str(self.folder.parent / "hf-home"),
                **self.environment,
            },
            judgement=Judgement(
                choose=lambda sizes: choose_for_import(sizes, wish),
                check_names=no_check,
                describe=no_facts,
            ),
            **more,
        )
        return import_model(self.hub.writer, order, steps or Steps())

    def catalog(self, prefix: str) -> Catalog:
        return parse_catalog(self.hub.writer.load(prefix, CATALOG, 1 << 20), prefix)

    @property
    def left(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
def importer(upstream: FakeHub, folder_hub: Hub, tmp_path: Path) -> Importer:
    return Importer(upstream=upstream, hub=folder_hub, folder=tmp_path / "imports")


def test_a_repository_is_in_the_hub_with_where_it_came_from(
    upstream: FakeHub, hub: Hub, tmp_path: Path
) -> None:
    importer = Importer(upstream=upstream, hub=hub, folder=tmp_path / "imports")
    steps = Steps()

    imported = importer("org/m", steps)

    assert (imported.prefix, imported.was_there) == ("huggingface/org_m", False)
    files = hub.plain("huggingface/org_m")
    assert {path: files[path] for path in CHOSEN} == CHOSEN
    assert not {"pytorch_model.bin", "onnx/model.onnx"} & set(files)
    catalog = importer.catalog("huggingface/org_m")
    assert catalog.digest == imported.digest
    assert catalog.licence == "apache-2.0"
    assert catalog.upstream == Upstream(repository="org/m", revision="a" * 40)
    assert steps.downloads[-1] == (imported.size_bytes, imported.size_bytes)
    assert max(done for done, _ in steps.downloads) == imported.size_bytes
    assert importer.left == []


def test_what_the_hub_has_is_asked_of_nobody(importer: Importer, tmp_path: Path) -> None:
    """gpustack#2519, #2566: a cached model cannot be deployed offline."""
    first = importer("org/m")
    importer.upstream.requests.clear()
    second_node = Importer(upstream=importer.upstream, hub=importer.hub, folder=tmp_path / "second")

    second = second_node("org/m")

    assert (second.was_there, second.digest, second.commit) == (True, first.digest, "a" * 40)
    assert importer.upstream.requests == []


def test_a_refresh_asks_and_fetches_only_another_commit(importer: Importer) -> None:
    first = importer("org/m")
    importer.upstream.requests.clear()
    assert importer("org/m", refresh=True).was_there
    assert importer.upstream.files_asked() == []
    changed = {**MODEL, "config.json": b'{"architectures": ["Y"]}'}
    importer.upstream.repos["org/m"] = Repo(files=changed, commit="b" * 40)

    second = importer("org/m", refresh=True)

    assert (second.commit, second.was_there) == ("b" * 40, False)
    assert second.digest != first.digest


@pytest.mark.parametrize(
    ("revision", "prefix"),
    [("v1", "huggingface/org_m@v1"), ("refs/pr/1", "huggingface/org_m@refs~pr~1")],
)
def test_a_revision_has_a_prefix_of_its_own(importer: Importer, revision: str, prefix: str) -> None:
    assert importer(f"org/m@{revision}").prefix == prefix
    assert importer.catalog(prefix).upstream == Upstream(repository="org/m", revision="a" * 40)


def test_one_gguf_is_fetched_and_the_next_one_joins_it(importer: Importer) -> None:
    with pytest.raises(Transient, match=r"it holds 2 GGUF models; name one with `file:`"):
        importer("org/m-GGUF")

    importer("org/m-GGUF", file="m-Q4.gguf")
    assert sorted(importer.upstream.files_asked()) == ["m-Q4.gguf", "mmproj-F16.gguf"]
    importer("org/m-GGUF", file="m-Q8.gguf")

    catalog = importer.catalog("gguf/org_m-GGUF")
    assert {file.path for file in catalog.files} == {"m-Q4.gguf", "m-Q8.gguf", "mmproj-F16.gguf"}
    assert catalog.licence == "mit"


def test_a_file_that_is_not_there_is_named_with_the_nearest(importer: Importer) -> None:
    with pytest.raises(
        Transient, match=r"cannot import org/m-GGUF: .*no m-Q5.gguf; nearest: m-Q\d.gguf"
    ):
        importer("org/m-GGUF", file="m-Q5.gguf")


@pytest.mark.parametrize(
    ("repository", "said"),
    [
        ("org/none", r"has no such repository; if it is private, give this node a token \(HF_TOK"),
        ("org/m@v9", r"cannot import org/m@v9: it has no revision v9 at http://127"),
        ("org/gated", r"it is gated: ask for access at http://127.*/org/gated; then give .*HF_TOK"),
    ],
)
def test_each_refusal_says_what_to_do(importer: Importer, repository: str, said: str) -> None:
    with pytest.raises(Transient, match=said):
        importer(repository)
    assert importer.left == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, r"does not take this node's token \(HF_TOKEN, or a file"),
        (403, r"refuses it, status 403.*; may this node's token read it\?"),
        (429, r"asks for fewer requests, status 429; with a token it allows more"),
        (500, r"answers with status 500"),
    ],
)
def test_each_answer_that_is_none_says_what_to_do(
    importer: Importer, status: int, said: str
) -> None:
    code = "" if status != 401 else "Nothing"
    importer.upstream.repos["org/m"] = Repo(files={}, refused=(status, code))
    if status == 401:
        importer.upstream.error_message = "Invalid credentials in Authorization header"
    with pytest.raises(Transient, match=said):
        importer("org/m")


def test_the_other_side_says_when_to_come_again(importer: Importer) -> None:
    importer.upstream.repos["org/m"] = Repo(files={}, refused=(503, ""))
    importer.upstream.retry_after = "7"
    with pytest.raises(Transient) as caught:
        importer("org/m")
    assert caught.value.retry_after_seconds == 7


def test_a_network_that_is_away_is_named(importer: Importer) -> None:
    importer.environment = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    with pytest.raises(
        Transient, match=r"cannot reach http://127.0.0.1:1: .*refused; for a mirror set HF_ENDPOINT"
    ):
        importer("org/m")


def test_an_offline_node_does_not_try(importer: Importer) -> None:
    importer.environment = {"HF_HUB_OFFLINE": "1"}
    with pytest.raises(Transient, match=r"told to stay offline \(HF_HUB_OFFLINE"):
        importer("org/m")
    assert importer.upstream.requests == []


@pytest.mark.parametrize("way", ["HF_TOKEN", "HF_TOKEN_PATH"])
def test_a_token_opens_what_is_gated_and_is_told_to_nobody(
    importer: Importer, tmp_path: Path, way: str
) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n", encoding="utf-8")
    importer.environment = {way: TOKEN if way == "HF_TOKEN" else str(path)}
    logs: list[str] = []

    def look(_: int) -> None:
        log = importer.folder / "an-import" / "huggingface.log"
        logs.append(log.read_text(encoding="utf-8"))
        for pid in importer.upstream.children():
            logs.append(Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"))

    importer("org/gated", Steps(at=look))

    assert {each.token for each in importer.upstream.requests if "resolve" in each.path} == {TOKEN}
    assert any("huggingface_child" in log for log in logs)
    assert not any(TOKEN in log for log in logs)


def test_a_bad_token_is_told_from_a_missing_one(importer: Importer) -> None:
    importer.environment = {"HF_TOKEN": "hf_wrong"}
    with pytest.raises(Transient, match=r"gated: ask for access for the account of this node's t"):
        importer("org/gated")


def test_the_hub_s_keys_are_not_given_to_the_child(importer: Importer) -> None:
    importer.environment = {"MINIO_SECRET_KEY": "hub-secret", "HF_TOKEN": TOKEN}
    seen: list[bytes] = []

    def look(_: int) -> None:
        for pid in importer.upstream.children():
            seen.append(Path(f"/proc/{pid}/environ").read_bytes())

    importer("org/gated", Steps(at=look))

    assert seen
    assert not any(b"hub-secret" in each for each in seen)


@pytest.mark.parametrize("path", ["model.safetensors", "config.json"])
def test_other_bytes_than_the_listed_ones_are_never_pushed(importer: Importer, path: str) -> None:
    """ollama#17520: a block of zeros passes as a model."""
    good = MODEL[path]
    importer.upstream.repos["org/m"].sent_instead[path] = bytes(len(good))
    with pytest.raises(Transient, match=rf"is not what it lists, twice: {path}: its digest"):
        importer("org/m")
    assert importer.hub.plain("huggingface/org_m") == {}

    del importer.upstream.repos["org/m"].sent_instead[path]

    assert not importer("org/m").was_there
    assert importer.hub.plain("huggingface/org_m")[path] == good


def test_what_was_complete_is_not_fetched_again_after_a_kill(importer: Importer) -> None:
    """gpustack#2582: no resume. huggingface_hub#1498: a resume appends to a wrong file."""
    upstream = importer.upstream
    upstream.gate.clear()
    small = [path for path in (*CHOSEN, "README.md") if path != "model.safetensors"]

    def kill() -> None:
        assert upstream.held.wait(30)
        files = importer.folder / "an-import" / "files"
        wait_until(lambda: all((files / path).exists() for path in small), what="small files")
        for pid in upstream.children():
            os.kill(pid, signal.SIGKILL)

    with (
        in_thread(kill),
        pytest.raises(Transient, match=r"the download ended early: SIGKILL; .*huggingface.log"),
    ):
        importer("org/m")
    half_done = list(importer.folder.rglob("*.incomplete"))
    assert half_done
    assert "config.json" in upstream.files_asked()
    upstream.gate.set()
    upstream.requests.clear()

    importer("org/m")

    assert upstream.files_asked() == ["model.safetensors"]
    files = importer.hub.plain("huggingface/org_m")
    assert {path: files[path] for path in CHOSEN} == CHOSEN
    assert importer.left == []


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_is_cut_is_gone_on_with_and_counted_once(
    importer: Importer, ranges: bool
) -> None:
    """gpustack#312: a retry counts bytes twice, 130 %."""
    importer.upstream.cuts = [len(WEIGHTS) // 2]
    importer.upstream.ranges = ranges
    steps = Steps()

    imported = importer("org/m", steps)

    assert importer.upstream.cuts == []
    assert importer.hub.plain("huggingface/org_m")["model.safetensors"] == WEIGHTS
    assert max(done for done, _ in steps.downloads) == imported.size_bytes


def test_a_push_that_fails_is_tried_again_without_a_download(
    importer: Importer, tmp_path: Path
) -> None:
    good = importer.hub
    importer.hub = replace(good, writer=FailsOnce(tmp_path / "hub"))
    with pytest.raises(Transient, match=r"the store is away"):
        importer("org/m")
    importer.upstream.requests.clear()

    importer("org/m")

    assert importer.upstream.files_asked() == []
    files = good.plain("huggingface/org_m")
    assert {path: files[path] for path in CHOSEN} == CHOSEN
    assert importer.left == []


def test_a_file_that_rots_between_two_tries_is_fetched_again(importer: Importer) -> None:
    importer.upstream.repos["org/m"].sent_instead["model.safetensors"] = b"x" * len(WEIGHTS)
    with pytest.raises(Transient, match=r"twice"):
        importer("org/m")
    (config,) = importer.folder.rglob("config.json")
    config.write_bytes(bytes(len(CHOSEN["config.json"])))
    importer.upstream.repos["org/m"].sent_instead.clear()

    importer("org/m")

    files = importer.hub.plain("huggingface/org_m")
    assert files["config.json"] == CHOSEN["config.json"]


def test_files_of_another_commit_are_not_pushed(importer: Importer) -> None:
    importer.upstream.repos["org/m"].sent_instead["model.safetensors"] = b"x" * len(WEIGHTS)
    with pytest.raises(Transient, match=r"twice"):
        importer("org/m")
    newer = {path: content for path, content in MODEL.items() if path != "tokenizer.json"}
    importer.upstream.repos["org/m"] = Repo(files=newer, commit="b" * 40)

    importer("org/m")

    assert "tokenizer.json" not in importer.hub.plain("huggingface/org_m")


def test_an_import_that_is_cancelled_ends_its_child(importer: Importer) -> None:
    importer.upstream.gate.clear()
    steps = Steps()
    steps.at = lambda _: steps.stop.set()

    with pytest.raises(Transient, match=r"cannot import org/m: it is no longer wanted"):
        importer("org/m", steps)

    assert importer.upstream.children() == []


def test_the_child_dies_with_its_parent(upstream: FakeHub, tmp_path: Path) -> None:
    """kill -9 of the agent."""
    upstream.gate.clear()
    (tmp_path / "hub").mkdir()
    program = """
import sys
from pathlib import Path
from reconciler.hub.directory_writer import DirectoryWriter
from tests.hub import test_huggingface as these

root = Path(sys.argv[2])
hub = these.Hub(kind="directory", location="", writer=DirectoryWriter(root / "hub"))
fake = these.FakeHub(port=int(sys.argv[1]))
these.Importer(upstream=fake, hub=hub, folder=root / "imports")("org/m")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(upstream.port), str(tmp_path)],
        cwd=Path(__file__).parents[2],
    ) as parent:
        assert upstream.held.wait(30)
        assert upstream.children()
        parent.kill()
    wait_until(lambda: not upstream.children(), what="the child is gone")


def test_who_waits_for_another_process_finds_what_that_imported(
    importer: Importer, tmp_path: Path
) -> None:
    upstream = importer.upstream
    upstream.gate.clear()
    other = Importer(upstream=upstream, hub=importer.hub, folder=importer.folder)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(importer, "org/m")
        assert upstream.held.wait(30)
        second = pool.submit(other, "org/m")
        upstream.gate.set()
        assert not first.result(30).was_there
        assert second.result(30).was_there
    assert sorted(upstream.files_asked()) == sorted((*CHOSEN, "README.md"))


def test_too_little_room_is_said_with_numbers(importer: Importer) -> None:
    importer.upstream.repos["org/m"].sizes["model.safetensors"] = 5 * 2**50
    with pytest.raises(
        Transient, match=r"5242880.0 GiB are needed and [\d.]+ GiB are free in .*/imports"
    ):
        importer("org/m")
    assert importer.upstream.files_asked() == []


def test_a_hub_that_cannot_be_written_is_noticed_before_the_download(
    importer: Importer, tmp_path: Path
) -> None:
    (tmp_path / "hub" / "huggingface").write_text("no folder", encoding="utf-8")
    with pytest.raises(
        Transient, match=r"cannot import org/m: the hub must take it, and cannot: cannot write"
    ):
        importer("org/m")
    assert importer.upstream.files_asked() == []


def test_a_prefix_that_holds_another_repository_is_left_alone(
    importer: Importer, tmp_path: Path
) -> None:
    """org_a/b and org/a_b have the same prefix."""
    folder = folder_of(tmp_path, {"model.safetensors": b"other"}, "other")
    pushed(importer.hub, folder, "huggingface/org_m", upstream="org_m/x")
    with pytest.raises(Rejected, match=r"has org_m/x there"):
        importer("org/m")


def test_a_prefix_without_a_catalog_is_used_as_it_is(importer: Importer) -> None:
    assert importer.hub.folder is not None
    folder_of(importer.hub.folder, dict(CHOSEN), "huggingface/org_m")
    imported = importer("org/m")
    assert (imported.was_there, imported.digest) == (True, None)
    assert importer.upstream.requests == []


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()
