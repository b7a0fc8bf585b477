"""What a manifest would change, decided without any agent."""

from dataclasses import asdict

import pytest

from reconciler.cli.changes import Running, changes
from reconciler.cli.told import fields_of, running_of
from reconciler.errors import Rejected
from reconciler.manifest.inspection import inspect
from reconciler.manifest.resolve import FileInput
from reconciler.manifest.select import select
from reconciler.plan.changes import Change, FieldChange, NodeChanges, Verb
from reconciler.plan.desired import Desired
from reconciler.plan.memory import HOST
from tests.manifest.texts import manifest, model

NODE = "node-a"


def desired(*models: dict[str, object], **spec: object) -> Desired:
    """Models that are recreated, unless they say otherwise."""
    content = manifest(*({"strategy": "recreate", **each} for each in models), **spec)
    inspection = inspect([FileInput(name="models.json", content=content)])
    assert inspection.manifest is not None, inspection.problems
    return select(inspection.manifest, node=NODE, revision="")


def telling(before: Desired, name: str, **told: object) -> Running:
    """How an agent tells of a model that serves as `before` has it."""
    one = next(each for each in before.models if each.name == name)
    spec, _ = fields_of(one)
    entry: dict[str, object] = {
        "name": name,
        "state": "loaded",
        "reason": "serves (pid 7)",
        "aliases": list(one.aliases),
        "pid": 7,
        "spec_hash": one.spec_hash,
        "digest": "d1",
        "spec": spec,
        "priority": one.priority,
        "max_in_flight": one.max_in_flight,
        "timeouts": asdict(one.timeouts),
    }
    return running_of({**entry, **told})


def compared(after: Desired, *running: Running) -> NodeChanges:
    return changes(after, running, {each.name: fields_of(each) for each in after.models})


def only(node: NodeChanges) -> Change:
    (change,) = node.changes
    return change


def test_from_nothing_every_enabled_model_starts() -> None:
    node = compared(desired(model("a"), model("b", enabled=False)))

    assert [(change.model, change.verb) for change in node.changes] == [
        ("a", Verb.START),
        ("b", Verb.UNCHANGED),
    ]
    assert node.changes[0].fetch is True


def test_what_runs_as_written_is_unchanged() -> None:
    now = desired(model("a", aliases=["x", "y"]))

    change = only(compared(now, telling(now, "a")))

    assert (change.verb, change.fields) == (Verb.UNCHANGED, ())


def test_a_changed_flag_restarts_and_names_old_and_new() -> None:
    before = desired(model("a", extra_args={"ctx_size": 2048, "mlock": True}))
    after = desired(model("a", extra_args={"ctx_size": 4096}))

    change = only(compared(after, telling(before, "a")))

    assert change.verb is Verb.RESTART
    assert change.fields == (
        FieldChange(path="extra_args.ctx_size", old=2048, new=4096),
        FieldChange(path="extra_args.mlock", old=True, new=None),
    )
    assert change.fetch is False


@pytest.mark.parametrize(
    ("strategy", "told"), [("auto", ", if there is memory for both"), ("surge", "")]
)
def test_what_can_be_started_beside_the_old_process_surges(strategy: str, told: str) -> None:
    before = desired(model("a"))
    after = desired(model("a", extra_args={"ctx_size": 4096}, strategy=strategy))

    change = only(compared(after, telling(before, "a")))

    assert (change.verb, change.fetch) == (Verb.SURGE, False)
    assert change.reason.endswith(f"); pid 7 serves until the new one is loaded{told}")
    assert change.fields == (FieldChange(path="extra_args.ctx_size", old=None, new=4096),)


def test_what_serves_nothing_yet_does_not_surge() -> None:
    before = desired(model("a"))
    after = desired(model("a", extra_args={"ctx_size": 4096}, strategy="auto"))

    change = only(compared(after, telling(before, "a", state="loading")))

    assert change.verb is Verb.RESTART


def test_another_strategy_alone_changes_nothing() -> None:
    before, after = desired(model("a")), desired(model("a", strategy="surge"))

    assert only(compared(after, telling(before, "a"))).verb is Verb.UNCHANGED


def test_another_source_restarts_after_a_fetch() -> None:
    before, after = desired(model("a")), desired(model("a", source="gguf/org_b"))

    change = only(compared(after, telling(before, "a")))

    assert (change.verb, change.fetch) == (Verb.RESTART, True)


@pytest.mark.parametrize(("pinned", "verb"), [("a" * 64, Verb.UNCHANGED), ("b" * 64, Verb.RESTART)])
def test_a_digest_restarts_only_what_has_other_files(pinned: str, verb: Verb) -> None:
    before, after = desired(model("a")), desired(model("a", digest=f"sha256:{pinned}"))

    change = only(compared(after, telling(before, "a", prefix_digest="a" * 64)))

    assert (change.verb, bool(change.fetch)) == (verb, verb is Verb.RESTART)


def test_files_that_another_model_runs_on_are_known_to_be_cached() -> None:
    before = desired(model("a"))
    after = desired(model("a"), model("b", source="gguf/org_a", type="embedding"))

    node = compared(after, telling(before, "a"))

    assert (node.changes[1].verb, node.changes[1].fetch) == (Verb.START, False)


def test_a_spec_that_the_agent_does_not_tell_is_said_to_be_changed() -> None:
    before, after = desired(model("a")), desired(model("a", type="embedding"))

    change = only(compared(after, telling(before, "a", spec=None)))

    assert change.verb is Verb.RESTART
    assert change.fields == ()
    assert change.reason.startswith("spec changed (1:")


def test_aliases_and_timeouts_change_without_a_restart() -> None:
    before = desired(model("a"))
    after = desired(model("a", aliases=["gpt"], timeouts={"drain": "5s"}))

    change = only(compared(after, telling(before, "a")))

    assert change.verb is Verb.REROUTE
    assert change.fields == (
        FieldChange(path="aliases", old=[], new=["gpt"]),
        FieldChange(path="timeouts.drain", old="1m", new="5s"),
    )


def test_what_is_removed_disabled_or_moved_away_stops_for_that_reason() -> None:
    before = desired(model("a"), model("b"), model("c"), model("d"))
    after = desired(model("a"), model("b", enabled=False), model("c", nodes=["node-b"]))

    node = compared(after, *(telling(before, name) for name in "abcd"))

    said = [(change.verb, change.reason) for change in node.changes[1:]]
    assert said == [
        (Verb.STOP, "enabled: false"),
        (Verb.STOP, "nodes: [node-b]; this node is node-a"),
        (Verb.STOP, "removed from the manifest"),
    ]
    assert node.elsewhere == ()


def test_a_spec_that_the_node_already_refused_is_refused_again() -> None:
    now = desired(model("a"))
    blocked = telling(now, "a", state="blocked", reason="no backend can run it", pid=None)

    change = only(compared(now, blocked))

    assert (change.verb, change.reason) == (Verb.REFUSED, "no backend can run it")


def test_a_refused_successor_is_refused_while_the_old_one_serves() -> None:
    old, new = desired(model("a")), desired(model("a", type="embedding"))
    target = {"spec_hash": new.models[0].spec_hash, "state": "blocked", "reason": "bad flag"}

    change = only(compared(new, telling(old, "a", target=target)))

    assert (change.verb, change.reason) == (Verb.REFUSED, "bad flag")


def test_going_back_from_a_refused_successor_changes_nothing() -> None:
    old = desired(model("a"))
    target = {"spec_hash": "1:other", "state": "blocked", "reason": "bad flag"}

    assert only(compared(old, telling(old, "a", target=target))).verb is Verb.UNCHANGED


NEED = {
    "weights_bytes": 4 << 30,
    "kv_cache_bytes": 1 << 30,
    "overhead_bytes": 90 << 20,
    "context_tokens": 8192,
}


@pytest.mark.parametrize(
    ("extra_args", "tokens", "kv_cache_bytes"),
    [
        ({"ctx_size": 8192, "threads": 4}, 8192, 1 << 30),
        ({"ctx_size": 32768}, 32768, 4 << 30),
        ({"ctx-size": 100}, 256, 1 << 25),
    ],
)
def test_what_a_change_needs_of_memory_follows_from_what_the_agent_has_reckoned(
    extra_args: dict[str, object], tokens: int, kv_cache_bytes: int
) -> None:
    before = desired(model("a", extra_args={"ctx_size": 8192}))

    change = only(
        compared(desired(model("a", extra_args=extra_args)), telling(before, "a", memory=NEED))
    )

    assert change.verb is Verb.RESTART
    need = change.needs[HOST]
    assert need.weights_bytes == 4 << 30
    assert (need.tokens, need.kv_cache_bytes) == (tokens, kv_cache_bytes)


@pytest.mark.parametrize(
    "changed",
    [
        {"extra_args": {"ctx_size": 8192, "cache_type_k": "q8_0"}},
        {"extra_args": {}},
        {"source": "gguf/org_other", "extra_args": {"ctx_size": 8192}},
    ],
)
def test_of_all_other_changes_the_need_is_not_known(changed: dict[str, object]) -> None:
    before = desired(model("a", extra_args={"ctx_size": 8192}))

    change = only(compared(desired(model("a", **changed)), telling(before, "a", memory=NEED)))

    assert (change.verb, change.needs) == (Verb.RESTART, {})


def test_what_memory_has_no_room_for_is_refused_until_the_manifest_says_to_start() -> None:
    before = desired(model("a"))
    told = telling(before, "a", state="blocked", reason="it needs more", pid=None, memory=NEED)

    same = only(compared(before, told))
    after = only(compared(desired(model("a", skip_memory_check=True)), told))

    assert (same.verb, same.reason) == (Verb.REFUSED, "it needs more")
    assert after.verb is Verb.START


def test_a_corrected_spec_replaces_one_that_is_blocked() -> None:
    old, new = desired(model("a")), desired(model("a", type="embedding"))
    blocked = telling(old, "a", state="blocked", reason="exited with code 3", pid=None)

    change = only(compared(new, blocked))

    assert change.verb is Verb.START
    assert "now blocked: exited with code 3" in change.reason


def test_a_load_that_is_under_way_is_no_change() -> None:
    now = desired(model("a"))

    assert only(compared(now, telling(now, "a", state="loading"))).verb is Verb.UNCHANGED


def test_a_suspended_manifest_starts_nothing_and_says_so() -> None:
    node = compared(desired(model("a"), suspend=True))

    assert only(node).verb is Verb.UNCHANGED
    assert only(node).reason.startswith("suspended: held back: ")
    assert node.notes


def test_secrets_are_never_shown_and_a_changed_reference_is() -> None:
    before = desired(model("a", env={"HF_TOKEN": {"from_env": "OLD"}, "A_TOKEN": "hunter2"}))
    after = desired(model("a", env={"HF_TOKEN": {"from_env": "NEW"}, "A_TOKEN": "hunter3"}))

    change = only(compared(after, telling(before, "a")))

    assert change.fields == (
        FieldChange(path="env.HF_TOKEN", old={"from_env": "OLD"}, new={"from_env": "NEW"}),
    )


def test_defaults_count_the_same_whether_they_are_told_or_not() -> None:
    before, after = desired(model("a")), desired(model("a", type="embedding"))
    whole: dict[str, object] = {
        "source": "gguf/org_a",
        "type": "llm",
        "env": {},
        "file": None,
        "gpu_ids": [],
    }

    change = only(compared(after, telling(before, "a", spec=whole)))

    assert change.fields == (FieldChange(path="type", old=None, new="embedding"),)


def test_a_state_of_a_newer_agent_is_an_error_that_says_so() -> None:
    now = desired(model("a"))

    with pytest.raises(Rejected, match="a newer release than this command"):
        telling(now, "a", state="surging")
