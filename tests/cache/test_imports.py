"""Models of repositories: asked for only where nobody has them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.errors import Rejected, Transient
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.objects import HubObject
from reconciler.plan.desired import Format
from reconciler.plan.repository import Repository
from tests.cache.caches import opened
from tests.cache.specs import put, spec

SOURCE = "hf://org/name@v1"
PREFIX = "gguf/org_name@v1"


@dataclass
class Importer:
    """Puts `file` into the hub, and remembers what it was asked."""

    hub: Path
    asked: list[tuple[str, str | None, Format]] = field(default_factory=list)

    def bring(
        self,
        repository: Repository,
        *,
        file: str | None,
        format: Format,
        on_progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self.asked.append((str(repository), file, format))
        on_progress(3, 7)
        put(self.hub, f"{PREFIX}/{file}")


@pytest.fixture
def importer(tmp_path: Path) -> Importer:
    (tmp_path / "hub").mkdir()
    return Importer(tmp_path / "hub")


def test_what_the_hub_does_not_hold_is_brought_there_and_fetched(
    tmp_path: Path, importer: Importer
) -> None:
    cache = opened(tmp_path, DirectoryStore(importer.hub), importer=importer)
    told: list[tuple[int, int]] = []

    files = cache.fetch(spec(SOURCE, file="x.gguf"), on_import=lambda *now: told.append(now))

    assert Path(files.path).name == "x.gguf"
    assert importer.asked == [("org/name@v1", "x.gguf", Format.AUTO)]
    assert (3, 7) in told
    assert cache.lookup(spec(SOURCE, file="x.gguf")) == files
    assert cache.lookup(spec(f"{PREFIX}/x.gguf")) == files


def test_another_file_of_the_prefix_is_brought_too(tmp_path: Path, importer: Importer) -> None:
    cache = opened(tmp_path, DirectoryStore(importer.hub), importer=importer)
    cache.fetch(spec(SOURCE, file="x.gguf"))

    cache.fetch(spec(SOURCE, file="y.gguf"))

    assert [file for _, file, _ in importer.asked] == ["x.gguf", "y.gguf"]


def test_what_the_hub_holds_is_asked_of_nobody(tmp_path: Path, importer: Importer) -> None:
    put(importer.hub, f"{PREFIX}/x.gguf")
    cache = opened(tmp_path, DirectoryStore(importer.hub), importer=importer)
    cache.fetch(spec(SOURCE, file="x.gguf"))
    assert importer.asked == []


class CountingStore(DirectoryStore):
    """`listed`: what was listed, each time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.listed: list[str] = []

    def objects(self, prefix: str, digest: str | None = None) -> tuple[HubObject, ...]:
        self.listed.append(prefix)
        return super().objects(prefix, digest)


def test_the_hub_is_looked_at_once_and_once_more_after_an_import(
    tmp_path: Path, importer: Importer
) -> None:
    store = CountingStore(importer.hub)
    cache = opened(tmp_path, store, importer=importer)
    cache.fetch(spec(SOURCE, file="x.gguf"))
    assert store.listed == [PREFIX, PREFIX]
    assert importer.asked == [("org/name@v1", "x.gguf", Format.AUTO)]

    put(importer.hub, f"{PREFIX}/y.gguf")
    store.listed.clear()
    cache.fetch(spec(SOURCE, file="y.gguf"))
    assert store.listed == [PREFIX]


def test_a_hub_that_is_away_is_no_reason_to_import(tmp_path: Path, importer: Importer) -> None:
    importer.hub.rmdir()
    cache = opened(tmp_path, DirectoryStore(importer.hub), importer=importer)
    with pytest.raises(Transient, match=r"is it mounted\?"):
        cache.fetch(spec(SOURCE, file="x.gguf"))
    assert importer.asked == []


def test_an_older_folder_serves_without_an_import(tmp_path: Path, importer: Importer) -> None:
    put(tmp_path / "models", f"{PREFIX}/x.gguf")
    cache = opened(tmp_path, DirectoryStore(importer.hub), importer=importer)
    cache.fetch(spec(SOURCE, file="x.gguf"))
    assert importer.asked == []


def test_without_a_hub_only_what_is_cached_can_be_had(tmp_path: Path, importer: Importer) -> None:
    with pytest.raises(Rejected, match=r"no hub is set, and it is not cached"):
        opened(tmp_path, None, importer=importer).fetch(spec(SOURCE, file="x.gguf"))
    opened(tmp_path, DirectoryStore(importer.hub), importer=importer).fetch(
        spec(SOURCE, file="x.gguf")
    )
    assert opened(tmp_path, None).lookup(spec(SOURCE, file="x.gguf")) is not None


def test_several_models_are_no_reason_to_import(tmp_path: Path, importer: Importer) -> None:
    for name in "xy":
        put(importer.hub, f"{PREFIX}/{name}.gguf")
    cache = opened(tmp_path, DirectoryStore(importer.hub), importer=importer)
    with pytest.raises(Transient, match=r"it holds 2 GGUF models"):
        cache.fetch(spec(SOURCE, format=Format.GGUF))
    assert importer.asked == []
