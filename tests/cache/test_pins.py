"""Which files of the cache are needed, and by which models."""

from collections.abc import Callable

import pytest

from reconciler.cache.pins import Holding, Pins, pins_of


def holding(*paths: str, digest: str = "d") -> Holding:
    return Holding(prefix="gguf/org_name", digest=digest, paths=frozenset(paths))


def test_pins_name_every_model_that_needs_a_file() -> None:
    pins = pins_of([("a", [holding("x", "mmproj")]), ("b", [holding("y", "mmproj")]), ("c", [])])
    assert pins.models("gguf/org_name", "d", "mmproj") == {"a", "b"}
    assert pins.models("gguf/org_name", "d", "x") == {"a"}
    assert pins.models("gguf/org_name", "other", "x") == frozenset()
    assert pins.of_revision("gguf/org_name", "d") == {"a", "b"}


@pytest.mark.parametrize(
    ("later", "misses"),
    [
        (lambda: pins_of([("a", [holding("x")])]), False),
        (lambda: pins_of([("b", [holding("x", "y")])]), False),
        (lambda: pins_of([("a", [holding("x", digest="e")])]), True),
        (Pins, True),
    ],
)
def test_pins_miss_what_nobody_needs_any_more(later: Callable[[], Pins], misses: bool) -> None:
    assert pins_of([("a", [holding("x")])]).misses(later()) is misses
