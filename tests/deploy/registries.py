"""How this machine reaches a package index, handed on to a system that is not this one.

A build, and an install in a namespace, get it as any site would give its own: as files.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_CA = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_OF_PIP = ("index-url", "extra-index-url", "trusted-host", "timeout", "proxy")


def secrets(folder: Path, *, ca_at: str = "/run/secrets/ca") -> Mapping[str, Path]:
    """The build's secrets `pip` and `ca`, as far as this machine has them.

    Args:
        folder: For files that are written.
        ca_at: Where the build mounts the second.
    """
    found: dict[str, Path] = {}
    lines = ["[global]"]
    if ca := _ca():
        found["ca"] = ca
        lines.append(f"cert = {ca_at}")
    lines += _pip_settings()
    found["pip"] = folder / "pip.conf"
    found["pip"].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return found


def _ca() -> Path | None:
    named = (os.environ.get(name) for name in _CA)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def _pip_settings() -> Iterator[str]:
    """Without addresses of files: the other system has none of ours."""
    for name in _OF_PIP:
        words = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        value = os.environ.get(f"PIP_{name.upper().replace('-', '_')}", done.stdout.strip())
        kept = [word for word in value.split() if not word.startswith(("file:", "/"))]
        if kept:
            yield f"{name} = {' '.join(kept)}"
