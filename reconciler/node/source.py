"""Which source the settings name."""

from collections.abc import Mapping
from pathlib import Path

from reconciler.loop.clock import Clock
from reconciler.settings import Settings
from reconciler.source.directory import DirectorySource
from reconciler.source.git_access import check_access
from reconciler.source.git_address import is_address, parse_address
from reconciler.source.manifest_source import ManifestSource


def make_source(
    settings: Settings, clock: Clock, *, settled: Mapping[str, bytes]
) -> ManifestSource:
    """That of `--manifest`. Raises Rejected; reads nothing yet.

    `settled`: the files that an earlier agent took up.
    """
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
