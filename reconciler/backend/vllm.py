"""How a vLLM is started: argv and environment, for the build and the devices that are there (PURE).

vllm serve MODEL --host … --port … --served-model-name NAME …
python -m vllm.entrypoints.openai.api_server --model MODEL …          where there is no `vllm`
"""

from collections.abc import Sequence
from dataclasses import replace

from reconciler.backend.environment import environment
from reconciler.backend.inventory import Build
from reconciler.backend.launch import Launch
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Options
from reconciler.backend.questions import probe
from reconciler.backend.site import CUDA_CACHE, Site
from reconciler.backend.vllm_devices import cache_variable, selection
from reconciler.backend.vllm_options import COUNTERS, options
from reconciler.backend.vllm_versions import Traits
from reconciler.errors import Bug
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.gpus import Gpu
from reconciler.plan.observed import FilesCached

HOST = "127.0.0.1"
_ENGINE_APART = "VLLM_ENABLE_V1_MULTIPROCESSING"
SERVE = "serve"
"""The end of a command that takes the model as its first argument."""


def check(
    spec: ModelSpec, root: str, info: ModelInfo, build: Build, devices: Sequence[Gpu] = ()
) -> Options:
    """What the manifest says, as arguments; raises Rejected. Starts and costs nothing."""
    return options(spec, root, build, devices)


def launch(
    model: DesiredModel, files: FilesCached, build: Build, info: ModelInfo, site: Site
) -> Launch:
    """A whole spawn, but for the nonce. Raises Rejected for what the manifest asks in vain."""
    if not files.path:
        # Without a model vLLM would serve its default one, from the hub.
        raise Bug(f"cannot start {model.name}: its files have no path")
    spec = model.spec
    checked = check(spec, files.root, info, build, site.devices)
    # First: `--served-model-name` takes all words that follow it for names.
    named = (files.path,) if build.command[-1] == SERVE else ("--model", files.path)
    return Launch(
        backend=build.id,
        argv=(
            *build.command,
            *named,
            *("--host", HOST),
            *("--port", str(site.port)),
            *("--served-model-name", model.name),
            *(word for argument in checked.arguments for word in argument.words),
        ),
        env=environment(spec.env, site, _variables(spec, build, site)),
        host=HOST,
        port=site.port,
        api_key=site.api_key,
        probe=probe(model.name, spec.type),
        counters=replace(COUNTERS, computes_apart=spec.env.get(_ENGINE_APART) != "0"),
        warnings=checked.warnings,
        socket_variables=("VLLM_RPC_BASE_PATH",),
    )


def _variables(spec: ModelSpec, build: Build, site: Site) -> dict[str, str]:
    # Without these, what is compiled lies in TMPDIR, which goes with the spawn, or in HOME, which
    # goes with the pod.
    caches = {
        "VLLM_CACHE_ROOT": "vllm",
        "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
        "TRITON_CACHE_DIR": "triton",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",
        **CUDA_CACHE,
    }
    return {
        "VLLM_API_KEY": site.api_key,
        "VLLM_NO_USAGE_STATS": "1",
        # Nothing that lies in the agent's working directory is imported.
        "PYTHONSAFEPATH": "1",
        **_search_path(build, site),
        **site.kept(caches),
        **cache_variable(spec, site.devices, Traits.of(build.version)),
        **selection(build, site.devices),
    }


def _search_path(build: Build, site: Site) -> dict[str, str]:
    """Its own environment's programs first: what compiles for a GPU calls the `ninja` there by
    name."""
    if build.programs is None:
        return {}
    return {"PATH": ":".join(filter(None, (build.programs, site.environment.get("PATH"))))}
