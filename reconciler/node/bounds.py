"""How much of requests the HTTP side takes in, by the settings."""

from dataclasses import replace

from reconciler.proxy.bounds import Bounds
from reconciler.settings import Settings


def bounds_of(settings: Settings) -> Bounds:
    """The rest as it is; together, bodies may be as large as one."""
    usual = Bounds()
    return replace(
        usual,
        body_bytes=settings.max_body_bytes,
        together_bytes=max(usual.together_bytes, settings.max_body_bytes),
        queue_length=settings.queue_length,
        queue_seconds=settings.queue_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
    )
