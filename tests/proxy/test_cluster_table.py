"""Which replicas may answer, of this node and of its peers, as a pure function."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.desired import Elsewhere, ModelType
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.peering import Address
from reconciler.plan.phase import State
from reconciler.proxy import model_list
from reconciler.proxy.errors import NOT_STARTED, UNSURE_SECONDS, Problem
from reconciler.proxy.peers.peer import Peer, Peers
from reconciler.proxy.route_table import Choice, RouteTable, build, choose
from reconciler.status import ModelStatus, Revision, Status
from tests.proxy.builders import model, status
from tests.proxy.fleet import peer_model

LLM, EMBEDDING = ModelType.LLM, ModelType.EMBEDDING
NAMES = ("a", "b", "x", "y")


def peer(node: str, *models: ModelStatus, port: int = 8000, **more: object) -> Peer:
    fields: dict[str, object] = {"reachable": True, **more}
    made = Peer(
        address=Address(host=node, port=port),
        document=b"",
        node=NodeName(node),
        models={each.name: peer_model(each) for each in models},
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def ask(
    own: Status, *peers: Peer, named: str | None = "a", wanted: ModelType = LLM
) -> Choice | Problem:
    return choose(build(own, Peers(all=peers)), named, (wanted,), now=0.0)


def nodes_of(choice: Choice | Problem) -> list[str]:
    assert isinstance(choice, Choice), choice
    here = ["here"] if choice.endpoint is not None else []
    return [*here, *(str(each.peer.node) for each in choice.route.serving)]


def refused(choice: Choice | Problem) -> Problem:
    assert isinstance(choice, Problem), choice
    return choice


def test_all_that_serve_may_answer() -> None:
    peers = (
        peer("b", model("a", port=1)),
        peer("c", model("a", state=State.LOADING)),
        peer("d", model("a", port=1), draining=True),
        peer("e", model("a", port=1), reachable=False, because="gone"),
        peer("f", model("a", port=1)),
    )
    assert nodes_of(ask(status(model("a", port=1)), *peers)) == ["here", "b", "f"]
    assert nodes_of(ask(status(model("a")), *peers)) == ["b", "f"]
    assert nodes_of(ask(status(), *peers)) == ["b", "f"]
    assert nodes_of(ask(status(model("a", port=1), draining=True), *peers)) == ["b", "f"]


def test_an_alias_that_only_a_peer_knows_is_replaced() -> None:
    choice = ask(status(), peer("b", model("a", port=1, aliases=("x",))), named="x")
    assert isinstance(choice, Choice)
    assert (choice.name, choice.renamed) == ("a", True)


@pytest.mark.parametrize("order", [("b", "c"), ("c", "b")])
def test_an_alias_that_any_node_knows_leads_to_all_replicas(order: tuple[str, str]) -> None:
    """They are asked by the model's name, so some of them may not have read of the alias yet."""
    plain, named = model("a", port=1), model("a", port=1, aliases=("x",))
    first, second = peer(order[0], plain), peer(order[1], named)
    both = [str(each.node) for each in (first, second)]
    assert nodes_of(ask(status(plain), first, second, named="x")) == ["here", *both]
    assert nodes_of(ask(status(), first, second, named="x")) == both
    assert nodes_of(ask(status(model("a")), first, second, named="x")) == both
    choice = ask(status(named), first, named="x")
    assert isinstance(choice, Choice)
    assert choice.renamed


def test_this_nodes_manifest_says_what_an_alias_means_that_others_have_not_read() -> None:
    """It moves from `one` to `two`, of which this node has neither."""
    before = peer("b", model("one", port=1, aliases=("x",))), peer("c", model("two", port=1))
    moved = Elsewhere(name=ModelName("two"), reason="why", aliases=("x",), nodes=("c",))
    assert nodes_of(ask(status(), *before, named="x")) == ["b"]
    assert nodes_of(ask(replace(status(), elsewhere=(moved,)), *before, named="x")) == ["c"]


def test_a_name_counts_before_an_alias_of_a_peer() -> None:
    own, alias = model("a", port=1), model("a", port=1, aliases=("y",))
    assert nodes_of(
        ask(status(own), peer("b", alias), peer("c", model("y", port=2)), named="y")
    ) == ["c"]
    assert nodes_of(ask(status(own), peer("b", alias), named="y")) == ["here", "b"]


def test_an_alias_of_what_is_of_another_type_there_is_none_here() -> None:
    other = peer("b", model("a", type=EMBEDDING, port=1, aliases=("x",)))
    assert refused(ask(status(model("a", port=1)), other, named="x")).code == "model_not_found"


def test_an_alias_means_rather_what_is_not_disabled() -> None:
    off = peer("b", model("a", state=State.DISABLED, aliases=("x",)))
    on = peer("c", model("y", port=1, aliases=("x",)))
    assert nodes_of(ask(status(), off, on, named="x")) == ["c"]
    assert refused(ask(status(), off, named="x")).code == "model_disabled"


def test_this_nodes_manifest_wins_a_clash() -> None:
    own = status(model("a", port=1, aliases=("x",)))
    other = peer("b", model("x", port=2), model("y", port=3, aliases=("a",)))
    assert nodes_of(ask(own, other, named="x")) == ["here"]
    assert nodes_of(ask(own, other, named="a")) == ["here"]
    assert nodes_of(ask(own, other, named="y")) == ["b"]


def test_what_is_of_another_type_elsewhere_is_no_replica() -> None:
    assert nodes_of(ask(status(model("a", port=1)), peer("b", model("a", type=EMBEDDING)))) == [
        "here"
    ]


def test_of_peers_with_different_types_the_first_counts() -> None:
    others = (peer("b", model("a", port=1, type=EMBEDDING)), peer("c", model("a", port=1)))
    assert nodes_of(ask(status(), *others, wanted=EMBEDDING)) == ["b"]
    assert refused(ask(status(), *others)).code == "wrong_model_type"


def test_the_only_one_of_a_type_is_meant_of_the_cluster() -> None:
    here, there = model("a", port=1), model("b", port=1)
    assert nodes_of(ask(status(here), peer("b", here), named=None)) == ["here", "b"]
    assert nodes_of(ask(status(), peer("b", here), named=None)) == ["b"]
    problem = refused(ask(status(here), peer("b", there), named=None))
    assert (problem.code, "a, b" in problem.message) == ("model_required", True)


def test_disabled_here_or_everywhere_is_disabled() -> None:
    off, on = model("a", state=State.DISABLED), model("a", port=1)
    problem = refused(ask(status(off), peer("b", on)))
    assert problem.code == "model_disabled"
    assert problem.message.endswith("in the manifest of this node; by theirs it serves on b")
    problem = refused(ask(status(), peer("b", off)))
    assert problem.code == "model_disabled"
    assert problem.message.endswith("it is disabled in the manifest")
    assert nodes_of(ask(status(), peer("b", off), peer("c", on))) == ["c"]


def test_not_ready_names_the_nodes_the_nearest_first() -> None:
    problem = refused(
        ask(
            status(model("a", state=State.BLOCKED, reason="no room")),
            peer("b", model("a", state=State.LOADING, reason="a while")),
            peer("c", model("a", port=1), reachable=False, because="does not answer"),
            peer("d", model("a", port=1), draining=True),
        )
    )
    assert problem.message == (
        "cannot answer for model 'a': node d is draining; on b it is loading: a while; "
        "on node-a it is blocked: no room; node c cannot be reached: does not answer"
    )
    assert dict(problem.headers)[b"retry-after"] == b"5"


def test_the_only_replica_is_named_with_its_node_unless_it_is_here() -> None:
    waits = model("a", state=State.LOADING, reason="a while")
    lost = peer("c", model("a", port=1), reachable=False, because="does not answer")
    said = [
        refused(ask(status(waits))).message,
        refused(ask(status(), peer("b", waits))).message,
        refused(ask(status(), lost)).message,
    ]
    assert [each.removeprefix("cannot answer for model 'a': ") for each in said] == [
        "it is loading: a while",
        "on b it is loading: a while",
        "node c cannot be reached: does not answer",
    ]


def test_clients_come_again_for_the_soonest_try() -> None:
    late, soon = "1970-01-01T00:00:50+00:00", "1970-01-01T00:00:20+00:00"
    problem = refused(
        ask(
            status(model("a", state=State.ERROR, retry_at=late)),
            peer("b", model("a", state=State.ERROR, retry_at=soon)),
        )
    )
    assert dict(problem.headers)[b"retry-after"] == b"20"


def test_blocked_on_all_nodes_tells_clients_not_to_insist() -> None:
    blocked = model("a", state=State.BLOCKED)
    problem = refused(ask(status(blocked), peer("b", blocked)))
    assert dict(problem.headers)[b"x-should-retry"] == b"false"


def test_draining_with_nobody_else_is_draining() -> None:
    own = status(model("a", port=1), draining=True)
    assert refused(ask(own, peer("b", model("a")))).code == "node_draining"
    assert refused(ask(own)).code == "node_draining"


def test_many_replicas_do_not_fill_the_message() -> None:
    peers = (peer(f"n{number}", model("a")) for number in range(50))
    problem = refused(ask(status(), *peers))
    assert "and on 45 more nodes" in problem.message


@st.composite
def models(draw: st.DrawFn, *, port: int) -> tuple[ModelStatus, ...]:
    """Of one node: no name or alias stands twice."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    found: list[ModelStatus] = []
    for name in names:
        alias = draw(st.sampled_from((None, *NAMES)))
        taken = {each for other in found for each in (other.name, *other.aliases)} | set(names)
        state = draw(st.sampled_from(State))
        serves = state is State.LOADED and draw(st.booleans())
        found.append(
            model(
                name,
                type=draw(st.sampled_from((LLM, EMBEDDING))),
                state=state,
                port=port if serves else None,
                aliases=() if alias is None or alias in taken else (alias,),
            )
        )
    return tuple(found)


@st.composite
def known(draw: st.DrawFn) -> tuple[Status, Peers]:
    own = status(*draw(models(port=1)), draining=draw(st.booleans()))
    peers = tuple(
        peer(
            f"n{number}",
            *draw(models(port=2)),
            reachable=draw(st.booleans()),
            draining=draw(st.booleans()),
            because="gone",
        )
        for number in range(draw(st.integers(0, 3)))
    )
    return own, Peers(all=peers)


def tables() -> st.SearchStrategy[RouteTable]:
    return known().map(lambda each: build(*each))


@given(known(), known(), st.sets(st.integers(0, 2)))
def test_what_an_older_table_is_good_for_changes_nothing(
    old: tuple[Status, Peers], new: tuple[Status, Peers], kept: set[int]
) -> None:
    status_now, peers = new[0], list(new[1].all)
    for place in kept & set(range(min(len(peers), len(old[1].all)))):
        peers[place] = old[1].all[place]
    now = Peers(all=tuple(peers))
    assert build(status_now, now, build(*old)) == build(status_now, now)


@given(tables(), st.sampled_from((None, *NAMES, "nobody")), st.sampled_from((LLM, EMBEDDING)))
def test_whoever_is_chosen_can_answer(
    table: RouteTable, named: str | None, wanted: ModelType
) -> None:
    found = choose(table, named, (wanted,), now=0.0)
    if isinstance(found, Problem):
        assert found.status in (400, 404, 503)
        assert found.status != 503 or NOT_STARTED in found.headers
        return
    route, own = found.route, table.here.get(found.name)
    assert route.type is wanted
    assert found.endpoint is not None or route.serving
    assert found.endpoint is None or not table.status.draining
    assert (own is None) == (route.here is None)
    for each in route.serving:
        assert each.model.serves
        assert each.model.type is wanted
        assert each.model.name == found.name
        assert each.peer.reachable
        assert not each.peer.draining
    if named is None:
        assert table.by_type[wanted] == (route,)


@given(tables())
def test_every_name_leads_somewhere_and_this_nodes_names_lead_to_its_models(
    table: RouteTable,
) -> None:
    for name, own in table.here.items():
        assert table.by_name[name].here is own
    every = {name for peer in table.peers.all for name in peer.models} | table.here.keys()
    for name, found in table.by_name.items():
        replicas = (each for of_peer in table.remotes.values() for each in of_peer)
        called = {name, *(each.model.name for each in replicas if name in each.model.aliases)}
        assert name in table.here or found.name in called
    assert every <= table.by_name.keys()
    assert [each["id"] for each in listed(table)] == sorted(table.by_name)
    for each in listed(table):
        route = table.by_name[str(each["id"])]
        own_serves = route.here is not None and route.here.endpoint is not None
        own_takes = own_serves and not table.status.draining
        assert each["ready"] == (route.enabled and (own_takes or bool(route.serving)))


@given(tables(), st.sampled_from((None, *NAMES, "nobody")))
def test_without_peers_it_is_as_if_there_were_no_cluster(
    table: RouteTable, named: str | None
) -> None:
    alone = build(table.status)
    assert all(not route.away for route in alone.routes)
    if not table.peers.all:
        one, other = (choose(each, named, (LLM,), now=0.0) for each in (table, alone))
        assert one == other


def listed(table: RouteTable) -> list[dict[str, object]]:
    entries = model_list.model_list(table)["data"]
    assert isinstance(entries, list)
    return entries


@pytest.mark.parametrize("state", State)
def test_a_list_shows_the_state_that_is_nearest_to_serving(state: State) -> None:
    table = build(status(model("a", state=State.DISABLED)), Peers(all=(peer("b", model("a")),)))
    assert listed(table)[0]["state"] is State.LOADING
    table = build(status(model("a", state=state)), Peers(all=(peer("b", model("a", port=1)),)))
    assert listed(table)[0]["state"] is State.LOADED


def test_what_only_a_draining_node_has_is_not_ready() -> None:
    drains = replace(status(model("a", port=1)), draining=True)
    assert [each["ready"] for each in listed(build(drains))] == [False]
    others = Peers(all=(peer("b", model("a", port=1)),))
    assert [each["ready"] for each in listed(build(drains, others))] == [True]
    ends = replace(drains, closed=True)
    assert [each["ready"] for each in listed(build(ends, others))] == [False]


@given(
    st.lists(st.tuples(st.sets(st.sampled_from(NAMES)), st.integers(0, 100)), max_size=8),
    st.sampled_from((*NAMES, "nobody")),
)
def test_a_name_that_has_gone_is_unknown_after_a_minute(
    steps: list[tuple[set[str], int]], named: str
) -> None:
    table, now, gone_at = build(status()), 1000.0, None
    for names, seconds in steps:
        now += seconds
        had = named in table.by_name
        table = build(status(*(model(name) for name in names)), before=table, now=now)
        gone_at = now if had else gone_at
        if named in table.by_name:
            gone_at = None
        code = refused(choose(table, named, (LLM,), now=now)).code
        known = gone_at is not None and now - gone_at < UNSURE_SECONDS
        assert code == ("model_not_ready" if named in names or known else "model_not_found")
    assert len(table.gone) <= len(NAMES)


@pytest.mark.parametrize(
    ("there", "code", "said"),
    [
        ((), "model_not_found", "a': it is in the manifest, and does not run here (why)"),
        (("c",), "model_not_found", "and runs at no node (why); no known node is called zed"),
        (("zed",), "model_not_ready", "the manifest has it for zed, where it is not known yet"),
    ],
)
def test_a_model_of_the_manifest_that_no_node_has_is_told_so(
    there: tuple[str, ...], code: str, said: str
) -> None:
    other = Elsewhere(name=ModelName("a"), reason="why", aliases=("b",), nodes=("zed",))
    own = replace(status(), elsewhere=(other,), revision=Revision(applied="new"))
    peers = [peer(node, applied="old") for node in there]
    problem = refused(ask(own, *peers))
    assert (problem.code, NOT_STARTED in problem.headers) == (code, True)
    assert problem.message.endswith(said)
    by_alias = refused(ask(own, *peers, named="b"))
    assert (by_alias.code, by_alias.headers) == (problem.code, problem.headers)
    assert by_alias.message.endswith(said.replace("a': it is", "b': it means a, which is"))
