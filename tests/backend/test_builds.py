"""Discovery, against programs that behave as broken engines do."""

import os
import stat
import sys
from functools import partial
from pathlib import Path

import pytest

from reconciler.backend.builds import discovery
from reconciler.backend.inventory import Build, Inventory
from tests.backend.build import HELP
from tests.waiting import wait_until


def script(folder: Path, body: str) -> str:
    """A llama-server that is a shell script."""
    path = folder / "llama-server"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def look(path: str | None, *, search_path: str = "/usr/bin:/bin", seconds: float = 30) -> Inventory:
    return discovery(
        llama_server=path,
        vllm=None,
        search_path=search_path,
        python=sys.executable,
        answer_seconds=seconds,
    ).look()


def build(inventory: Inventory) -> Build:
    found = inventory.build("llama-server-cpu")
    assert found is not None
    return found


def why_missing(inventory: Inventory) -> str:
    assert inventory.build("llama-server-cpu") is None
    reason = inventory.why_missing("llama-server-cpu")
    assert reason is not None
    return reason


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("version: 6123 (abc1234)", "6123 (abc1234)"),
        ("version: 0.1.0-dev (build 1, commit 7e4c0a9)", "0.1.0-dev (build 1, commit 7e4c0a9)"),
        ("ggml_cuda_init: found 1 device\nversion: 6123", "6123"),
    ],
)
def test_finds_the_llama_server_that_an_operator_named(
    tmp_path: Path, says: str, version: str
) -> None:
    path = script(tmp_path, f"printf '{says}\\nbuilt with cc for Linux\\n' >&2")
    found = build(look(path))
    assert (found.command, found.version) == ((path,), version)
    assert found.detail == f"{path}, version {version}"


def test_finds_the_llama_server_on_the_search_path(tmp_path: Path) -> None:
    path = script(tmp_path, "echo version: 1")
    assert build(look(None, search_path=f"/nowhere:{tmp_path}")).command == (path,)


def test_learns_the_flags_of_the_build_from_its_help(tmp_path: Path) -> None:
    (tmp_path / "help.txt").write_text(HELP, encoding="utf-8")
    path = script(
        tmp_path,
        f'[ "$1" = --help ] && exec cat {tmp_path}/help.txt; echo version: 6123',
    )
    flags = build(look(path)).flags
    assert flags.complete
    assert flags.find("--cache-ram") is not None


@pytest.mark.parametrize("answer", ["exit 1", "kill -9 $$", "echo no help here"])
def test_takes_a_build_that_does_not_tell_its_flags(tmp_path: Path, answer: str) -> None:
    path = script(tmp_path, f'[ "$1" = --version ] && echo version: 6123 && exit 0; {answer}')
    assert not build(look(path)).flags.complete


def test_asks_in_a_scrubbed_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_MODEL", "/some/model")
    path = script(tmp_path, '[ -n "$LLAMA_ARG_MODEL" ] && exit 9; echo version: 6123')
    assert build(look(path)).version == "6123"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("kill -ILL $$", "died of SIGILL when asked for --version"),
        ("echo loading; kill -SEGV $$", "died of SIGSEGV when asked for --version: loading"),
        (
            "echo 'error while loading shared libraries: libllama.so' >&2; exit 127",
            "exited with code 127 when asked for --version: "
            "error while loading shared libraries: libllama.so",
        ),
        ("echo hello", "gave no version when asked for it, so it is no llama-server"),
    ],
)
def test_says_how_a_broken_build_behaved(tmp_path: Path, body: str, reason: str) -> None:
    """Scenario 5, llama-swap#100: a build that dies at once is found before a model waits."""
    path = script(tmp_path, body)
    assert why_missing(look(path)) == f"{path} {reason}"


def test_ends_a_build_that_hangs_with_all_that_it_started(tmp_path: Path) -> None:
    path = script(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    assert (
        why_missing(look(path, seconds=1))
        == f"{path} gave no answer within 1 s when asked for --version"
    )
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: _is_gone(child), what="the end of its child")


@pytest.mark.parametrize("way", ["", "setsid", "env -i"])
def test_what_a_build_leaves_behind_when_it_has_answered_is_ended(tmp_path: Path, way: str) -> None:
    leaves = f"{way} sh -c 'echo $$ > {tmp_path}/$1; exec sleep 1000' of $1 >/dev/null 2>&1 &"
    wait = f"until [ -s {tmp_path}/$1 ]; do :; done; echo version: 6123"
    assert build(look(script(tmp_path, f"{leaves}\n{wait}"))).version == "6123"
    left = [int(file.read_text()) for file in tmp_path.glob("--*")]
    assert len(left) == 3
    for pid in left:
        wait_until(partial(_is_gone, pid), what="the end of what it left")


def _is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def test_says_what_is_wrong_with_a_file_that_cannot_be_run(tmp_path: Path) -> None:
    path = tmp_path / "llama-server"
    assert why_missing(look(str(path))) == f"{path} is not a file"
    path.write_bytes(b"\x7fELF, but not really")
    assert why_missing(look(str(path))) == f"{path} is not executable"
    path.chmod(0o755)
    assert why_missing(look(str(path))) == f"{path} cannot be run: Exec format error"


def test_a_link_to_itself_costs_the_other_engines_nothing(tmp_path: Path) -> None:
    link = tmp_path / "llama-server"
    link.symlink_to(link.name)

    found = look(str(link))

    assert why_missing(found) == f"{link} is not a file"
    assert found.build("xllamacpp") is not None


def test_a_named_pipe_in_the_place_of_an_engine_holds_nothing_up(tmp_path: Path) -> None:
    """An open of one waits until somebody writes."""
    pipe = tmp_path / "llama-server"
    os.mkfifo(pipe, 0o755)
    assert why_missing(look(str(pipe))) == f"{pipe} is not a file"
    assert why_missing(look(None, search_path=str(tmp_path))) == f"{pipe} is not a file"


def test_a_program_that_becomes_a_named_pipe_is_missing(tmp_path: Path) -> None:
    path = script(tmp_path, "echo version: 1")
    engines = discovery(
        llama_server=path, vllm=None, search_path="/usr/bin:/bin", python=sys.executable
    )
    assert build(engines.look()).version == "1"
    os.unlink(path)
    os.mkfifo(path, 0o755)
    engines.look()  # one look to see it, one to see it settled
    assert why_missing(engines.look()) == f"{path} is not a file"


def test_says_how_to_get_a_llama_server_where_there_is_none(tmp_path: Path) -> None:
    reason = why_missing(look(None, search_path=str(tmp_path)))
    assert reason == "no llama-server on PATH; install llama.cpp or give --llama-server PATH"


def test_finds_xllamacpp_in_our_own_environment(tmp_path: Path) -> None:
    found = look(None, search_path=str(tmp_path)).build("xllamacpp")
    assert found is not None
    assert found.command == (sys.executable, "-P", "-m", "reconciler.backend.child")
    assert found.detail == f"xllamacpp {found.version} of our own environment"


def test_does_not_offer_a_wheel_that_cannot_be_imported(tmp_path: Path) -> None:
    """A wheel for another CPU dies in its first instruction, not with an ImportError."""
    python = script(tmp_path, "kill -ILL $$")
    inventory = discovery(llama_server=None, vllm=None, search_path="", python=python).look()
    assert inventory.build("xllamacpp") is None
    assert inventory.why_missing("xllamacpp") == "xllamacpp died of SIGILL when imported"


CUDA_LISTED = "Available devices:\\n  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80456 MiB free)\\n"
NONE_LISTED = "Available devices:\\n  (none)\\n"


@pytest.mark.parametrize(
    ("says", "lists", "beside", "kinds"),
    [
        ("", NONE_LISTED, (), []),
        ("", CUDA_LISTED, (), ["cuda"]),
        ("", "  Vulkan0: AMD Radeon (RADV NAVI31) (24560 MiB, 24000 MiB free)\\n", (), ["vulkan"]),
        ("ggml_cuda_init: found 2 ROCm devices:\\n", NONE_LISTED, (), ["rocm"]),
        ("ggml_cuda_init: failed to initialize CUDA: no device\\n", NONE_LISTED, (), ["cuda"]),
        ("", NONE_LISTED, ("libggml-cuda.so", "libggml-vulkan.so.1"), ["cuda", "vulkan"]),
        ("", NONE_LISTED, ("libggml-hip.so", "libggml-cpu-haswell.so"), ["rocm"]),
    ],
)
def test_tells_what_a_build_is_for(
    tmp_path: Path, says: str, lists: str, beside: tuple[str, ...], kinds: list[str]
) -> None:
    for name in beside:
        (tmp_path / name).touch()
    path = script(
        tmp_path,
        f"[ \"$1\" = --list-devices ] && exec printf '{lists}'; printf '{says}version: 6123\\n'",
    )

    found = look(path)

    ids = [one.id for one in found.builds if one.id.startswith("llama-server-")]
    assert ids == ["llama-server-cpu", *(f"llama-server-{kind}" for kind in kinds)]
    built = f"is built for {' and '.join(kinds)}"
    what = built if kinds else "lists no GPU, nor has it a library for any"
    for kind in {"cuda", "rocm", "vulkan"} - set(kinds):
        assert found.why_missing(f"llama-server-{kind}") == f"{path} {what}"
