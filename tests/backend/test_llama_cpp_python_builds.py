"""Discovery of llama-cpp-python, with real virtual environments that hold a package of its name."""

import os
import sys
import venv
from pathlib import Path

import pytest

from reconciler.backend.inventory import Asked, Build, Missing
from reconciler.backend.llama_cpp_python_builds import (
    ask_llama_cpp_python,
    locate_llama_cpp_python,
)

SETTINGS = """
class Field:
    def __init__(self, annotation):
        self.annotation = annotation
class Settings:
    model_fields = {"model": Field(str), "n_ctx": Field(int), "flash_attn": Field(bool)}
"""


def environment(folder: Path, **modules: str) -> Path:
    """Its python. `modules`: what stands in those of `llama_cpp.server`; none: no package."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    if modules:
        server = packages / "llama_cpp" / "server"
        server.mkdir(parents=True)
        for name, text in {"__main__": "", **modules}.items():
            (server / f"{name}.py").write_text(text, encoding="utf-8")
        info = packages / "llama_cpp_python-0.3.36.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(
            "Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 0.3.36\n", encoding="utf-8"
        )
    return folder / "bin" / "python"


def good(folder: Path) -> Path:
    return environment(folder, app="print('loading')", settings=SETTINGS)


def asked(path: Path | None) -> Asked:
    return ask_llama_cpp_python(str(path) if path else None, "/usr/bin:/bin", 30.0)


def build(path: Path) -> Build:
    (found,) = asked(path).found
    assert isinstance(found, Build), found
    return found


def reason(path: Path | None) -> str:
    (found,) = asked(path).found
    assert isinstance(found, Missing), found
    return found.reason


def test_its_version_and_its_flags_are_what_is_installed(tmp_path: Path) -> None:
    python = good(tmp_path / "venv")
    found = build(python)
    assert (found.id, found.version) == ("llama-cpp-python", "0.3.36")
    assert found.command == (str(python), "-I", "-u", "-m", "llama_cpp.server")
    assert found.detail == f"{python}, llama-cpp-python 0.3.36"
    assert found.flags.complete
    names = ("--ctx-size", "--n-ctx", "--flash-attn", "--mmap", "--pooling")
    assert [found.flags.find(name) is not None for name in names] == [True] * 3 + [False] * 2


CHAT_FORMAT = """
class LlamaChatCompletionHandlerRegistry:
    _chat_handlers = {"chatml": None, "gemma": None}
"""
MODEL = """
def load(settings):
    if settings.chat_format == "llava-1-5":
        return 1
    elif settings.chat_format in ("mtmd", "gemma4"):
        return settings.cache_type == "disk"
"""


@pytest.mark.parametrize(
    ("chat_format", "model", "formats"),
    [
        (CHAT_FORMAT, MODEL, ("chatml", "gemma", "gemma4", "llava-1-5", "mtmd")),
        (CHAT_FORMAT, "", ()),
        ("", MODEL, ()),
    ],
    ids=["told", "another server", "another registry"],
)
def test_its_chat_formats_are_those_that_it_registers_and_those_in_its_code(
    tmp_path: Path, chat_format: str, model: str, formats: tuple[str, ...]
) -> None:
    settings = SETTINGS.replace('"n_ctx": Field(int)', '"chat_format": Field(str)')
    python = environment(tmp_path / "venv", app="", settings=settings, model=model)
    (package,) = tmp_path.glob("venv/lib/python3*/site-packages/llama_cpp")
    (package / "llama_chat_format.py").write_text(chat_format, encoding="utf-8")
    flag = build(python).flags.find("--chat-format")
    assert flag is not None
    assert flag.choices == formats


def test_what_lies_in_the_working_directory_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)", encoding="utf-8")
    python = good(tmp_path / "venv")
    monkeypatch.chdir(tmp_path)
    assert build(python).version == "0.3.36"


def test_another_version_has_other_files(tmp_path: Path) -> None:
    python = good(tmp_path / "venv")
    metadata = [file for file in asked(python).files if file.endswith("dist-info/METADATA")]
    assert len(metadata) == 1
    assert str(python) in asked(python).files


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({}, "has no llama-cpp-python in its environment"),
        (
            {"app": "import no_such_server", "settings": SETTINGS},
            "exited with code 1 when its server was imported: ModuleNotFoundError: No module named "
            "'no_such_server'; install llama-cpp-python[server]",
        ),
        (
            {"app": "import os; os.kill(os.getpid(), 4)", "settings": SETTINGS},
            "died of SIGILL when its server was imported",
        ),
        (
            {"app": "", "settings": "import os; os._exit(0)"},
            "did not tell its settings when its server was imported",
        ),
    ],
    ids=["without it", "without its server", "for another CPU", "silent"],
)
def test_one_that_cannot_serve_is_missing_with_the_reason(
    tmp_path: Path, modules: dict[str, str], expected: str
) -> None:
    python = environment(tmp_path / "venv", **modules)
    assert reason(python) == f"{python} {expected}"


def test_a_path_that_is_no_program_is_missing(tmp_path: Path) -> None:
    assert reason(tmp_path / "nothing") == f"{tmp_path / 'nothing'} is not a file"


def test_without_any_it_says_how_to_get_one() -> None:
    assert "give --llama-cpp-python PYTHON" in reason(None)


def test_the_one_on_path_is_found_if_it_has_the_package(tmp_path: Path) -> None:
    with_it, without = good(tmp_path / "with"), environment(tmp_path / "without")
    for python, expected in ((with_it, str(with_it.parent / "python3")), (without, None)):
        search_path = f"{python.parent}{os.pathsep}/usr/bin"
        assert locate_llama_cpp_python(search_path, sys.executable) == expected
