"""What a folder's files say of the model in them, as a catalog wants it."""

from collections.abc import Mapping, Sequence

from reconciler.backend.gguf import check_whole, read_header
from reconciler.backend.safetensors import read_model
from reconciler.cache.choose import Choice, Undecided, Wish, choose
from reconciler.errors import Rejected, Transient
from reconciler.hub.catalog import Facts
from reconciler.hub.local_files import LocalFile
from reconciler.plan.desired import Format


def describe(files: Sequence[LocalFile], where: str) -> Facts:
    """Every GGUF is checked to be whole, whether it is the model or not.

    Several models: what they have in common. Raises Rejected where no node could use the files.
    `where`: the folder, for messages.
    """
    sizes = {file.path: file.size_bytes for file in files}
    real = {file.path: file.real for file in files}
    for path in sizes:
        if path.lower().endswith(".gguf"):
            check_whole(real[path])
    try:
        choice = choose(sizes, Wish(where=where))
    except Undecided:
        return Facts(format=Format.GGUF)
    except Transient as exc:
        raise Rejected(str(exc)) from exc
    return _facts(choice, sizes, real)


def _facts(choice: Choice, sizes: Mapping[str, int], real: Mapping[str, str]) -> Facts:
    if choice.format is Format.GGUF:
        info = read_header(real[choice.main])
        return Facts(
            format=Format.GGUF,
            weights_bytes=sum(sizes[path] for path in choice.paths if path.endswith(".gguf")),
            kv_bytes_per_token=info.kv_bytes_per_token,
            kv_windows=info.windows,
            context_length=info.context_length,
        )
    below = f"{choice.root}/" if choice.root else ""
    model = read_model({path.removeprefix(below): real[path] for path in choice.paths})
    return Facts(
        format=Format.SAFETENSORS,
        weights_bytes=model.weights_bytes,
        kv_bytes_per_token=model.kv_bytes_per_token,
        kv_windows=model.windows,
        kv_heads=model.kv_heads,
        context_length=model.context_length,
    )
