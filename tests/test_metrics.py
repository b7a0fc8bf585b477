"""What is counted, and that nothing outlives its subject."""

from prometheus_client import generate_latest

from reconciler.metrics import Metrics
from reconciler.request_series import CLIENT_LEFT, code_label


def text(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def request(metrics: Metrics, model: str | None = None, *, code: int = 200) -> None:
    watch = metrics.watch_request()
    if model is not None:
        watch.at_model(metrics.of_model(model))
    watch.code = code
    watch.end()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_a_request_counts_for_its_model_and_code() -> None:
    metrics = Metrics(node="n")
    request(metrics, "a")
    request(metrics, "a", code=404)
    assert value(metrics, "xgen_requests_total", model="a", node="n", code="200") == 1
    assert value(metrics, "xgen_requests_total", model="a", node="n", code="404") == 1
    assert value(metrics, "xgen_request_duration_seconds_count", model="a") == 2


def test_a_request_for_no_known_model_has_no_model() -> None:
    metrics = Metrics(node="n")
    request(metrics, code=404)
    assert value(metrics, "xgen_requests_total", model="", node="n", code="404") == 1
    assert "request_duration_seconds_count{" not in text(metrics)


def test_a_client_that_left_tells_nothing_of_how_long_answers_take() -> None:
    metrics = Metrics(node="n")
    request(metrics, "a", code=CLIENT_LEFT)
    assert value(metrics, "xgen_requests_total", model="a", node="n", code="499") == 1
    assert value(metrics, "xgen_request_duration_seconds_count", model="a") == 0


def test_the_series_of_a_model_go_with_it() -> None:
    metrics = Metrics(node="n")
    for model in ("a", "b"):
        request(metrics, model)
    metrics.keep_only({"b"})
    assert 'model="a"' not in text(metrics)
    assert 'model="b"' in text(metrics)


def test_a_request_that_ends_after_its_model_brings_no_series_back() -> None:
    metrics = Metrics(node="n")
    watch = metrics.watch_request()
    watch.at_model(metrics.of_model("a"))
    metrics.keep_only(())
    watch.first_byte()
    watch.end()
    assert 'model="a"' not in text(metrics)


def test_made_up_status_codes_make_few_series() -> None:
    assert {code_label(code) for code in range(430, 500)} == {"431", "451", "499", "4xx"}
    assert code_label(999) == "9xx"
