"""The one door to the engines: can this model run here, and how is it started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from reconciler.backend.choice import Choice, Refusal, choose
from reconciler.backend.contents import Contents
from reconciler.backend.inventory import VLLM_CPU, VLLM_CUDA, VLLM_ROCM, Build, Inventory
from reconciler.backend.launch import Launch
from reconciler.backend.loading import Loading
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import Offer
from reconciler.backend.policy import need_permission
from reconciler.backend.site import Site
from reconciler.errors import Bug, Rejected, Transient
from reconciler.manifest.policy import STRICT, Permissions
from reconciler.plan.checks import in_folder
from reconciler.plan.desired import DesiredModel, Format, ModelSpec
from reconciler.plan.gpus import Gpu
from reconciler.plan.memory import Needs
from reconciler.plan.observed import FilesCached
from reconciler.plan.repository import SCHEME, gguf_is_meant, parse_repository

if TYPE_CHECKING:
    from reconciler.backend.adapters import Adapter

_KEY_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Both None: nothing can be said before the files are here, and the engines are known.
    `refusal`: a sentence.

    `no_backend`: it is refused because nothing here runs files of that `format`. `bad_files`: it is
    the content of the files that is refused, so that other content may do. `lasting`: the same
    model and files will come to the same. `needs`: of memory; none: nothing is known of it before
    the files are here.
    """

    choice: Choice | None = None
    refusal: str | None = None
    no_backend: Refusal | None = None
    format: Format = Format.AUTO
    bad_files: bool = False
    lasting: bool = True
    needs: Needs = field(default_factory=dict)


class Engines:
    """The builds of this node. Safe to be asked from several threads.

    `shared_cache`: see `Site`. `machine_bytes`: see `Loading`. `permissions`: the node's policy.
    """

    def __init__(
        self,
        inventory: Inventory,
        shared_cache: str | None = None,
        machine_bytes: int | None = None,
        permissions: Permissions = STRICT,
    ) -> None:
        self._inventory = inventory
        self._permissions = permissions
        self._machine_bytes = machine_bytes
        self._contents = Contents()
        self._shared_cache = shared_cache

    @property
    def inventory(self) -> Inventory:
        """As of now; the very same value while nothing is new."""
        return self._inventory

    def take_up(self, inventory: Inventory) -> None:
        """What is there from now on, or known for the first time. What runs stays what it is."""
        self._inventory = inventory

    def assess(
        self,
        model: DesiredModel,
        files: FilesCached | None,
        devices: Sequence[Gpu] = (),
        offer: Offer | None = None,
    ) -> Assessment:
        """Whether the model could be started as it stands. Starts nothing, so it costs nothing.

        `devices`: what the model gets. `offer`: what the hub says of it, before its files are here.
        It reads the header of files that it has not seen yet (some 50 ms).
        """
        spec, there = model.spec, files or offer
        format = there.format if there else _likely_format(spec, self._backend(spec))
        if format is Format.AUTO or not self.inventory.known:
            return Assessment()
        chosen = choose(spec, format, self.inventory, devices)
        if isinstance(chosen, Refusal):
            taken_for = "" if there else _taken_for(model, format)
            refusal = f"{chosen.reason}{taken_for}"
            return Assessment(refusal=refusal, no_backend=chosen, format=format)
        try:
            need_permission(model, chosen.build, self._permissions)
        except Rejected as exc:
            return Assessment(choice=chosen, refusal=str(exc))
        try:
            info = self._contents.of(files) if files else offer.info if offer else ModelInfo()
            if files:
                _adapter(chosen.build).need_fit(spec, files.path, info)
        except Rejected as exc:
            refusal = f"{exc}; {_cure(spec)}"
            return Assessment(choice=chosen, refusal=refusal, bad_files=True)
        except Transient:
            # The file cannot be read just now. The start will say so, and be tried again.
            return Assessment(choice=chosen, lasting=False)
        return self._told(spec, there, info, chosen)

    def _told(
        self, spec: ModelSpec, there: FilesCached | Offer | None, info: ModelInfo, chosen: Choice
    ) -> Assessment:
        """What the engine is told, and what it then needs of memory."""
        adapter = _adapter(chosen.build)
        root = there.root if isinstance(there, FilesCached) else "/"
        try:
            options = adapter.check(spec, root, info, chosen.build, chosen.devices)
        except Rejected as exc:
            return Assessment(choice=chosen, refusal=str(exc))
        if there is None:
            return Assessment(choice=chosen)
        loading = Loading(
            spec=spec,
            size_bytes=there.weights_bytes if isinstance(there, Offer) else there.size_bytes,
            projector=there.mmproj is not None,
            info=info,
            build=chosen.build,
            options=options,
            devices=chosen.devices,
            machine_bytes=self._machine_bytes,
        )
        return Assessment(choice=chosen, needs=adapter.needs(loading))

    def _backend(self, spec: ModelSpec) -> str:
        """That the manifest asks for, itself or by the name of a build."""
        build = self.inventory.named(spec.engine) if spec.engine is not None else None
        return build.id if build is not None else spec.backend

    def likely_format(self, spec: ModelSpec) -> Format:
        """What the manifest alone shows; AUTO: nothing."""
        return _likely_format(spec, self._backend(spec))

    def can_run(self, model: DesiredModel, devices: Sequence[Gpu]) -> bool:
        """Whether there is a build for such a model on these devices, for all that is known without
        its files."""
        return self.assess(model, None, devices).refusal is None

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
        site = Site(
            port=port,
            api_key=token_urlsafe(_KEY_BYTES),
            environment=environment,
            secrets=secrets,
            devices=choice.devices,
            shared_cache=self._shared_cache,
        )
        need_permission(model, choice.build, self._permissions)
        info = self._contents.of(files)
        launch = _adapter(choice.build).launch(model, files, choice.build, info, site)
        return replace(
            launch,
            checks=tuple(in_folder(check, files.root) for check in model.checks),
            gpu_share=model.gpu_share,
            build=choice.build,
        )


def _adapter(build: Build) -> "Adapter":
    # Here: they are most of this package, and wait for engines that are known. What an earlier
    # agent has started serves before.
    from reconciler.backend.adapters import ADAPTERS

    adapter = ADAPTERS.get(build.id)
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


def _likely_format(spec: ModelSpec, backend: str) -> Format:
    """What the manifest alone shows, for models whose files are not here yet. `backend`: that it
    asks for, or "auto"."""
    if spec.format is not Format.AUTO:
        return spec.format
    if backend in (VLLM_CUDA, VLLM_ROCM, VLLM_CPU):
        return Format.SAFETENSORS
    if spec.file or spec.source.lower().endswith(".gguf") or spec.source.startswith("gguf/"):
        return Format.GGUF
    if spec.source.startswith(SCHEME):
        meant = gguf_is_meant(parse_repository(spec.source), file=None, format=Format.AUTO)
        return Format.GGUF if meant else Format.SAFETENSORS
    return Format.SAFETENSORS if spec.source.startswith("huggingface/") else Format.AUTO


def _taken_for(model: DesiredModel, format: Format) -> str:
    """What to say where only the source's name tells of safetensors: a hub may hold others."""
    guessed = format is Format.SAFETENSORS and model.spec.format is Format.AUTO
    return "; if its files are GGUF, say format: gguf" if guessed else ""
