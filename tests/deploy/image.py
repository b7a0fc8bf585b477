"""The image, as far as a test without a container engine has one: what it starts, and with what."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.container import Mount
from tests.e2e.agent import REPOSITORY, llama_server_stand_in

DOCKERFILE = REPOSITORY / "deploy" / "image" / "Dockerfile"
_ENGINES = "/opt/engines"
_OWN = "/opt/xgen-model"
_PATH = f"{_OWN}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""With our environment, to which the image has a link in /usr/local/bin."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """`mounts`: its files, beside those of this machine."""

    entrypoint: list[str]
    cmd: list[str]
    env: dict[str, str]
    uid: int
    gid: int
    folder: str
    mounts: Sequence[Mount] = ()


@dataclass(kw_only=True)
class _Stage:
    """What the last stage of a Dockerfile says, for each instruction its last words."""

    said: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def image(folder: Path) -> Image:
    """The one for CPUs, whose llama-server is the stand-in; our own environment has xllamacpp."""
    stage = _last_stage(DOCKERFILE.read_text(encoding="utf-8"))
    uid, _, gid = stage.said["USER"].partition(":")
    own, engines = folder / "own", folder / "engines"
    (own / "bin").mkdir(parents=True)
    command = own / "bin" / "xgen-model"
    command.write_text(f'#!/bin/sh\nexec {Path(sys.executable).with_name("xgen-model")} "$@"\n')
    command.chmod(0o755)
    engines.mkdir()
    llama_server_stand_in(engines).chmod(0o755)
    return Image(
        entrypoint=json.loads(stage.said["ENTRYPOINT"]),
        cmd=json.loads(stage.said["CMD"]),
        env={**stage.env, "PATH": _PATH, "XGEN_LLAMA_SERVER": f"{_ENGINES}/llama-server"},
        uid=int(uid),
        gid=int(gid),
        folder=stage.said["WORKDIR"],
        mounts=(
            Mount(source=own, target=_OWN, read_only=True),
            Mount(source=engines, target=_ENGINES, read_only=True),
        ),
    )


def _last_stage(text: str) -> _Stage:
    stage = _Stage()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stage = _Stage()
        elif word == "ENV":
            stage.env |= dict(each.split("=", 1) for each in shlex.split(rest))
        stage.said[word] = rest.strip()
    return stage
