"""The one door to the engines: can this model run here, and how is it started."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_urlsafe
from threading import Lock
from typing import Protocol

from reconciler.backend import llama_server, xllamacpp
from reconciler.backend.choice import Choice, Refusal, choose
from reconciler.backend.gguf import GgufInfo, check_whole, read_header
from reconciler.backend.inventory import LLAMA_SERVER_CPU, XLLAMACPP, Build, Inventory
from reconciler.backend.launch import Launch
from reconciler.backend.llama_options import Options, need_fit
from reconciler.errors import Bug, Rejected, Transient
from reconciler.plan.desired import DesiredModel, Format, ModelSpec
from reconciler.plan.ids import FilesDigest
from reconciler.plan.observed import FilesCached
from reconciler.plan.repository import SCHEME

_REMEMBERED_HEADERS = 256
_KEY_BYTES = 24


class _Adapter(Protocol):
    """What an engine's module offers."""

    def check(self, spec: ModelSpec, root: str, info: GgufInfo, build: Build) -> Options: ...
    def launch(
        self,
        model: DesiredModel,
        files: FilesCached,
        build: Build,
        info: GgufInfo,
        *,
        port: int,
        api_key: str,
        base_environment: Mapping[str, str],
        secrets: Mapping[str, str],
    ) -> Launch: ...


_ADAPTERS: Mapping[str, _Adapter] = {LLAMA_SERVER_CPU: llama_server, XLLAMACPP: xllamacpp}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Both None: nothing can be said before the files are here. `refusal`: a sentence.

    `bad_files`: it is the content of the files that is refused, so that other content may do.
    `lasting`: the same model and files will come to the same.
    """

    choice: Choice | None = None
    refusal: str | None = None
    bad_files: bool = False
    lasting: bool = True


class Engines:
    """The builds of this node. Safe to be asked from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self._headers = _Headers()

    def assess(self, model: DesiredModel, files: FilesCached | None) -> Assessment:
        """Whether the model could be started as it stands. Starts nothing, so it costs nothing.

        It reads the header of files that it has not seen yet (some 50 ms).
        """
        spec = model.spec
        format = files.format if files else _likely_format(model)
        if format is Format.AUTO:
            return Assessment()
        chosen = choose(spec, format, self.inventory, model.gpus)
        if isinstance(chosen, Refusal):
            return Assessment(refusal=chosen.reason)
        try:
            info = self._headers.of(files) if files else GgufInfo(architecture="")
            if files:
                need_fit(spec.type, files.path, info)
        except Rejected as exc:
            refusal = f"{exc}; {_cure(spec)}"
            return Assessment(choice=chosen, refusal=refusal, bad_files=True)
        except Transient:
            # The file cannot be read just now. The start will say so, and be tried again.
            return Assessment(choice=chosen, lasting=False)
        try:
            root = files.root if files else "/"
            _adapter(chosen.build).check(spec, root, info, chosen.build)
        except Rejected as exc:
            return Assessment(choice=chosen, refusal=str(exc))
        return Assessment(choice=chosen)

    def launch(
        self,
        model: DesiredModel,
        files: FilesCached,
        choice: Choice,
        *,
        port: int,
        environment: Mapping[str, str],
        secrets: Mapping[str, str],
    ) -> Launch:
        """A whole spawn with a fresh API key, but for the nonce.

        `environment`: the agent's own; `secrets`: the values of the references in the model's
        `env`, by variable. Raises Rejected or Transient.
        """
        return _adapter(choice.build).launch(
            model,
            files,
            choice.build,
            self._headers.of(files),
            port=port,
            api_key=token_urlsafe(_KEY_BYTES),
            base_environment=environment,
            secrets=secrets,
        )


class _Headers:
    """What GGUF headers say, by path and content."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, FilesDigest], GgufInfo | Rejected] = OrderedDict()
        self._lock = Lock()

    def of(self, files: FilesCached) -> GgufInfo:
        key = (files.path, files.digest)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            try:
                known = read_header(files.path)
                if files.mmproj is not None:
                    check_whole(files.mmproj)
            except Rejected as exc:
                known = exc
            with self._lock:
                self._known[key] = known
                if len(self._known) > _REMEMBERED_HEADERS:
                    self._known.popitem(last=False)
        if isinstance(known, Rejected):
            raise Rejected(str(known))
        return known


def _adapter(build: Build) -> _Adapter:
    adapter = _ADAPTERS.get(build.id)
    if adapter is None:
        raise Bug(f"cannot start {build.id}: no adapter knows it")
    return adapter


def _cure(spec: ModelSpec) -> str:
    """What helps against bad files, and that nothing more need be done."""
    if spec.source.startswith("file:"):
        return "put a good one in its place, and it is taken by itself"
    if spec.source.startswith(SCHEME):
        name = spec.source.removeprefix(SCHEME)
        return f"once {name} has a good one, say `xgen-model hub import {name} --refresh`"
    return f"push a good one to {spec.source} in the hub, and it is taken by itself"


def _likely_format(model: DesiredModel) -> Format:
    """What the manifest alone shows, for models whose files are not here yet."""
    spec = model.spec
    if spec.format is not Format.AUTO:
        return spec.format
    if spec.file or spec.source.lower().endswith(".gguf") or spec.source.startswith("gguf/"):
        return Format.GGUF
    return Format.AUTO
