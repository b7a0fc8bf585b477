"""`xgen-model cache verify`: whether the cache still holds what was pushed."""

from collections.abc import Sequence
from typing import Annotated

import typer

from reconciler.cache.amounts import human
from reconciler.cache.audit import Audited, audit, published
from reconciler.cache.inventory import StoredRevision, inventory
from reconciler.cache.stamps import Proof, proof_of
from reconciler.cli.cache_place import ModelsDir, of_prefix, opened
from reconciler.cli.exits import ExitCode
from reconciler.cli.hub_place import count
from reconciler.cli.hub_progress import Told
from reconciler.cli.options import DataDir
from reconciler.cli.output import Output, OutputOption, complain, print_json, remark


def verify(
    prefix: Annotated[
        str | None, typer.Argument(metavar="[PREFIX]", help="Only this one. [default: all]")
    ] = None,
    data: DataDir = None,
    models_dir: ModelsDir = None,
    output: OutputOption = Output.TEXT,
) -> int:
    """Read every cached file and compare it with what the hub said of it.

    By SHA-256, else by MD5, else by size alone, which is said. What runs and what is fetched goes
    on meanwhile. An agent fetches damaged files again, once it needs them, and those that look
    changed where nobody can tell whether they are.

    Exit 0: all are as they were pushed, as far as can be told. 1: files are damaged or missing, or
    nobody can tell.
    """
    place = opened(data, models_dir)
    revisions = of_prefix(inventory(place.layout), prefix, place.layout.models)
    with Told() as told:
        told.begin("reading", sum(map(_readable_bytes, revisions)))
        found = audit(place.layout, revisions, told.advance)
    bad = [each for each in found if each.fault is not None]
    lost = [item for item in revisions if item.record is None and not item.is_only_kept]
    if output is Output.JSON:
        print_json(_json(revisions, found))
    else:
        for each in bad:
            complain(f"{each.prefix}/{each.path}: {each.fault} (digest {each.digest})")
        for item in lost:
            remark(
                f"{item.prefix} of digest {item.digest}: its record is lost, so nothing is served "
                "from it; `cache gc --all` removes it"
            )
        typer.echo(_said(found, bad))
    return ExitCode.ERROR if bad else ExitCode.OK


def _readable_bytes(item: StoredRevision) -> int:
    return sum(each.size_bytes for each in published(item) if proof_of(each) is not Proof.SIZE)


def _said(found: Sequence[Audited], bad: Sequence[Audited]) -> str:
    total = human(sum(each.size_bytes for each in found))
    what = f"{count(len(found), 'file')}, {total}"
    if bad:
        lost = human(sum(each.size_bytes for each in bad))
        unsure = sum(each.proof is Proof.NONE for each in bad)
        files = count(len(found), "file")
        said = [f"{len(bad) - unsure} of {files} damaged"] if len(bad) > unsure else []
        said += [f"{unsure} of {files} in doubt"] if unsure else []
        return (
            f"{' and '.join(said)}, {lost} of {total}; an agent that needs them fetches them again"
        )
    by_size = sum(each.proof is Proof.SIZE for each in found)
    if not by_size:
        return f"{what}: as pushed, byte for byte"
    return (
        f"{what}: as pushed; of {by_size} only the size is known, for the hub has no catalog of "
        "them: `hub push` writes one"
    )


def _json(revisions: Sequence[StoredRevision], found: Sequence[Audited]) -> dict[str, object]:
    bad = [each for each in found if each.fault is not None]
    return {
        "api": 1,
        "ok": not bad,
        "revisions": len(revisions),
        "files": len(found),
        "size_bytes": sum(each.size_bytes for each in found),
        "by": {proof.value: sum(each.proof is proof for each in found) for proof in Proof},
        "bad": [
            {
                "prefix": each.prefix,
                "digest": each.digest,
                "path": each.path,
                "size_bytes": each.size_bytes,
                "cause": each.fault,
            }
            for each in bad
        ],
    }
