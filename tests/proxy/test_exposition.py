"""Several engines' pages as one: each sample is told apart, each metric is named once."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.proxy.exposition import Merged

PAGE = """
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# HELP e2e Latency.
# TYPE e2e histogram
e2e_bucket{le="0.5",model_name="m"} 1
e2e_bucket{le="+Inf",model_name="m"} 3
e2e_count{model_name="m"} 3
e2e_sum{model_name="m"} 1.5
# TYPE tokens_total counter
tokens_total 1.8e+06 1700000000000
loose{a="x\\"},y=",b="\\\\"} NaN
"""


def merged(*pages: tuple[str, str]) -> str:
    made = Merged()
    for model, page in pages:
        made.add(page, model=model, node="n")
    return made.text()


def test_every_sample_gets_its_model_and_node() -> None:
    text = merged(("a", PAGE))
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    assert len(samples) == 7
    assert all((s.labels["model"], s.labels["node"]) == ("a", "n") for s in samples)


def test_values_labels_and_times_stay_as_they_were() -> None:
    text = merged(("a", PAGE))
    assert 'tokens_total{model="a",node="n"} 1.8e+06 1700000000000\n' in text
    assert 'loose{model="a",node="n",a="x\\"},y=",b="\\\\"} NaN\n' in text


def test_a_metric_of_two_engines_is_named_once_with_all_its_samples() -> None:
    text = merged(("a", PAGE), ("b", PAGE))
    assert text.count("# TYPE e2e histogram") == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(families["e2e"].samples) == 8
    assert families["llamacpp:requests_processing"].type == "gauge"


def test_an_engines_own_model_label_goes_by_another_name() -> None:
    text = merged(("a", 'x{model="inner",node="i",le_model="k"} 1\n'))
    ours = 'x{model="a",node="n",exported_model="inner",exported_node="i",le_model="k"} 1\n'
    assert ours in text


def test_engines_that_disagree_on_a_type_make_it_untyped() -> None:
    text = merged(("a", "# TYPE x gauge\nx 1\n"), ("b", "# TYPE x counter\nx 2\n"))
    assert "# TYPE x untyped" in text


def test_a_model_name_cannot_break_out_of_its_label() -> None:
    text = merged(('a"}\n', "x 1\n"))
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels["model"] == 'a"}\n'


@pytest.mark.parametrize("page", ["<html>", "x", "x{ 1", 'x{a="b} 1', "x one", "1x 2"])
def test_what_is_no_page_adds_nothing(page: str) -> None:
    made = Merged()
    with pytest.raises(ValueError, match=r"."):
        made.add(f"good 1\n{page}\n", model="a", node="n")
    assert made.text() == ""
