"""What `--engine` accepts."""

from pathlib import Path

import pytest
import typer

from reconciler.backend.inventory import NamedEngine
from reconciler.cli.engine_option import named_engines
from tests.cli.command import xgen_model


def test_a_name_a_backend_and_a_path() -> None:
    assert named_engines(
        ["v0.18=vllm-cuda:/opt/v/bin/vllm", "b-1=llama-server-cpu:/opt/a:b=c"]
    ) == (
        NamedEngine(name="v0.18", id="vllm-cuda", path="/opt/v/bin/vllm"),
        NamedEngine(name="b-1", id="llama-server-cpu", path="/opt/a:b=c"),
    )
    assert named_engines(None) == ()


def test_a_path_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (engine,) = named_engines(["b=llama-server-cpu:bin/llama-server"])
    assert engine.path == f"{tmp_path}/bin/llama-server"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b1", "'b1' is not NAME=ID:PATH, as in v18=vllm-cuda:/opt/vllm018/bin/vllm"),
        ("llama-server-cpu:/opt/x", "is not NAME=ID:PATH"),
        ("b1=/opt/x", "is not NAME=ID:PATH"),
        ("b1=vllm-cpu:", "is not NAME=ID:PATH"),
        ("=vllm-cpu:/opt/x", "a name is 1 to 100 letters"),
        ("a b=vllm-cpu:/opt/x", "a name is 1 to 100 letters"),
        ("vllm-cpu=vllm-cpu:/opt/x", "vllm-cpu is a backend's own id; call the build otherwise"),
        ("auto=vllm-cpu:/opt/x", "auto is a backend's own id"),
        ("b1=vllm-gpu:/opt/x", "'vllm-gpu' is no backend; did you mean vllm-cpu?"),
        ("b1=ollama:/opt/x", "'ollama' is no backend; there are vllm-cuda, vllm-rocm, vllm-cpu"),
        ("b1=xllamacpp:/opt/x", "xllamacpp is always that of our own environment"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        named_engines([text])
    assert message in str(refused.value)
    assert refused.value.param_hint == "--engine"


def test_a_name_stands_for_one_build() -> None:
    with pytest.raises(typer.BadParameter, match="b1 stands twice: for /opt/x and for /opt/y"):
        named_engines(["b1=vllm-cpu:/opt/x", "b1=llama-server-cpu:/opt/y"])


def test_a_typing_error_ends_the_start_before_anything_happens(tmp_path: Path) -> None:
    args = ("--manifest", "models.yaml", "--data-dir", str(tmp_path / "data"))
    done = xgen_model("run", *args, env={"XGEN_ENGINE": "b1=llama-server-cpu:/x b2=lama:/y"})
    assert done.returncode == 64
    assert "Invalid value for --engine: 'b2=lama:/y': 'lama' is no backend" in " ".join(
        done.stderr.split()
    )
    assert not (tmp_path / "data").exists()
