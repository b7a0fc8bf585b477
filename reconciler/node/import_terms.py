"""What an import is told of the node: whether it has a hub, and the time."""

from datetime import UTC, datetime

from reconciler.errors import Rejected
from reconciler.jobs.job import Ask


def no_hub(ask: Ask) -> Rejected:
    return Rejected(
        f"cannot import {ask.repository}: no hub is set, and imports go through it; "
        "give --hub, a directory or s3://BUCKET"
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
