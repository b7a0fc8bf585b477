"""Folders of an older installation, or of somebody else's, where our links belong."""

import structlog

from reconciler.cache.choose import Wish
from reconciler.cache.in_place import find_in_place
from reconciler.cache.layout import Layout
from reconciler.errors import Transient, XgenError
from reconciler.plan.desired import ModelSpec
from reconciler.plan.observed import FilesCached

_log = structlog.get_logger(__name__)


class StandingFolders:
    """They serve as they are while there is no better. `has_hub`: which may tell more of them."""

    def __init__(self, layout: Layout, *, has_hub: bool) -> None:
        self._layout = layout
        self._has_hub = has_hub
        self._used: set[str] = set()

    def find(self, spec: ModelSpec, prefix: str, wish: Wish) -> FilesCached | None:
        """The one of a prefix, where no hub can tell more about it."""
        standing = self._layout.standing(prefix)
        if standing is None or spec.digest is not None:
            return None
        if not self._has_hub or prefix in self._used or standing.is_symlink():
            return find_in_place(standing, wish)
        return None

    def use(self, spec: ModelSpec, prefix: str, wish: Wish, cause: XgenError) -> FilesCached:
        """The one of a prefix, for now; where there is none that will do, `cause` is raised."""
        standing = self._layout.standing(prefix)
        if standing is None or spec.digest is not None:
            raise cause
        found = find_in_place(standing, wish)
        self._used.add(prefix)
        _log.warning("models folder is used as it is", prefix=prefix, cause=str(cause))
        return found

    def use_unmovable(self, spec: ModelSpec, prefix: str, wish: Wish) -> FilesCached | None:
        cause = Transient(f"cannot take in {self._layout.link(prefix)}: it cannot be moved")
        try:
            return self.use(spec, prefix, wish, cause)
        except XgenError:
            return None  # not complete either: fetched beside it
