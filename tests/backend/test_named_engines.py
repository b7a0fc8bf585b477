"""Builds that an operator gave a name: found where they are, taken where models name them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.backend.builds import discovery
from reconciler.backend.choice import Choice, Refusal, choose
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import Build, Inventory, Missing, NamedEngine
from reconciler.plan.desired import Format
from tests.backend.build import executable, gpu, llama_server, model, spec, vllm, xllamacpp

OLD = replace(llama_server(path="/opt/b1/llama-server"), name="b1")
CPU_VLLM = replace(vllm(), name="v18")
NO_SERVER = Missing(id="llama-server-cpu", reason="no llama-server on PATH")
GONE = Missing(id="llama-server-cpu", name="gone", reason="/opt/gone is not a file", wanted=True)
THERE = Inventory(builds=(llama_server(), OLD, CPU_VLLM, xllamacpp()), missing=(GONE,))


def look(*engines: NamedEngine, llama_server: str | None = None) -> Inventory:
    return discovery(
        llama_server=llama_server,
        vllm=None,
        search_path="/nowhere",
        python=sys.executable,
        engines=engines,
    ).look()


def server(folder: Path, says: str) -> str:
    folder.mkdir(exist_ok=True)
    return str(executable(folder / "llama-server", says, "/bin/sh"))


def refused(there: Inventory, **fields: Any) -> str:
    made = choose(spec(**fields), Format.GGUF, there)
    assert isinstance(made, Refusal)
    return made.reason


def test_several_builds_of_one_backend_stand_side_by_side(tmp_path: Path) -> None:
    paths = {name: server(tmp_path / name, f"echo version: {name}") for name in ("1", "2", "3")}
    inventory = look(
        NamedEngine(name="two", id="llama-server-cpu", path=paths["2"]),
        NamedEngine(name="three", id="llama-server-cpu", path=paths["3"]),
        llama_server=paths["1"],
    )

    default = inventory.build("llama-server-cpu")
    found = [inventory.named("two"), inventory.named("three")]

    assert default is not None
    assert default.version == "1"
    assert [one.version for one in found if isinstance(one, Build)] == ["2", "3"]
    assert [one.command for one in found if isinstance(one, Build)] == [
        (paths["2"],),
        (paths["3"],),
    ]
    assert inventory.names == (("three", "llama-server-cpu"), ("two", "llama-server-cpu"))


def test_one_that_cannot_be_used_takes_nothing_from_the_others(tmp_path: Path) -> None:
    good = server(tmp_path / "good", "echo version: 7")
    inventory = look(
        NamedEngine(name="gone", id="vllm-cuda", path="/nowhere/vllm"),
        NamedEngine(name="cuda", id="llama-server-cuda", path=good),
        NamedEngine(name="good", id="llama-server-cpu", path=good),
    )

    assert isinstance(inventory.named("good"), Build)
    assert inventory.named("gone") == Missing(
        id="vllm-cuda", name="gone", reason="/nowhere/vllm is not a file", wanted=True
    )
    assert inventory.named("cuda") == Missing(
        id="llama-server-cuda",
        name="cuda",
        reason=f"{good} lists no GPU, nor has it a library for any",
        wanted=True,
    )


def test_a_vllm_that_does_not_say_what_it_is_for_is_what_its_name_says(tmp_path: Path) -> None:
    path = str(executable(tmp_path / "vllm", "echo 0.32.0", "/bin/sh"))
    inventory = look(NamedEngine(name="v", id="vllm-rocm", path=path))
    found = inventory.named("v")
    assert isinstance(found, Build)
    assert (found.id, found.version) == ("vllm-rocm", "0.32.0")


@pytest.mark.parametrize("fields", [{}, {"backend": "llama-server-cpu"}])
def test_a_model_gets_the_build_that_it_names(fields: dict[str, str]) -> None:
    made = choose(spec(engine="b1", **fields), Format.GGUF, THERE)
    assert isinstance(made, Choice)
    assert made.build is OLD
    assert made.reason == ("the manifest asks for b1: /opt/b1/llama-server, version 6123 (abc)")


def test_a_named_build_is_never_taken_by_itself() -> None:
    there = Inventory(builds=(OLD, xllamacpp()), missing=(NO_SERVER,))
    only = "no llama-server on PATH; b1 only where a model names it"

    auto = choose(spec(), Format.GGUF, there)
    named = choose(spec(backend="llama-server-cpu"), Format.GGUF, there)

    assert isinstance(auto, Choice)
    assert auto.build.id == "xllamacpp"
    assert auto.passed_over == (f"llama-server-cpu: {only}",)
    assert isinstance(named, Refusal)
    assert named.reason == (
        f"cannot use backend llama-server-cpu: {only}; xllamacpp would run here"
    )


def test_a_refusal_tells_of_builds_that_would_do() -> None:
    reason = refused(Inventory(builds=(OLD,), missing=(NO_SERVER,)))
    assert reason.endswith("; engine: b1 would, asked for by name")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"engine": "gon"},
            "cannot use engine gon: this node has b1 (llama-server-cpu), v18 (vllm-cpu), and "
            "cannot use gone (llama-server-cpu); did you mean gone?",
        ),
        ({"engine": "gone"}, "cannot use engine gone: /opt/gone is not a file"),
        (
            {"engine": "b1", "backend": "xllamacpp"},
            "cannot use engine b1: it is a build of llama-server-cpu, and the manifest asks for "
            "xllamacpp",
        ),
        ({"engine": "v18"}, "cannot use engine v18: vllm-cpu does not run gguf files"),
    ],
)
def test_refuses_a_build_that_does_not_fit(fields: dict[str, str], reason: str) -> None:
    assert refused(THERE, **fields) == reason


def test_says_how_to_name_a_build_where_none_has_a_name() -> None:
    assert refused(Inventory(builds=(xllamacpp(),)), engine="b1") == (
        "cannot use engine b1: this node names no builds; start its agent with --engine "
        "b1=BACKEND:PATH"
    )


def test_a_build_for_the_cpu_gets_no_gpus() -> None:
    made = choose(spec(engine="b1"), Format.GGUF, THERE, (gpu(0),))
    assert isinstance(made, Refusal)
    assert made.reason.startswith("cannot use engine b1: llama-server-cpu runs on CPU, and the")
    assert made.reason.endswith("; gpus: 0 is the CPU")


def test_a_name_tells_the_format_before_the_files_are_here() -> None:
    engines = Engines(THERE)
    made = engines.assess(model(source="team/m", engine="v18"), None).choice
    assert made is not None
    assert made.build is CPU_VLLM
    assert engines.assess(model(source="team/m"), None).choice is None


def test_a_build_is_told_apart_by_its_files(tmp_path: Path) -> None:
    path = server(tmp_path, "echo version: 7")
    engine = NamedEngine(name="b", id="llama-server-cpu", path=path)
    first, again = look(engine).named("b"), look(engine).named("b")
    server(tmp_path, "echo version: 7; # another one")
    other = look(engine).named("b")

    assert first == again
    assert isinstance(first, Build)
    assert isinstance(other, Build)
    assert (first.version, first.files == other.files) == (other.version, False)


def test_a_script_is_also_what_it_calls(tmp_path: Path) -> None:
    real = server(tmp_path / "real", "echo version: 7")
    script = executable(tmp_path / "script", f'LD_LIBRARY_PATH=/x exec {real} "$@"', "/bin/sh")
    found = look(NamedEngine(name="b", id="llama-server-cpu", path=str(script))).named("b")
    assert isinstance(found, Build)
    assert [stamp.path for stamp in found.files] == [str(script), real]
