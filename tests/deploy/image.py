"""The image, as far as a test without a container engine has one: what it starts, and with what."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.chroot import Mount, ids_of
from tests.deploy.dockerfile import parse
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


def image(folder: Path) -> Image:
    """The one for CPUs, whose llama-server is the stand-in; our own environment has xllamacpp."""
    config = parse(DOCKERFILE.read_text(encoding="utf-8")).config("final", {"VARIANT": "cpu"})
    uid, gid = ids_of(config.user)
    own, engines = folder / "own", folder / "engines"
    (own / "bin").mkdir(parents=True)
    command = own / "bin" / "xgen-model"
    command.write_text(f'#!/bin/sh\nexec {Path(sys.executable).with_name("xgen-model")} "$@"\n')
    command.chmod(0o755)
    engines.mkdir()
    llama_server_stand_in(engines).chmod(0o755)
    return Image(
        entrypoint=[*config.entrypoint],
        cmd=[*config.command],
        env={**config.env, "PATH": _PATH, "XGEN_LLAMA_SERVER": f"{_ENGINES}/llama-server"},
        uid=uid,
        gid=gid,
        folder=config.folder,
        mounts=(
            Mount(source=own, target=_OWN),
            Mount(source=engines, target=_ENGINES),
        ),
    )
