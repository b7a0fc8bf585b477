"""Whatever answers, it is read or refused, and what is shown of it is JSON."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.desired import Affinity
from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.plan.phase import State
from reconciler.proxy.peers.document import Told, Unchanged, Unreadable, read
from reconciler.proxy.peers.load import ModelLoad
from reconciler.proxy.peers.peer import Latest, Peer
from reconciler.proxy.peers.shown import Shown
from reconciler.proxy.unready import model_not_ready, of_peer
from tests.proxy.peers.stub_peer import model_entry

_FIELDS = (
    *("node", "version", "agent_id", "pod_name", "pod_ip", "draining", "loop", "revision", "gpu"),
    *("models", "loaded_models", "unchanged", "load", "api", "conditions", "heard_seconds"),
)
_OF_MODELS = ("name", "model_type", "state", "aliases", "enabled", "in_flight", "load", "affinity")
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_ENTRIES = st.dictionaries(st.sampled_from(_OF_MODELS), _SCALARS | st.just("llm"))
_VALUES = st.recursive(
    _SCALARS | _ENTRIES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_ANSWERS = st.dictionaries(st.sampled_from(_FIELDS), _VALUES).map(
    lambda fields: {"node": "n", **fields}
)
_PEER = Peer(address=Address(host="::1", port=1), document=b"", reachable=True)
_REQUIRED = {"node", "reachable", "reason", "models", "loaded_models", "gpu", "heard_seconds"}


def _read(**fields: Any) -> Told:
    told = read(json.dumps({"node": "n", **fields}).encode())
    assert isinstance(told, Told)
    return told


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(Unreadable):
        read(body)


@given(_ANSWERS, st.booleans())
def test_what_is_read_of_any_object_can_be_shown(fields: dict[str, Any], reachable: bool) -> None:
    try:
        told = read(json.dumps(fields).encode())
    except Unreadable:
        return
    if isinstance(told, Unchanged):
        return
    because = None if reachable else "why"
    peer = Peer(
        address=Address(host="::1", port=1),
        document=told.document,
        node=told.node,
        reachable=reachable,
        because=because,
        models=told.models,
    )
    latest = Latest(heard_at=1.0, loads=told.loads)
    shown = json.loads(b"".join(Shown().of(peer, latest, now=3.5)))
    assert shown.keys() >= _REQUIRED
    assert (shown["reachable"], shown["reason"], shown["heard_seconds"]) == (
        reachable,
        because,
        2.5,
    )
    assert reachable or not shown["loaded_models"]
    assert len(told.models) + told.unread >= len(shown["models"])


@given(st.lists(_VALUES, max_size=5), st.integers(0, 5))
def test_no_entry_loses_another(others: list[Any], at: int) -> None:
    entries = [*others[:at], model_entry("mine"), *others[at:]]
    told = _read(models=entries, loaded_models=[model_entry("mine")])
    assert told.models[ModelName("mine")].serves


def test_an_older_release_is_read_with_defaults() -> None:
    told = _read(models=[model_entry("llm", in_flight=3)], loaded_models=[])
    model = told.models[ModelName("llm")]
    assert (told.version, told.agent_id) == (None, None)
    assert (model.enabled, model.affinity, model.serves) == (True, Affinity.NONE, False)
    assert told.loads == {"llm": ModelLoad(in_flight=3)}


def test_a_state_of_a_later_release_counts_as_pending() -> None:
    entry = model_entry("llm", state="hibernating")
    assert _read(models=[entry]).models[ModelName("llm")].state is State.PENDING


def test_free_memory_is_that_of_the_gpus_that_can_be_used() -> None:
    devices = [
        {"memory_free_bytes": 5},
        {"memory_free_bytes": None},
        {"memory_free_bytes": 7, "problem": "it is lost"},
    ]
    assert _read(gpu={"devices": devices}).gpu_free_bytes == 5
    assert _read(gpu={"devices": []}).gpu_free_bytes is None


@pytest.mark.parametrize("text", ["\\ud800", "\\u0000", "é"])
def test_odd_text_is_shown(text: str) -> None:
    body = f'{{"node": "n", "models": [], "note": "{text}"}}'.encode()
    try:
        told = read(body)
    except Unreadable:
        return
    assert isinstance(told, Told)
    assert "note" in json.loads(told.document)


def test_figures_that_nobody_could_count_with_are_not_told() -> None:
    load = {"in_flight": 10**400, "waiting": 1}
    told = _read(models=[model_entry(max_in_flight=0, load=load)])
    assert (told.models[ModelName("llm")].max_in_flight, told.loads) == (None, {})
    news = read(json.dumps({"unchanged": True, "load": {"llm": load}}).encode())
    assert news.loads == {"llm": ModelLoad(waiting=1)}


@pytest.mark.parametrize("moment", ["soon", "2026-12-01", "0001-01-01T00:00:00", 5])
def test_a_next_try_at_no_moment_counts_as_none(moment: object) -> None:
    model = _read(models=[model_entry(state="error", retry_at=moment)]).models[ModelName("llm")]
    answer = model_not_ready("llm", [of_peer(_PEER, model)], now=0.0)
    assert (answer.status, model.retry_at) == (503, None)


def test_a_next_try_is_kept() -> None:
    entry = model_entry(state="error", retry_at="1970-01-01T00:00:20Z")
    answer = model_not_ready(
        "llm", [of_peer(_PEER, _read(models=[entry]).models[ModelName("llm")])], now=0.0
    )
    assert (b"retry-after", b"20") in answer.headers


@pytest.mark.parametrize("name", ["n\r\nx-other: 1", "n\x00", "nœud", ""])
def test_what_cannot_stand_in_a_header_is_no_name(name: str) -> None:
    assert _read(models=[model_entry(name)]).unread == 1
    with pytest.raises(Unreadable):
        _read(node=name)


def test_a_loaded_model_without_a_name_loses_only_itself() -> None:
    told = _read(models=[model_entry()], loaded_models=[{"name": ["llm"]}, model_entry()])
    assert told.models[ModelName("llm")].serves
