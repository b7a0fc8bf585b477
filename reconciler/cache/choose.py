"""Which files of a prefix are the model (PURE): only these are pulled, and make up its digest.

GGUF: one model with all its shards, and the projector (mmproj) beside it.
safetensors: everything but the weights of other formats.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from reconciler.cache.names import check_paths
from reconciler.cache.snapshots import snapshot_root
from reconciler.errors import Rejected, Transient
from reconciler.plan.desired import Format, JsonValue, ModelSpec

_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.(gguf|safetensors)")
_OTHER_WEIGHTS = (
    ".bin", ".ckpt", ".ggml", ".gguf", ".h5", ".llamafile", ".mlmodel", ".msgpack", ".nemo",
    ".npz", ".onnx", ".onnx_data", ".ot", ".pickle", ".pkl", ".pt", ".pth", ".tflite",
)  # fmt: skip
_TEXT_BYTES = 4 * 1024 * 1024
_OTHER_FOLDERS = {"coreml", "onnx", "openvino"}


class Undecided(Transient):
    """The prefix holds several of what a model has one of: the manifest must name it, or a push
    must take the others away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a spec says of its files. `where`: the prefix or path, for messages.

    `references`: files that `extra_args` and checks name with `@/`, relative to the model's folder,
    and what names each.
    """

    where: str
    file: str | None = None
    format: Format = Format.AUTO
    references: tuple[tuple[str, str], ...] = ()
    no_mmproj: bool = False

    @property
    def referenced(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.references)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Paths relative to the prefix. `root`: the folder that `@/` means, "" for the prefix itself.

    `main`: what the engine is given, a GGUF (its first shard) or `root`. `paths`: all that is
    needed, sorted.
    """

    format: Format
    root: str
    main: str
    paths: tuple[str, ...]
    mmproj: str | None = None


@dataclass(frozen=True, slots=True)
class _Folder:
    """The files below `root`, by their path relative to it, with their sizes."""

    where: str
    root: str
    sizes: Mapping[str, int] = field(repr=False)

    def cannot(self) -> str:
        return f"cannot choose the files of {self.where}"

    def full(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path


def wish_of(spec: ModelSpec, where: str, file: str | None) -> Wish:
    arguments = {key.replace("-", "_"): value for key, value in spec.extra_args.items()}
    references = dict.fromkeys(spec.check_files, "a check")
    for key, value in arguments.items():
        references |= dict.fromkeys(_references(value), f"extra_args.{key}")
    return Wish(
        where=where,
        file=file,
        format=spec.format,
        references=tuple(sorted(references.items())),
        no_mmproj=arguments.get("no_mmproj") is True or arguments.get("mmproj") is False,
    )


def choose(sizes: Mapping[str, int], wish: Wish, main_ref: str | None = None) -> Choice:
    """`sizes`: every path under the prefix. `main_ref`: content of refs/main, where there is one.

    Raises Rejected for what no content can satisfy; Transient where the prefix is incomplete
    (somebody may be pushing it right now) or holds too much (`Undecided`).
    """
    root = snapshot_root(sizes, main_ref, wish.where)
    below = f"{root}/" if root else ""
    visible = {
        path.removeprefix(below): size
        for path, size in sizes.items()
        if path.startswith(below) and not is_hidden(path.removeprefix(below))
    }
    folder = _Folder(wish.where, root, visible)
    for path, namer in wish.references:
        if path not in visible:
            missing = f"no {path}, which {namer} names"
            raise Transient(f"{folder.cannot()}: {missing}{_nearest(path, visible)}")
    match _format(folder, wish):
        case Format.GGUF:
            choice = _gguf(folder, wish)
        case _:
            choice = _safetensors(folder, wish)
    check_paths(choice.paths, wish.where)
    for path in choice.paths:
        if sizes[path] == 0 and path.lower().endswith((".gguf", ".safetensors")):
            raise Transient(f"{folder.cannot()}: {path} is empty")
    return choice


def choose_for_import(sizes: Mapping[str, int], wish: Wish) -> tuple[str, ...]:
    """What to import of a repository: the model, and what specs may name beside it.

    With a GGUF come all its projectors, and the texts (templates, licences, settings). Raises as
    `choose` does.
    """
    choice = choose(sizes, replace(wish, no_mmproj=True))
    if choice.format is not Format.GGUF:
        return choice.paths
    folder = choice.main.rpartition("/")[0]
    projectors = {p for p in sizes if _is_mmproj(p) and p.rpartition("/")[0] == folder}
    texts = {
        path
        for path, size in sizes.items()
        if size <= _TEXT_BYTES and not (is_hidden(path) or _is_other_weight(path))
    }
    texts -= {path for path in texts if path.endswith(".safetensors")}
    paths = tuple(sorted({*choice.paths, *projectors, *texts}))
    check_paths(paths, wish.where)
    return paths


def is_hidden(path: str) -> bool:
    """`.xgen/`, `.cache/`, `.git/` and the like are never a model's files."""
    return any(part.startswith(".") and part not in (".", "..") for part in path.split("/"))


def _references(value: JsonValue) -> Iterable[str]:
    match value:
        case str() if value.startswith("@/"):
            yield value.removeprefix("@/")
        case list():
            for item in value:
                yield from _references(item)
        case dict():
            for item in value.values():
                yield from _references(item)
        case _:
            return


def _format(folder: _Folder, wish: Wish) -> Format:
    if wish.format is not Format.AUTO:
        return wish.format
    if wish.file is not None:
        return Format.GGUF
    gguf = any(_is_model(path) for path in folder.sizes)
    safetensors = any(path.endswith(".safetensors") for path in folder.sizes)
    if gguf and safetensors:
        return Format.GGUF if wish.where.startswith("gguf/") else Format.SAFETENSORS
    if not gguf and not safetensors:
        pickles = [path for path in folder.sizes if path.endswith((".bin", ".pt", ".pth"))]
        other = f"; weights like {pickles[0]} are not loaded: they can run code" if pickles else ""
        raise Transient(f"{folder.cannot()}: it holds no GGUF and no safetensors{other}")
    return Format.GGUF if gguf else Format.SAFETENSORS


def _gguf(folder: _Folder, wish: Wish) -> Choice:
    shards = _complete(folder, _one_model(folder, wish))
    mmproj = _mmproj(folder, wish, beside=shards[0])
    paths = {*shards, *wish.referenced, *([mmproj] if mmproj else [])}
    return Choice(
        format=Format.GGUF,
        root=folder.root,
        main=folder.full(shards[0]),
        paths=tuple(sorted(map(folder.full, paths))),
        mmproj=folder.full(mmproj) if mmproj else None,
    )


def _one_model(folder: _Folder, wish: Wish) -> str:
    """One path of the wanted model: its only file, or any of its shards."""
    models: dict[str, str] = {}
    for path in sorted(filter(_is_model, folder.sizes)):
        models.setdefault(_stem(path), path)
    if wish.file is not None:
        return _named(folder, wish.file, models)
    if not models:
        raise Transient(f"{folder.cannot()}: {_lacks(folder, wish, 'GGUF model')}")
    if len(models) > 1:
        raise Undecided(
            f"{folder.cannot()}: it holds {len(models)} GGUF models; name one with `file:`: "
            + ", ".join(models.values())
        )
    return next(iter(models.values()))


def _named(folder: _Folder, file: str, models: Mapping[str, str]) -> str:
    if not file.lower().endswith(".gguf"):
        raise Rejected(f"{folder.cannot()}: `file:` must name a .gguf, not {file}")
    if file in folder.sizes:
        return file
    alike = [path for path in models.values() if path.rpartition("/")[2] == file]
    if len(alike) == 1:
        return alike[0]
    raise Transient(f"{folder.cannot()}: no {file}{_nearest(file, models.values())}")


def _mmproj(folder: _Folder, wish: Wish, *, beside: str) -> str | None:
    if wish.no_mmproj:
        return None
    here = beside.rpartition("/")[0]
    found = [
        path
        for path in sorted(folder.sizes)
        if _is_mmproj(path) and path.rpartition("/")[0] == here
    ]
    named = [path for path in wish.referenced if _is_mmproj(path)]
    if named:
        return named[0]
    if len(found) > 1:
        raise Undecided(
            f"{folder.cannot()}: it holds {len(found)} projectors; name one in extra_args "
            f'(mmproj: "@/{found[0]}"), or none (no_mmproj: true): {", ".join(found)}'
        )
    return found[0] if found else None


def _safetensors(folder: _Folder, wish: Wish) -> Choice:
    if wish.file is not None:
        raise Rejected(f"{folder.cannot()}: `file:` names a GGUF, and the format is safetensors")
    wanted = [path for path in folder.sizes if not _is_other_weight(path)]
    weights = [path for path in wanted if path.endswith(".safetensors")]
    if not weights:
        raise Transient(f"{folder.cannot()}: {_lacks(folder, wish, 'safetensors')}")
    for path in weights:
        _complete(folder, path)
    return Choice(
        format=Format.SAFETENSORS,
        root=folder.root,
        main=folder.root,
        paths=tuple(sorted(map(folder.full, {*wanted, *wish.referenced}))),
    )


def _lacks(folder: _Folder, wish: Wish, what: str) -> str:
    """What is there instead is named, where the manifest has asked for the other by name."""
    said = f"it holds no {what}"
    suffix = ".gguf" if wish.format is Format.SAFETENSORS else ".safetensors"
    other = next((path for path in sorted(folder.sizes) if path.lower().endswith(suffix)), None)
    if wish.format is Format.AUTO or other is None:
        return said
    return f"{said}: the manifest says format: {wish.format}, and there is {other}"


def _complete(folder: _Folder, path: str) -> tuple[str, ...]:
    """All shards of the model that `path` belongs to, the first one first."""
    match = _SHARD.fullmatch(path)
    if match is None or not 1 <= int(match[2]) <= int(match[3]):
        return (path,)
    stem, count, suffix = match[1], int(match[3]), match[4]
    shards = [f"{stem}-{number:05}-of-{count:05}.{suffix}" for number in range(1, count + 1)]
    missing = [shard for shard in shards if shard not in folder.sizes]
    if missing:
        raise Transient(
            f"{folder.cannot()}: {len(missing)} of {count} shards missing: {missing[0]}"
        )
    return tuple(shards)


def _stem(path: str) -> str:
    match = _SHARD.fullmatch(path)
    return f"{match[1]}-of-{match[3]}" if match else path


def _is_model(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return name.endswith(".gguf") and "mmproj" not in name and "imatrix" not in name


def _is_mmproj(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return name.endswith(".gguf") and "mmproj" in name


def _is_other_weight(path: str) -> bool:
    folders = path.lower().split("/")[:-1]
    return path.lower().endswith(_OTHER_WEIGHTS) or not _OTHER_FOLDERS.isdisjoint(folders)


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.3)
    return f"; nearest: {', '.join(close)}" if close else ""
