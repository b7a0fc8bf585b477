"""Which source the settings name, and who may tell that it has changed."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from reconciler.errors import Transient
from reconciler.loop.clock import Clock
from reconciler.proxy.push_hook import PushHook
from reconciler.settings import Settings
from reconciler.source.directory import DirectorySource
from reconciler.source.git_access import check_access
from reconciler.source.git_address import is_address, parse_address
from reconciler.source.kubernetes_access import check_cluster
from reconciler.source.kubernetes_address import is_config_map, parse_config_map
from reconciler.source.manifest_source import ManifestSource


def make_source(
    settings: Settings, clock: Clock, *, settled: Mapping[str, bytes]
) -> ManifestSource:
    """That of `--manifest`. Raises Rejected; reads nothing yet.

    `settled`: the files that an earlier agent took up.
    """
    if is_config_map(settings.manifest):
        return _config_map(settings, clock)
    if not is_address(settings.manifest):
        return DirectorySource(
            Path(settings.manifest), poll_seconds=settings.poll_interval, settled=settled
        )
    address = parse_address(settings.manifest)
    check_access(address, settings.git)
    # Here: an agent whose manifest is a mounted folder starts without all that.
    from reconciler.source.git import GitSource

    return GitSource(
        address,
        settings.git,
        settings.data_dir / "git",
        interval_seconds=settings.git_interval,
        now=lambda: clock.wall(clock.monotonic()),
    )


def _config_map(settings: Settings, clock: Clock) -> ManifestSource:
    config_map = parse_config_map(settings.manifest)
    check_cluster(settings.kubernetes)
    from reconciler.source.kubernetes import ConfigMapSource  # here, as with git

    return ConfigMapSource(
        config_map, settings.kubernetes, now=lambda: clock.wall(clock.monotonic())
    )


def make_push_hook(settings: Settings, source: ManifestSource) -> PushHook | None:
    """None where no secret is agreed on."""
    file = settings.git_webhook_secret_file
    if file is None:
        return None

    async def secret() -> bytes:
        return await asyncio.to_thread(_read_secret, file)

    return PushHook(secret=secret, look=source.look_again)


def _read_secret(file: Path) -> bytes:
    try:
        secret = file.read_bytes().strip()
    except OSError as exc:
        raise Transient(f"cannot read {file}: {exc.strerror}") from exc
    if not secret:
        raise Transient(f"cannot use {file}: it is empty")
    return secret
