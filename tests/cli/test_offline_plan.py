"""What two manifests and a fleet file come to, without asking anybody."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.cli.plan_words import totals
from reconciler.errors import Rejected
from reconciler.manifest.fleet_model import FleetNode
from reconciler.manifest.union import Manifest
from reconciler.plan.changes import CHANGING, Verb
from reconciler.plan.memory import HOST
from tests.cli.offline_plans import CUDA, GIB, H100, MI300, gpus, node, one, plans, read
from tests.manifest.texts import model


def test_the_old_manifest_is_what_runs() -> None:
    before = read(model("chat", gpu_ids=[0], extra_args={"ctx_size": 2048}), "old", "same")
    after = read(model("chat", gpu_ids=[0], extra_args={"ctx_size": 4096}), "new", "same")

    made = plans(after, before, gpus(4))

    verbs = {change.model: change.verb for change in made[0].changes}
    assert verbs == {
        "chat": Verb.RESTART,
        "new": Verb.START,
        "old": Verb.STOP,
        "same": Verb.UNCHANGED,
    }
    chat = one(made, "chat")
    assert (chat.fetch, chat.downtime_seconds) == (False, None)
    assert [(each.path, each.old, each.new) for each in chat.fields] == [
        ("extra_args.ctx_size", 2048, 4096)
    ]
    assert (one(made, "new").fetch, one(made, "new").downtime_seconds) == (True, 0.0)


def test_in_a_cluster_a_model_that_names_no_nodes_is_for_none() -> None:
    """What runs there without `--peers` is no agent's of a cluster, so there is nothing to stop."""
    after = read("nowhere", model("here", nodes=["node-a"]), model("every", nodes="all"))
    for before in (None, read("nowhere")):
        (made,) = plans(after, before, gpus(4), peers=True)
        assert {change.model for change in made.changes} == {"here", "every"}
        (other,) = made.elsewhere
        assert (other.name, "names no nodes" in other.reason) == ("nowhere", True)
    (alone,) = plans(after, None, gpus(4))
    assert {change.model for change in alone.changes} == {"here", "every", "nowhere"}


def test_no_pid_is_made_up() -> None:
    before = read(model("a", gpus=1))
    after = read(model("a", gpus=1, extra_args={"ctx_size": 4096}))

    change = one(plans(after, before, gpus(2)), "a")

    assert (change.verb, change.downtime_seconds) == (Verb.SURGE, 0.0)
    assert "the old process serves until the new one is loaded" in change.reason
    assert "pid" not in change.reason


@pytest.mark.parametrize(
    ("entry", "fleet", "said"),
    [
        (model("m", gpu_ids=[3]), gpus(2), "there is no GPU 3; this node has 0: nvidia:0, H100"),
        (
            model("m", backend="vllm-rocm", gpu_ids=[0]),
            gpus(1),
            "it runs on amd, and the model gets GPU 0 (nvidia:0), nvidia",
        ),
        (model("m", gpus=3), gpus(2), "cannot give it 3 GPUs: this node has 0: nvidia:0"),
        (model("m", gpus=1), node(gpus=[]), "the fleet file lists none"),
        (model("m", gpus=1, gpu_memory="90GiB"), gpus(1), "has 80.0 GiB in all"),
        (
            model("m", source="huggingface/org_m"),
            node(gpus=[H100], engines=[{"backend": "llama-server-cuda"}]),
            "vllm-cuda: the fleet file lists none",
        ),
        (model("m", engine="b2"), gpus(1), "this node names no builds"),
        (
            model("m", source="huggingface/org_m", extra_args={"max_model_lenn": 1}),
            gpus(1),
            "vLLM 0.32 has no flag --max-model-lenn",
        ),
        (
            model("m", gpu_ids=[0]),
            node(gpus=[H100], gpu_mode="plugin"),
            "gpu_ids",
        ),
        (
            model("m", gpu_ids=[0]),
            node(gpus=[{**H100, "problem": "lost: it fell off the bus"}]),
            "lost: it fell off the bus",
        ),
    ],
)
def test_what_a_node_cannot_do_is_refused_with_its_reason(
    entry: dict[str, object], fleet: FleetNode, said: str
) -> None:
    change = one(plans(read(entry), None, fleet), "m")

    assert change.verb is Verb.REFUSED
    assert said in change.reason


def test_two_models_that_name_one_gpu_in_two_ways_conflict() -> None:
    fleet = node(gpus=[{**H100, "uuid": "GPU-5f1c"}], engines=CUDA)
    after = read(model("a", gpu_ids=[0]), model("b", gpu_ids=["GPU-5f1c"]))

    made = plans(after, None, fleet)

    assert one(made, "a").verb is Verb.START
    assert one(made, "b").reason.startswith("GPU GPU-5f1c is claimed by a too")


def test_a_gpu_that_the_file_does_not_tell_is_no_refusal() -> None:
    made = plans(read(model("a", gpu_ids=["GPU-5f1c"])), None, gpus(1))

    assert one(made, "a").verb is Verb.START
    assert "which GPU GPU-5f1c is, of a, the fleet file does not say (uuid, pci)" in made[0].notes


def test_what_cannot_be_started_keeps_no_gpu_from_others() -> None:
    hopeless = model("bad", gpus=1, backend="vllm-rocm", gpu_ids=[0])
    del hopeless["gpus"]

    made = plans(read(hopeless, model("good", gpus=2)), None, gpus(2))

    assert (one(made, "bad").verb, one(made, "good").verb) == (Verb.REFUSED, Verb.START)


def test_a_fallback_is_taken_where_nothing_runs_the_source() -> None:
    fleet = node(gpus=[], engines=[{"backend": "xllamacpp"}])
    fallback = {"source": "gguf/org_small"}
    after = read(model("m", source="huggingface/org_m", fallback=fallback))

    change = one(plans(after, None, fleet), "m")

    assert (change.verb, change.source) == (Verb.START, "gguf/org_small")


def test_memory_that_cannot_fit_is_refused_where_the_hub_tells_the_size() -> None:
    after = read(model("m", gpus=1), model("n", gpus=1))

    made = plans(after, None, gpus(2), sizes={"gguf/org_m": 100, "gguf/org_n": 20})

    assert one(made, "m").verb is Verb.REFUSED
    assert "which has 80.0 GiB in all" in one(made, "m").reason
    assert one(made, "n").download_bytes == 20 * GIB


def test_the_memory_of_what_stays_is_not_given_twice() -> None:
    fleet = node(gpus=[], memory="64GiB", reserved="4GiB", engines=[{"backend": "xllamacpp"}])
    sizes = {"gguf/org_a": 30, "gguf/org_b": 30, "gguf/org_c": 20}

    made = plans(read("a", "b", "c"), read("a", "b"), fleet, sizes=sizes)

    assert one(made, "c").verb in (Verb.START, Verb.REFUSED)
    assert made[0].host is not None
    assert made[0].host.gpu == HOST
    assert made[0].host.total_bytes == 64 * GIB
    assert one(made, "a").verb is Verb.UNCHANGED


def test_what_several_models_share_is_downloaded_once() -> None:
    fleet = gpus(2, cache_budget="30GiB")
    sizes = {"gguf/org_x": 20, "gguf/org_y": 5}
    shared = [model(name, source="gguf/org_x", gpus=0) for name in "abc"]
    after = read(*shared, model("d", source="gguf/org_y", gpus=0))

    made = plans(after, None, fleet, sizes=sizes)

    assert {name: one(made, name).download_with for name in "abcd"} == {
        "a": None,
        "b": "a",
        "c": "a",
        "d": None,
    }
    assert totals(made).download_bytes == 25 * GIB
    assert not any("its cache may have" in note for note in made[0].notes)
    unknown = plans(after, None, fleet)
    assert totals(unknown).downloads_of_unknown_size == 2


def test_a_source_that_the_hub_has_not_is_refused() -> None:
    change = one(plans(read("typo"), None, gpus(1), sizes={}), "typo")

    assert (change.verb, change.reason) == (
        Verb.REFUSED,
        "cannot find gguf/org_typo: hub has none",
    )


def test_what_runs_has_its_files_whatever_the_hub_has_lost() -> None:
    before = read(model("a", gpus=1))
    after = read(model("a", gpus=1, extra_args={"ctx_size": 4096}))

    change = one(plans(after, before, gpus(2), sizes={}), "a")

    assert (change.verb, change.fetch) == (Verb.SURGE, False)


def test_a_memory_of_which_somebody_takes_nobody_knows_how_much_is_not_shown() -> None:
    made = plans(read(model("m", gpus=1)), None, gpus(2, memory="64GiB"))

    assert [each.index for each in made[0].gpus] == [1]
    assert made[0].host is None


def test_what_is_not_listed_is_said_once_and_refuses_nothing() -> None:
    made = plans(read(model("m", gpus=1, engine="b2")), None, node(memory="8GiB"))

    assert one(made, "m").verb is Verb.START
    assert made[0].notes == (
        "whether it has the engines b2, only its agent knows",
        "its GPUs are not listed, so it is not known whether models find theirs",
        "its engines are not listed, so every one is taken to be there",
        "how large its models are is not known, so neither is whether they fit (--hub)",
    )


def test_files_that_do_not_fit_into_the_cache_are_told() -> None:
    fleet = gpus(2, cache_budget="30GiB")
    sizes = {"gguf/org_a": 20, "gguf/org_b": 20}

    made = plans(read(model("a", gpus=1), model("b", gpus=1)), None, fleet, sizes=sizes)

    assert any("take 40.0 GiB, and its cache may have 30.0 GiB" in note for note in made[0].notes)


def test_a_node_that_is_not_in_the_fleet_is_refused_with_the_nearest() -> None:
    made = plans(read(model("m", nodes=["node-aa"])), None, gpus(1))

    change = one(made, "m")
    assert [each.node for each in made] == ["node-a", "node-aa"]
    assert change.verb is Verb.REFUSED
    assert change.reason == "the fleet file has no node node-aa; did you mean node-a?"


def test_a_node_that_the_fleet_has_left_out_all_along_is_planned_without_it() -> None:
    before = read(model("m", nodes=["node-b"], gpus=4))
    after = read(model("m", nodes=["node-b"], gpus=4, extra_args={"ctx_size": 4096}))

    made = plans(after, before, gpus(1))

    assert one(made, "m").verb is Verb.SURGE
    assert made[1].notes == ("the fleet file has no node node-b; did you mean node-a?",)


def test_only_a_node_of_the_fleet_can_be_asked_for() -> None:
    with pytest.raises(Rejected, match="no node nope"):
        plans(read("m"), None, gpus(1), only="nope")


def test_a_revision_that_would_stop_most_models_waits_for_confirmation() -> None:
    names = [f"m{number}" for number in range(6)]
    before = read(*(model(name, gpus=0) for name in names))

    made = plans(read(model("m0", gpus=0)), before)

    assert any("would stop 5 of 6 running models" in note for note in made[0].notes)
    assert all(one(made, name).held for name in names[1:])
    assert made[0].order == ()


def test_a_suspended_manifest_says_what_would_come_and_that_it_is_held() -> None:
    made = plans(read("m", suspend=True))

    change = one(made, "m")
    assert change.verb is Verb.START
    assert change.held is not None
    assert made[0].order == ()


def test_the_order_has_what_is_not_suspended_and_no_more() -> None:
    before = read(model("a", gpus=0), model("b", gpus=0))
    after = read(model("a", gpus=0, suspend=True, env={"A": "1"}), model("c", gpus=0))

    made = plans(after, before)

    assert one(made, "a").verb in (Verb.RESTART, Verb.SURGE)
    assert [(each.kind, each.model) for each in made[0].order] == [
        ("StopBackend", "b"),
        ("FetchFiles", "c"),
        ("StartBackend", "c"),
    ]


def test_what_of_the_old_manifest_the_fleet_could_not_run_is_told() -> None:
    fleet = gpus(1, engines=[{"backend": "llama-server-cuda", "name": "b2"}])

    made = plans(read(model("new", gpus=0)), read(model("a", gpus=1), model("b", gpus=1)), fleet)

    assert (one(made, "a").verb, one(made, "b").verb) == (Verb.UNCHANGED, Verb.UNCHANGED)
    (note,) = [each for each in made[0].notes if "old manifest" in each]
    assert note.startswith(
        "of the old manifest a, b could not run here either, so no stop is shown"
    )
    assert "b2" in note


def test_a_hub_that_was_asked_is_not_recommended() -> None:
    after, fleet = read(model("m", source="hf://org/m", gpus=0)), node(memory="8GiB")
    said = "how large its models are is not known, so neither is whether they fit"

    assert f"{said} (--hub)" in plans(after, None, fleet)[0].notes
    assert said in plans(after, None, fleet, sizes={})[0].notes


def test_what_the_hub_has_not_is_refused_and_its_size_not_asked_for() -> None:
    made = plans(read(model("m", gpus=0)), None, node(memory="8GiB"), sizes={})

    assert one(made, "m").verb is Verb.REFUSED
    assert not any("how large" in note for note in made[0].notes)


NAMES = ["a", "b", "c", "d"]
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "gpus": st.integers(0, 3),
        "strategy": st.sampled_from(["auto", "recreate", "surge"]),
        "extra_args": st.sampled_from([{}, {"ctx_size": 4096}]),
        "source": st.sampled_from(["gguf/org_x", "gguf/org_y", "huggingface/org_z"]),
        "enabled": st.booleans(),
        "gpu_memory": st.sampled_from([0.4, "20GiB"]),
    },
)
MANIFESTS = st.dictionaries(st.sampled_from(NAMES), ENTRIES, min_size=1)
FLEETS = st.sampled_from(
    [
        node(),
        gpus(0, gpus=[]),
        gpus(1),
        gpus(3, memory="64GiB"),
        node(gpus=[H100, MI300], engines=CUDA),
        node(gpus=[{**H100, "count": 2}]),
    ]
)


def of(entries: Mapping[str, Mapping[str, object]]) -> Manifest:
    return read(
        *(
            model(name, **{k: v for k, v in each.items() if v != {}})
            for name, each in entries.items()
        )
    )


@settings(max_examples=60)
@given(MANIFESTS, FLEETS, st.sampled_from([None, {"gguf/org_x": 10, "gguf/org_y": 60}]))
def test_a_manifest_against_itself_changes_nothing(
    entries: Mapping[str, Mapping[str, object]],
    fleet: FleetNode,
    sizes: Mapping[str, int] | None,
) -> None:
    try:
        same = of(entries)
    except AssertionError:
        return  # no manifest: gpu_memory on the CPU

    made = plans(same, same, fleet, sizes=sizes)

    changed = [change for each in made for change in each.changes if change.verb in CHANGING]
    assert changed == []


@settings(max_examples=60)
@given(MANIFESTS, MANIFESTS, FLEETS)
def test_every_model_of_either_manifest_is_told_of_and_it_comes_to_rest(
    old: Mapping[str, Mapping[str, object]],
    new: Mapping[str, Mapping[str, object]],
    fleet: FleetNode,
) -> None:
    try:
        before, after = of(old), of(new)
    except AssertionError:
        return

    (made,) = plans(after, before, fleet)

    running = {name for name, entry in old.items() if entry.get("enabled", True)}
    told = {change.model for change in made.changes}
    assert set(new) <= told
    assert told <= set(new) | set(old)
    stopped = {change.model for change in made.changes if change.verb is Verb.STOP}
    assert stopped <= running
    assert not any("does not come to rest" in note for note in made.notes)
