"""Of which models the hub is asked something, by what was seen of them (PURE)."""

from collections.abc import Callable, Collection, Mapping

from reconciler.apply.comparisons import Doubt
from reconciler.apply.pushes import Watched
from reconciler.loop.books import Books
from reconciler.loop.observation import Looks, Seen
from reconciler.plan.desired import DesiredModel, Format, ModelSpec, Refresh
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import FilesCached


def unfetched(looks: Looks) -> Mapping[ModelName, ModelSpec]:
    """Their format and how large they are is, before they are fetched."""
    return {
        name: look.desired.spec
        for name, look in looks.items()
        if look.files is None and look.desired.enabled
    }


def without_backend(looks: Looks) -> Mapping[ModelName, ModelSpec]:
    """Models in safetensors that nothing here can run: a GGUF of theirs would do."""
    return {
        name: look.desired.spec
        for name, look in looks.items()
        if look.desired.enabled
        and look.assessment.no_backend is not None
        and look.assessment.format is Format.SAFETENSORS
    }


def doubts(seen: Seen, looks: Looks, books: Books) -> Mapping[ModelName, Doubt]:
    """Files that may be bad, for all one knows: the hub may hold better ones by now."""
    proven = {
        view.instance.files_digest
        for each in seen.views.values()
        for view in each
        if view.loaded_at is not None
    }
    return {
        name: Doubt(spec=look.desired.spec, digest=look.files.digest)
        for name, look in looks.items()
        if look.files is not None
        and proven.isdisjoint((look.files.digest, look.files.former))
        and (look.assessment.bad_files or _never_loads(look.desired, look.files, books))
    }


def watched(
    looks: Looks, doubted: Collection[ModelName], *, suspended: Callable[[ModelName], bool]
) -> Mapping[ModelName, Watched]:
    """What the hub may hold a newer push of. What is suspended is told of it, and no more."""
    return {
        name: Watched(
            spec=look.desired.spec,
            digest=look.files.digest,
            refresh=Refresh.NEVER if suspended(name) else look.desired.refresh,
            limit_seconds=look.desired.timeouts.download,
            gives_way=not look.desired.keep_last_good,
        )
        for name, look in looks.items()
        if look.files is not None
        and look.files.revision is not None
        and look.desired.spec.digest is None
        and name not in doubted
    }


def damaged(looks: Looks, books: Books) -> Mapping[ModelName, ModelSpec]:
    """What is blocked until the hub holds other files."""
    return {
        name: look.desired.spec
        for name, look in looks.items()
        if look.files is None
        and (failure := books.failure_of(look.desired, look.files)) is not None
        and failure.damaged
    }


def _never_loads(model: DesiredModel, files: FilesCached, books: Books) -> bool:
    failed = books.failure_of(model, files)
    return failed is not None and failed.during == "load" and not failed.ever_loaded
