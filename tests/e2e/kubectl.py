"""The real kubectl, which `make test-net` installs."""

import os
import platform
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.source.git_https import certificate
from tests.source.kubernetes_files import kubeconfig
from tests.source.kubernetes_server import Server, serving

_KUBECTL = Path(__file__).resolve().parents[2] / ".kubectl" / "kubectl"
FOLDER = _KUBECTL.parent
_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """With a kubeconfig, in one namespace. `home`: for what it caches."""

    kubeconfig: Path
    home: Path
    namespace: str = "models"

    @property
    def argv(self) -> list[str]:
        return [*map(str, (_KUBECTL, "--kubeconfig", self.kubeconfig, "-n", self.namespace))]

    def __call__(
        self, *words: str, stdin: str | None = None, editor: str = "false"
    ) -> subprocess.CompletedProcess[str]:
        """`editor`: what `edit` opens the object with."""
        return subprocess.run(
            [*self.argv, *words],
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBE_EDITOR": editor},
            check=False,
        )

    def do(self, *words: str, stdin: str | None = None, editor: str = "false") -> str:
        """What it prints. It has to succeed."""
        done = self(*words, stdin=stdin, editor=editor)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Server, Kubectl]]:
    """A server with TLS that asks for a token, and kubectl with that."""
    _need_kubectl()
    home = folder / "home"
    home.mkdir()
    with serving(Server(certificate=certificate(folder, "ours"), tokens={"t0k3n"})) as server:
        path = kubeconfig(home, server, user={"token": "t0k3n"})
        yield server, Kubectl(kubeconfig=path, home=home)


def _need_kubectl() -> None:
    """Where there is none for this machine, the test is skipped; else it has to be installed."""
    if platform.machine() != "x86_64":
        pytest.skip("no prebuilt kubectl for this machine")
    assert _KUBECTL.exists(), "kubectl is not installed: make test-net"


def replacing(folder: Path, old: str, new: str) -> str:
    """An editor that replaces one text by another, as a person would."""
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\nexec sed -i 's|{old}|{new}|' \"$1\"\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)
