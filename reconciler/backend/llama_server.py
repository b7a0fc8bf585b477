"""How a llama-server is started: argv and environment, for the build that is there (PURE)."""

from collections.abc import Sequence

from reconciler.backend.environment import environment
from reconciler.backend.inventory import LLAMA_SERVER_CUDA, Build
from reconciler.backend.launch import Launch
from reconciler.backend.llama_devices import told, variables
from reconciler.backend.llama_options import COUNTERS, HOST, KEY_VARIABLE, need_fields, options
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Default, Options
from reconciler.backend.questions import probe
from reconciler.backend.site import CUDA_CACHE, Site
from reconciler.errors import Bug
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.gpus import Gpu
from reconciler.plan.observed import FilesCached

_DEFAULTS = (
    Default("--no-ui", optional=True),
    Default("--no-webui", optional=True),  # the same flag, in builds before it was renamed
    Default("--offline", optional=True),
)


def check(
    spec: ModelSpec, root: str, info: ModelInfo, build: Build, devices: Sequence[Gpu] = ()
) -> Options:
    """What the manifest says, as arguments; raises Rejected. Starts and costs nothing."""
    need_fields(spec, devices)
    variables(build, devices)
    engine = f"llama-server {build.version}" if build.version else "llama-server"
    defaults = (*_DEFAULTS, *told(build, devices))
    return options(spec, info, flags=build.flags, root=root, engine=engine, defaults=defaults)


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
    checked = check(model.spec, files.root, info, build, site.devices)
    projector: tuple[str, ...] = ("--mmproj", files.mmproj) if files.mmproj else ()
    if projector and not site.devices and build.flags.find("--no-mmproj-offload"):
        projector = (*projector, "--no-mmproj-offload")
    cache = site.kept(CUDA_CACHE) if build.id == LLAMA_SERVER_CUDA else {}
    ours = {KEY_VARIABLE: site.api_key, **cache, **variables(build, site.devices)}
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
        env=environment(model.spec.env, site, ours),
        host=HOST,
        port=site.port,
        api_key=site.api_key,
        probe=probe(model.name, model.spec.type),
        counters=COUNTERS,
        warnings=checked.warnings,
    )
