"""What an agent tells of its settings beside its URL, in the words of its flags: `doctor` looks at
the machine by them. No secret is among them."""

import os
from pathlib import Path

from reconciler.plan.peering_text import written
from reconciler.settings import Settings
from reconciler.source.git_address import is_address


def words_of(settings: Settings) -> dict[str, object]:
    """By the flags' names with underscores; `path`: the agent's PATH. Relative paths are made
    absolute: who reads this is elsewhere."""
    allowed = settings.permissions
    return {
        "manifest": _manifest(settings.manifest),
        **{flag.strip("-").replace("-", "_"): str(file) for flag, file in settings.git.files()},
        "git_timeout": settings.git.timeout_seconds,
        "git_max_mib": settings.git.max_bytes >> 20,
        "kubeconfig": _text(settings.kubernetes.kubeconfig),
        "kube_context": settings.kubernetes.context,
        "hub": _location(settings.hub.location),
        "node": settings.node,
        "listen": f"{settings.listen_host}:{settings.listen_port}",
        "peers": written(settings.peers) if settings.peers is not None else None,
        "cluster_token_file": _text(settings.cluster_token_file),
        "pod_ip": settings.pod_ip,
        "models_dir": os.fspath(settings.models_dir),
        "llama_server": settings.llama_server,
        "vllm": settings.vllm,
        "llama_cpp_python": settings.llama_cpp_python,
        "engine": [f"{each.name}={each.id}:{each.path}" for each in settings.engines],
        "gpu_mode": settings.gpu_mode,
        "allow_engine_arg": sorted(allowed.flags),
        "allow_engine_env": sorted(allowed.variables),
        "allow_file_root": sorted(map(os.fspath, allowed.file_roots)),
        "stop_limit": str(settings.stop_limit),
        "ports": f"{settings.ports.start}-{settings.ports.stop - 1}",
        "path": settings.environment.get("PATH", ""),
    }


def _manifest(given: str) -> str:
    return given if is_address(given) else os.path.abspath(given)


def _text(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _location(hub: str | None) -> str | None:
    return hub if hub is None or "://" in hub else os.path.abspath(hub)
