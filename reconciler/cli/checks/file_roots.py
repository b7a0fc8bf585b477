"""The folders whose models manifests may use in place."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from reconciler.cli.checks.finding import Finding, ok, warn
from reconciler.manifest.policy import ALLOW_FILES


def file_root_findings(roots: Sequence[Path]) -> Iterator[Finding]:
    for root in roots:
        if os.path.isdir(root):
            yield ok("file root", f"models may be used in place below {root}")
            continue
        amiss = "is no folder" if os.path.exists(root) else "is not there"
        said = f"{root} {amiss}, so no model can be used in place below it"
        yield warn("file root", said, f"mount or create it, or correct {ALLOW_FILES}")
