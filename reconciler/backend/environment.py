"""The whole environment of a backend, made from scratch (PURE).

Only what stands in a short list is taken over from the agent's own: a VLLM_PORT that Kubernetes
injected for a Service of that name ended every vLLM (gpustack#4312), and any LLAMA_ARG_* changes a
llama-server behind the manifest's back.
"""

from collections.abc import Mapping

from reconciler.backend.site import Site
from reconciler.errors import Rejected
from reconciler.plan.desired import SecretRef

NONCE_VARIABLE = "XGEN_NONCE"
"""The spawn's nonce: the spawner adds it, all processes of the spawn inherit it (R9)."""

_INHERITED = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "XDG_CACHE_HOME",
    }
)
_INHERITED_PREFIX = "LC_"
_ALWAYS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    # setproctitle would overwrite the memory that /proc/PID/environ shows, and with it the nonce.
    "SPT_NOENV": "1",
    "PYTHONUNBUFFERED": "1",
    # A failed assertion in ggml starts gdb where there is one, which holds up the process's end.
    "GGML_NO_BACKTRACE": "1",
}


def inherited(base: Mapping[str, str]) -> dict[str, str]:
    """What a child may know of the agent's own environment."""
    return {
        name: value
        for name, value in base.items()
        if name in _INHERITED or name.startswith(_INHERITED_PREFIX)
    }


def environment(
    own: Mapping[str, str | SecretRef], site: Site, ours: Mapping[str, str]
) -> dict[str, str]:
    """A backend's environment, but for the nonce.

    `own`: the model's `env` as the manifest has it; `ours`: what the engine's adapter adds. What
    the agent needs stands above what the manifest says. Raises Rejected where a value is missing.
    """
    return {
        **inherited(site.environment),
        **{name: _value(name, value, site.secrets) for name, value in own.items()},
        **_ALWAYS,
        **ours,
    }


def _value(name: str, value: str | SecretRef, secrets: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return value
    if name not in secrets:
        raise Rejected(f"cannot set env.{name}: its reference was not resolved")
    return secrets[name]
