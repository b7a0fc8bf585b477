"""What is published, and when."""

from dataclasses import replace

from reconciler.events import Journal
from reconciler.loop.chronicle import Chronicle
from reconciler.loop.drifts import Drifts
from reconciler.loop.intent import Understanding
from reconciler.loop.publisher import Publisher
from reconciler.loop.report import ModelFacts
from reconciler.plan.actions import Outlook
from reconciler.plan.desired import Desired, DesiredModel, ModelSpec
from reconciler.plan.ids import ModelName, NodeName, Place, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.phase import State
from reconciler.status import JUST_STARTED, Revision, Status

M = ModelName("m")


class Clock:
    """Stands still until it is moved."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self, moment: float) -> str:
        return f"t{moment:g}"


class Published(list[Status]):
    def publisher(self, clock: Clock | None = None) -> Publisher:
        journal = Journal(node=NodeName("n"), now=lambda: "t")
        return Publisher(
            status=Status(node=NodeName("n")),
            publish=self.append,
            clock=clock or Clock(),
            chronicle=Chronicle(journal),
            drifts=Drifts(journal, clock or Clock()),
        )


def desired(*, suspend: bool = False) -> Desired:
    model = DesiredModel(
        name=M,
        spec=ModelSpec(source="gguf/a_b"),
        spec_hash=SpecHash("1:a"),
        place=Place(file="a.yaml", line=1, column=1),
    )
    return Desired(node=NodeName("n"), revision="r", models=(model,), suspend=suspend)


def failure(count: int) -> Failure | None:
    if not count:
        return None
    return Failure(
        spec_hash=SpecHash("1:a"), files_digest=None, at=0.0, count=count, reason="so", during="run"
    )


async def report(
    publisher: Publisher, state: State, failures: int = 0, *, suspend: bool = False
) -> None:
    wanted = desired(suspend=suspend)
    await publisher.report(
        [Outlook(model=M, state=state, reason="so")],
        {M: ModelFacts(desired=wanted.models[0], failure=failure(failures))},
        Understanding(desired=wanted, location="/x", whole=True),
    )


async def test_the_same_status_is_published_once() -> None:
    published, clock = Published(), Clock()
    publisher = published.publisher(clock)
    await report(publisher, State.CACHING)
    clock.now = 5.0
    await report(publisher, State.CACHING)
    assert [status.version for status in published] == [1]


async def test_many_models_are_published_at_once_and_what_is_as_before_is_the_same_value() -> None:
    """All that looks at the status tells by that in no time that nothing is new."""
    published, clock = Published(), Clock()
    publisher = published.publisher(clock)
    names = [ModelName(f"m{number:03}") for number in range(120)]
    (wanted,) = desired().models
    facts = {name: ModelFacts(desired=replace(wanted, name=name)) for name in names}
    for moved in (State.CACHING, State.LOADING):
        clock.now += 5.0
        outlooks = [Outlook(model=name, state=State.CACHING, reason="so") for name in names]
        outlooks[7] = replace(outlooks[7], state=moved)
        await publisher.report(outlooks, facts, Understanding(location="/x", whole=True))
    first, second = published
    assert [model.name for model in second.models] == names
    changed = [
        name
        for name, was, now in zip(names, first.models, second.models, strict=True)
        if now is not was
    ]
    assert changed == ["m007"]


async def test_an_error_of_the_agent_itself_is_shown_until_it_is_over() -> None:
    """Else the status says "no manifest yet" for ever, with the truth in the log alone (R8)."""
    published = Published()
    publisher = published.publisher()
    await report(publisher, State.LOADING)
    publisher.fail(AttributeError("no such field"))
    publisher.fail(AttributeError("no such field"))
    assert [status.version for status in published] == [1, 2]
    told = {str(each.type): each for each in published[-1].conditions}
    assert (told["Ready"].status, told["Ready"].reason) == ("Unknown", "TickFailed")
    assert (told["Stalled"].status, told["Stalled"].reason) == ("True", "TickFailed")
    assert "AttributeError('no such field')" in told["Stalled"].message
    (model,), (before,) = published[-1].models, published[0].models
    assert model.conditions[0].status == "Unknown"
    assert replace(model, conditions=before.conditions) == before
    await report(publisher, State.LOADING)
    assert published[-1].conditions == published[0].conditions


async def test_ready_waits_for_each_model_and_is_latched() -> None:
    published = Published()
    publisher = published.publisher()
    for state in (State.CACHING, State.LOADING, State.LOADED, State.ERROR):
        await report(publisher, state)
    assert [status.ready for status in published] == [False, False, True, True]


async def test_a_model_that_failed_three_times_keeps_nobody_waiting() -> None:
    published = Published()
    publisher = published.publisher()
    await report(publisher, State.ERROR, failures=2)
    await report(publisher, State.ERROR, failures=3)
    assert [status.ready for status in published] == [False, True]


async def test_a_suspended_node_is_ready() -> None:
    published = Published()
    await report(published.publisher(), State.PENDING, suspend=True)
    assert published[-1].ready


async def test_before_the_first_read_nothing_is_ready() -> None:
    published = Published()
    await published.publisher().report(
        (), {}, Understanding(), waits=("no valid manifest was read yet",)
    )
    assert not published[-1].ready


async def test_why_the_models_are_not_known_is_said_until_they_are() -> None:
    published = Published()
    publisher = published.publisher()
    for read in (
        Understanding(),
        Understanding(source_error="cannot read /x"),
        Understanding(location="/x", desired=desired()),
    ):
        await publisher.report((), {}, read)
    just_started, no_manifest, known = [status.unknown_because for status in published]
    assert just_started == JUST_STARTED
    assert no_manifest == "has no manifest yet: no valid one was read so far"
    assert known is None


async def test_a_draining_node_goes_on_saying_so() -> None:
    published = Published()
    publisher = published.publisher()
    publisher.drain()
    await report(publisher, State.LOADED)
    assert [status.draining for status in published] == [True, True]
    assert [c.type for c in published[-1].conditions if c.type == "Draining"] == ["Draining"]


async def test_what_a_rail_holds_back_is_held_until_it_is_let() -> None:
    published = Published()
    publisher = published.publisher()
    wanted = desired()
    for held in ((M,), ()):
        await publisher.report(
            [Outlook(model=M, state=State.PENDING, reason="waits for the maintenance window")],
            {M: ModelFacts(desired=wanted.models[0])},
            Understanding(desired=wanted, location="/x", whole=True),
            held=held,
        )
    for status, reason in zip(published, ("Held", "Waiting"), strict=True):
        (model,) = status.models
        assert model.conditions[0].reason == reason
        assert "maintenance window" in status.conditions[0].message


async def test_conditions_tell_which_revision_they_take_account_of() -> None:
    """A model counts as it was while the newest revision is refused in part."""
    published = Published()
    publisher = published.publisher()
    wanted = desired()
    for whole in (True, False):
        await publisher.report(
            [Outlook(model=M, state=State.LOADING, reason="so")],
            {M: ModelFacts(desired=wanted.models[0])},
            Understanding(
                desired=wanted,
                location="/x",
                whole=whole,
                revision=Revision(applied="r1", attempted="r1" if whole else "r2"),
            ),
        )
    of_node = [status.conditions[0].observed_revision for status in published]
    of_models = [status.models[0].conditions[0].observed_revision for status in published]
    assert (of_node, of_models) == (["r1", "r2"], ["r1", "r1"])
