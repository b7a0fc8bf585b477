"""What the files of models say, read once for each content of each path."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock

from reconciler.backend.gguf import check_whole, read_header
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.safetensors import read_folder
from reconciler.errors import Rejected
from reconciler.plan.desired import Format
from reconciler.plan.ids import FilesDigest
from reconciler.plan.observed import FilesCached

_REMEMBERED = 256


class Contents:
    """Safe to be asked from several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, FilesDigest], ModelInfo | Rejected] = OrderedDict()
        self._lock = Lock()

    def of(self, files: FilesCached) -> ModelInfo:
        """Blocks for some 50 ms where they were not read yet.

        Raises Rejected where they cannot be used, Transient where they cannot be read.
        """
        key = (files.path, files.digest)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            try:
                known = _READERS[files.format](files)
            except Rejected as exc:
                known = exc
            with self._lock:
                self._known[key] = known
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        if isinstance(known, Rejected):
            raise Rejected(str(known))
        return known


def _gguf(files: FilesCached) -> ModelInfo:
    info = read_header(files.path)
    if files.mmproj is not None:
        check_whole(files.mmproj)
    return info


def _safetensors(files: FilesCached) -> ModelInfo:
    return read_folder(files.path)


_READERS: Mapping[Format, Callable[[FilesCached], ModelInfo]] = {
    Format.GGUF: _gguf,
    Format.SAFETENSORS: _safetensors,
}
