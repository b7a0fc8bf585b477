"""How a llama-server is started: argv and environment, for the build that is there (PURE)."""

from collections.abc import Sequence

from reconciler.backend.environment import environment
from reconciler.backend.inventory import Build
from reconciler.backend.launch import Launch
from reconciler.backend.llama_options import COUNTERS, HOST, options, ours_on_cpu
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Default, Options
from reconciler.backend.questions import probe
from reconciler.backend.site import Site
from reconciler.errors import Bug
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.gpus import Gpu
from reconciler.plan.observed import FilesCached

_DEFAULTS = (
    Default("--no-ui", optional=True),
    Default("--no-webui", optional=True),  # the same flag, in builds before it was renamed
    Default("--offline", optional=True),
    Default("--device", "none", optional=True),
)


def check(
    spec: ModelSpec, root: str, info: ModelInfo, build: Build, devices: Sequence[Gpu] = ()
) -> Options:
    """What the manifest says, as arguments; raises Rejected. Starts and costs nothing."""
    engine = f"llama-server {build.version}" if build.version else "llama-server"
    return options(spec, info, flags=build.flags, root=root, engine=engine, defaults=_DEFAULTS)


def launch(
    model: DesiredModel,
    files: FilesCached,
    build: Build,
    info: ModelInfo,
    site: Site,
) -> Launch:
    """A whole spawn, but for the nonce. Raises Rejected for what the manifest asks in vain."""
    if not files.path:
        # Without a model llama-server becomes a router over whatever lies in its cache.
        raise Bug(f"cannot start {model.name}: its files have no path")
    checked = check(model.spec, files.root, info, build)
    projector: tuple[str, ...] = ("--mmproj", files.mmproj) if files.mmproj else ()
    if projector and build.flags.find("--no-mmproj-offload"):
        projector = (*projector, "--no-mmproj-offload")
    return Launch(
        backend=build.id,
        argv=(
            *build.command,
            *("--model", files.path),
            *projector,
            *("--host", HOST),
            *("--port", str(site.port)),
            *("--alias", model.name),
            "--metrics",
            *(word for argument in checked.arguments for word in argument.words),
        ),
        env=environment(model.spec.env, site, ours_on_cpu(site.api_key)),
        host=HOST,
        port=site.port,
        api_key=site.api_key,
        probe=probe(model.name, model.spec.type),
        counters=COUNTERS,
        warnings=checked.warnings,
    )
