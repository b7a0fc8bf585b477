"""Budgets as people write them."""

import pytest

from reconciler.cache.budget import Budget, headroom_bytes, parse_budget

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("200GiB", 200 * GIB),
        ("500GB", 500 * 10**9),
        ("1.5 TiB", 3 * 2**39),
        ("100g", 100 * 10**9),
        ("64MiB", 2**26),
        ("123", 123),
        ("80%", 800),
        ("12.5 %", 125),
    ],
)
def test_a_budget_is_a_size_or_a_share_of_the_disk(text: str, size_bytes: int) -> None:
    assert parse_budget(text).of(1000) == size_bytes


@pytest.mark.parametrize("text", ["", "much", "-5GB", "0", "0%", "101%", "5 XB", "GiB", "5GiB%"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|share"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("disk", "stays_free"),
    [(500 * GIB, 5 * GIB), (50 * GIB, GIB), (5 * GIB, GIB // 2)],
)
def test_the_headroom_goes_by_the_disk(disk: int, stays_free: int) -> None:
    assert headroom_bytes(disk) == stays_free


def test_a_size_asks_no_disk() -> None:
    assert Budget(size_bytes=7).of(0) == 7
