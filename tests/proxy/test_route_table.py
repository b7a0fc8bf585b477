"""Which model answers, and the table of errors of design §9, as a pure function."""

from dataclasses import replace
from datetime import datetime

import pytest

from reconciler.plan.desired import ModelType
from reconciler.plan.phase import State
from reconciler.proxy.errors import Problem
from reconciler.proxy.route_table import Choice, build, choose
from reconciler.status import ModelDetail, ModelStatus, Revision
from tests.proxy.builders import model, status

NOW = datetime.fromisoformat("2026-11-29T10:00:00.000+00:00").timestamp()
LLM, EMBEDDING = ModelType.LLM, ModelType.EMBEDDING


def chosen(*models: ModelStatus, ask: str | None, wanted: ModelType = LLM) -> Choice:
    result = choose(build(status(*models)), ask, (wanted,), now=NOW)
    assert isinstance(result, Choice), result
    return result


def port_of(choice: Choice) -> int:
    assert choice.endpoint is not None
    return choice.endpoint.port


def refused(
    *models: ModelStatus, ask: str | None, wanted: ModelType = LLM, draining: bool = False
) -> Problem:
    result = choose(build(status(*models, draining=draining)), ask, (wanted,), now=NOW)
    assert isinstance(result, Problem), result
    return result


def header(problem: Problem, name: bytes) -> bytes | None:
    return dict(problem.headers).get(name)


def test_a_name_goes_to_its_endpoint() -> None:
    choice = chosen(model("a", port=1), model("b", port=2), ask="b")
    assert (choice.name, port_of(choice), choice.renamed) == ("b", 2, False)


def test_an_alias_goes_to_its_model_and_is_to_be_renamed() -> None:
    choice = chosen(model("a", port=1, aliases=("x", "y")), ask="y")
    assert (choice.name, choice.renamed) == ("a", True)


def test_no_name_means_the_only_one_of_the_type() -> None:
    choice = chosen(model("a", port=1), model("e", port=2, type=EMBEDDING), ask=None)
    assert (choice.name, choice.renamed) == ("a", False)


def test_no_name_passes_over_disabled_models() -> None:
    choice = chosen(model("a", port=1), model("off", state=State.DISABLED), ask=None)
    assert choice.name == "a"


def test_no_name_among_several_is_400_and_lists_them() -> None:
    problem = refused(model("b", port=1), model("a"), ask=None)
    assert (problem.status, problem.code, problem.param) == (400, "model_required", "model")
    assert "a, b" in problem.message


@pytest.mark.parametrize("models", [(), (model("e", port=1, type=EMBEDDING),)])
def test_no_name_and_nothing_of_the_type_is_503(models: tuple[ModelStatus, ...]) -> None:
    """Once a manifest is known, waiting does not mend it."""
    known = replace(status(*models), revision=Revision(applied="r1"))
    for node, retry in ((known, b"x-should-retry"), (status(*models), b"retry-after")):
        problem = choose(build(node), None, (LLM,), now=NOW)
        assert isinstance(problem, Problem)
        assert (problem.status, problem.code) == (503, "no_model_of_type")
        assert header(problem, retry) is not None


@pytest.mark.parametrize("ask", ["a", "", None])
def test_before_its_models_are_known_a_node_is_starting(ask: str | None) -> None:
    """OpenAI's clients repeat a 503, not a 404."""
    starting = replace(status(), unknown_because="has just started")
    problem = choose(build(starting), ask, (LLM,), now=NOW)
    assert isinstance(problem, Problem)
    assert (problem.status, problem.code) == (503, "node_starting")
    assert "this node has just started" in problem.message
    assert header(problem, b"retry-after") == b"5"
    assert header(problem, b"x-xgen-not-started") == b"1"


def test_what_runs_already_answers_while_the_other_models_are_not_known() -> None:
    starting = replace(status(model("a", port=1)), unknown_because="has just started")
    for ask in ("a", None):
        assert isinstance(choose(build(starting), ask, (LLM,), now=NOW), Choice)


def test_an_unknown_name_is_404_and_says_what_there_is() -> None:
    problem = refused(model("a", port=1, aliases=("x",)), ask="nope")
    assert (problem.status, problem.code, problem.type) == (
        404,
        "model_not_found",
        "invalid_request_error",
    )
    assert "a, x" in problem.message


def test_an_empty_name_is_an_unknown_one() -> None:
    assert refused(model("a", port=1), ask="").code == "model_not_found"


def test_an_embedding_model_asked_to_chat_is_400() -> None:
    """gpustack#2408: an embedding model was asked to chat (scenario 54)."""
    problem = refused(model("e", port=1, type=EMBEDDING), ask="e")
    assert (problem.status, problem.code, problem.model) == (400, "wrong_model_type", "e")
    assert "embedding" in problem.message


def test_a_wrong_type_is_said_before_not_ready() -> None:
    assert refused(model("e", type=EMBEDDING), ask="e").code == "wrong_model_type"


@pytest.mark.parametrize("state", [s for s in State if s not in (State.DISABLED, State.BLOCKED)])
def test_without_an_endpoint_it_is_503_with_state_reason_and_retry_after(state: State) -> None:
    """production-stack#619: requests were routed before the backend was ready (scenario 59)."""
    problem = refused(model("a", state=state, reason="because"), ask="a")
    assert (problem.status, problem.code, problem.type) == (503, "model_not_ready", "server_error")
    said = "its process is just ending" if state is State.LOADED else f"it is {state}: because"
    assert problem.message.endswith(said)
    assert header(problem, b"retry-after") == b"5"
    assert header(problem, b"x-xgen-not-started") == b"1"
    assert header(problem, b"x-should-retry") is None


@pytest.mark.parametrize(
    ("retry_at", "seconds"),
    [
        ("2026-11-29T10:00:12.300+00:00", b"13"),
        ("2026-11-29T10:00:00.000+00:00", b"1"),
        ("2026-11-29T09:59:30.000+00:00", b"1"),
        ("2026-11-29T10:05:00.000+00:00", b"60"),
    ],
)
def test_clients_come_again_when_the_next_try_is_due(retry_at: str, seconds: bytes) -> None:
    """Later than in 60 s OpenAI's clients do not wait."""
    reason = "exited with code 1; next try after 5 s"
    problem = refused(model("a", state=State.ERROR, reason=reason, retry_at=retry_at), ask="a")
    assert header(problem, b"retry-after") == seconds
    assert problem.message.count("next try") == 1


def test_a_blocked_model_tells_clients_not_to_insist() -> None:
    problem = refused(model("a", state=State.BLOCKED), ask="a")
    assert (problem.code, header(problem, b"x-should-retry")) == ("model_not_ready", b"false")
    assert header(problem, b"x-xgen-not-started") == b"1"


@pytest.mark.parametrize("state", [State.UNLOADING, State.STOPPED])
def test_what_the_manifest_does_not_want_any_more_tells_clients_not_to_insist(state: State) -> None:
    removed = model("a", state=state, detail=ModelDetail(enabled=False))
    problem = refused(removed, ask="a")
    assert (problem.code, header(problem, b"x-should-retry")) == ("model_not_ready", b"false")
    assert header(problem, b"retry-after") is None
    known_later = replace(status(removed), unknown_because="nobody has read the manifest yet")
    problem = choose(build(known_later), "a", (LLM,), now=NOW)  # type: ignore[assignment]
    assert header(problem, b"retry-after") == b"5"


def test_a_disabled_model_is_503_model_disabled() -> None:
    problem = refused(model("a", state=State.DISABLED), ask="a")
    assert (problem.status, problem.code) == (503, "model_disabled")
    assert header(problem, b"x-should-retry") == b"false"


def test_a_draining_node_takes_nothing() -> None:
    problem = refused(model("a", port=1), ask="a", draining=True)
    assert (problem.status, problem.code) == (503, "node_draining")


def test_what_serves_goes_on_serving_while_another_state_is_shown() -> None:
    assert port_of(chosen(model("a", port=1, state=State.UNLOADING), ask="a")) == 1
