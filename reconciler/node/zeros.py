"""Weights that end in zeros: a download that took its room at once, and did not end.

Its size and its header are right, so nothing else tells it from a whole one (ollama#17520).
"""

from collections.abc import Sequence

from reconciler.backend.gguf import data_bytes
from reconciler.backend.safetensors import tensor_bytes
from reconciler.errors import Rejected
from reconciler.hub.local_files import Hashed

_LEAST_BYTES = 64 * 1024
"""Fewer may be a tensor's last values; where all of the tensors' data is less, that counts."""


def check_no_zeros(files: Sequence[Hashed]) -> None:
    """Raises Rejected for the first file of weights that is not all there."""
    for each in files:
        if each.zero_bytes and each.file.path.lower().endswith((".gguf", ".safetensors")):
            _check(each)


def _check(hashed: Hashed) -> None:
    data = _data_bytes(hashed)
    if data and min(hashed.zero_bytes, data) >= min(_LEAST_BYTES, data):
        file = hashed.file
        raise Rejected(
            f"cannot push {file.path}: it holds only zeros from byte "
            f"{file.size_bytes - hashed.zero_bytes} to its end at {file.size_bytes}, as a download "
            "that did not end; get it anew, or --allow-zeros pushes it as it is"
        )


def _data_bytes(hashed: Hashed) -> int:
    """Of its tensors; of all of it where it has no header that can be read."""
    file = hashed.file
    try:
        return (data_bytes if file.path.lower().endswith(".gguf") else tensor_bytes)(file.real)
    except Rejected:
        return file.size_bytes
