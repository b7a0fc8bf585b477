"""A world of real backends, as the tests of `apply` have it."""

from tests.apply.conftest import world

__all__ = ["world"]
