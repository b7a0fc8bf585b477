"""The errors that we make: each is documented, and none that we do not make."""

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from reconciler.plan.desired import ModelType
from reconciler.plan.phase import State
from reconciler.proxy import cluster_errors, errors, unheard, unready
from reconciler.proxy.errors import Problem, Typed
from reconciler.proxy.peers import problems
from reconciler.proxy.peers.peer import Peer, Unheard
from reconciler.proxy.unready import Unready
from tests.proxy.builders import model
from tests.proxy.pair import peer

_DOCS = Path(__file__).parents[2] / "docs/http.md"
_VALUES: dict[object, Any] = {
    str: "x",
    int: 1,
    float: 1.0,
    bool: False,
    tuple[str, ...]: ("a", "b"),
    Sequence[str]: ("a", "b"),
    tuple[ModelType, ...]: (ModelType.LLM,),
    Sequence[Unheard]: (Unheard(cause="x has not answered", since="1970-01-01T00:00:00Z"),),
}


def _problems() -> dict[str, Problem]:
    """One of each function that makes some, and of each state of a replica."""
    makers: dict[str, Callable[..., Problem]] = {
        f"{module.__name__}.{name}": maker
        for module in (errors, cluster_errors, problems, unheard, unready)
        for name, maker in inspect.getmembers(module, inspect.isfunction)
        if get_type_hints(maker).get("return") is Problem and maker.__module__ == module.__name__
    }
    made = {}
    for name, maker in makers.items():
        hints = get_type_hints(maker)
        wanted = {each: hints[each] for each in inspect.signature(maker).parameters}
        for state in State if Sequence[Unready] in wanted.values() else [State.LOADING]:
            replica = unready.here(model(state=state), "node-a", goes=False)
            values = {**_VALUES, Typed: model(), Peer: peer(1), Sequence[Unready]: (replica,)}
            made[f"{name} {state}"] = maker(**{each: values[wanted[each]] for each in wanted})
    return made


_ALL = _problems()


def _documented() -> set[tuple[int, str]]:
    section = _DOCS.read_text(encoding="utf-8").partition("## Errors\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d{3}) \| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
    return {(int(status), code) for status, codes in rows for code in re.findall(r"\w+", codes)}


def test_every_code_is_documented_and_no_other() -> None:
    assert {(problem.status, problem.code) for problem in _ALL.values()} == _documented()


@pytest.mark.parametrize("name", _ALL)
def test_an_error_says_what_could_not_be_done(name: str) -> None:
    assert _ALL[name].message.startswith("cannot ")


@pytest.mark.parametrize("name", [name for name, each in _ALL.items() if each.status in (429, 503)])
def test_who_may_come_again_is_told_when(name: str) -> None:
    """OpenAI's clients pass over more than 60 s, since version 3 they give up above 120 s."""
    given = dict(_ALL[name].headers)
    assert errors.NOT_STARTED in _ALL[name].headers
    assert (b"retry-after" in given) != (b"x-should-retry" in given)
    assert 0 < int(given.get(b"retry-after", b"1")) <= 60
    assert given.get(b"x-should-retry", b"false") == b"false"
