"""Counting the requests for a model at a node: a series of metrics, and one request as it goes."""

import time
from http import HTTPStatus

from prometheus_client import Counter, Histogram

CLIENT_LEFT = 499
"""As nginx has it: the client did not wait for its answer."""

_CODES = frozenset(HTTPStatus) | {CLIENT_LEFT, 529}


class RequestSeries:
    """One model's counters on one node, bound once: a request looks no labels up."""

    __slots__ = ("_codes", "_counter", "_gone", "_labels", "first_byte", "whole")

    def __init__(
        self,
        counter: Counter,
        labels: tuple[str, str],
        first_byte: Histogram | None,
        whole: Histogram | None,
    ) -> None:
        self._counter = counter
        self._labels = labels
        self._codes: dict[int, Counter] = {}
        self._gone = False
        self.first_byte = first_byte
        self.whole = whole

    def count(self, code: int) -> None:
        child = self._codes.get(code)
        if child is None:
            if self._gone:  # a request that ends after its model brings no series back
                return
            child = self._codes[code] = self._counter.labels(*self._labels, code_label(code))
        child.inc()

    def ended(self) -> float:
        """How many requests were counted."""
        found = (metric for child in self._codes.values() for metric in child.collect())
        return sum(sample.value for metric in found for sample in metric.samples)

    def forget(self) -> None:
        self._gone = True
        for code in self._codes:
            self._counter.remove(*self._labels, code_label(code))


class RequestWatch:
    """One request: begun when it is made, ended once, whatever happened."""

    __slots__ = ("_asked", "_began", "_series", "code")

    def __init__(self, series: RequestSeries) -> None:
        self._series = series
        self._asked = False
        self._began = time.perf_counter()
        self.code = HTTPStatus.INTERNAL_SERVER_ERROR.value
        """Of the answer, once it is known."""

    def about(self, series: RequestSeries) -> None:
        """It means this model."""
        self._series = series

    def at_model(self, series: RequestSeries) -> None:
        """It goes to this model's backend: how long it takes counts from here on."""
        self._series = series
        self._asked = True

    def first_byte(self) -> None:
        if self._series.first_byte is not None:
            self._series.first_byte.observe(time.perf_counter() - self._began)

    def end(self) -> None:
        self._series.count(self.code)
        if self._asked and self._series.whole is not None and self.code != CLIENT_LEFT:
            self._series.whole.observe(time.perf_counter() - self._began)


def code_label(code: int) -> str:
    """A known status code as it is, others by their class: engines may make some up."""
    return str(code) if code in _CODES else f"{code // 100}xx"
