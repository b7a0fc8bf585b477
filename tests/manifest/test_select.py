"""Which models a node runs and with what; hashes change only when they must."""

import pytest

from reconciler.manifest.resolve import resolve
from reconciler.manifest.select import select
from reconciler.plan.checks import EmbeddingCheck, RerankCheck, TextCheck, TranscriptionCheck
from reconciler.plan.desired import (
    Affinity,
    Desired,
    DesiredModel,
    ModelSpec,
    ModelType,
    Refresh,
    SecretRef,
    Timeouts,
)
from reconciler.plan.fallbacks import fallen_back
from tests.manifest.texts import listing, manifest, model


def desired(*files: bytes, node: str = "node-a", peers: bool = False) -> Desired:
    resolution = resolve(listing(**{f"f{index}": file for index, file in enumerate(files)}), {})
    assert resolution.whole, resolution.problems
    assert resolution.manifest is not None
    return select(resolution.manifest, node=node, revision="r1", peers=peers)


def selected(entry: dict[str, object], **spec: object) -> DesiredModel:
    (only,) = desired(manifest(entry, **spec)).models
    return only


def test_a_node_runs_what_names_it_and_what_names_none() -> None:
    file = manifest(
        model("z"),
        model("here", nodes=["node-b", "node-a"]),
        model("everywhere", nodes="all"),
        model("there", nodes=["node-b", "node-c"]),
    )

    wanted = desired(file)

    assert (wanted.node, wanted.revision) == ("node-a", "r1")
    assert [entry.name for entry in wanted.models] == ["everywhere", "here", "z"]
    (other,) = wanted.elsewhere
    assert (other.name, other.reason) == ("there", "nodes: [node-b, node-c]; this node is node-a")
    assert other.nodes == ("node-b", "node-c")


def test_with_peers_a_model_that_names_no_node_waits_for_placement() -> None:
    wanted = desired(manifest("a", model("b", nodes="all")), peers=True)

    assert [entry.name for entry in wanted.models] == ["b"]
    assert "not supported yet" in wanted.elsewhere[0].reason


def test_fields_arrive_as_they_are_written() -> None:
    entry = model(
        "a",
        enabled=False,
        aliases=["b", "org/c"],
        file="q4.gguf",
        type="embedding",
        format="gguf",
        backend="xllamacpp",
        gpus=0,
        priority=-3,
        max_in_flight=4,
        affinity="prefix",
        digest="0" * 64,
        refresh="auto",
        keep_last_good=False,
        extra_args={"ctx-size": 1, "jinja": True, "chat_template_kwargs": {"x": [1, None]}},
        env={"A": "1", "B": {"from_env": "B"}, "C": {"from_file": "/run/secrets/c"}},
    )

    chosen = selected(entry)

    assert (chosen.enabled, chosen.aliases, chosen.priority) == (False, ("b", "org/c"), -3)
    assert (chosen.max_in_flight, chosen.refresh) == (4, Refresh.AUTO)
    assert (chosen.affinity, selected(model("a")).affinity) == (Affinity.PREFIX, Affinity.NONE)
    assert (chosen.keep_last_good, selected(model("a")).keep_last_good) == (False, True)
    assert chosen.spec.digest == "0" * 64
    assert (chosen.spec.source, chosen.spec.file) == ("gguf/org_a", "q4.gguf")
    assert (chosen.spec.type, chosen.spec.format) == ("embedding", "gguf")
    assert (chosen.spec.backend, chosen.spec.gpus) == ("xllamacpp", 0)
    assert chosen.spec.extra_args == {
        "ctx_size": 1,
        "jinja": True,
        "chat_template_kwargs": {"x": [1, None]},
    }
    assert chosen.spec.env == {
        "A": "1",
        "B": SecretRef(from_env="B"),
        "C": SecretRef(from_file="/run/secrets/c"),
    }
    assert chosen.place.file == "f0.yaml"


def test_defaults_are_merged_key_by_key_and_the_models_own_key_wins() -> None:
    chosen = selected(
        model("a", extra_args={"ctx_size": 1, "jinja": None}, timeouts={"stop": "5s"}),
        defaults={
            "timeouts": {"ready": "1h", "stop": 90, "download": "1.5h"},
            "extra_args": {"llama": {"ctx-size": 2, "parallel": 4, "jinja": True}},
        },
    )

    assert chosen.spec.extra_args == {"ctx_size": 1, "parallel": 4}
    assert chosen.timeouts == Timeouts(ready=3600.0, stop=5.0, download=5400.0)


def test_defaults_are_for_their_own_document_only() -> None:
    defaults = {"extra_args": {"llama": {"parallel": 4}}}

    wanted = desired(manifest("a", defaults=defaults), manifest("b"))

    assert [entry.spec.extra_args for entry in wanted.models] == [{"parallel": 4}, {}]


@pytest.mark.parametrize(
    "change",
    [
        {"aliases": ["x"]},
        {"priority": 5},
        {"max_in_flight": 5},
        {"timeouts": {"ready": "1h"}},
        {"nodes": ["node-a"]},
        {"enabled": False},
        {"on_failure": "keep"},
        {"refresh": "auto"},
        {"keep_last_good": False},
        {"digest": "0" * 64},
        {"extra_args": {"ctx-size": 1}},
        {"type": "llm", "backend": "auto"},
    ],
    ids=lambda change: ",".join(change),
)
def test_what_does_not_reach_the_process_changes_no_hash(change: dict[str, object]) -> None:
    before = selected(model("a", extra_args={"ctx_size": 1}))

    after = selected(model("a", **{"extra_args": {"ctx_size": 1}, **change}))

    assert after.spec_hash == before.spec_hash


@pytest.mark.parametrize(
    "change", [{"extra_args": {"ctx_size": 2}}, {"env": {"A": "1"}}, {"file": "x.gguf"}]
)
def test_what_reaches_the_process_changes_the_hash(change: dict[str, object]) -> None:
    before = selected(model("a", extra_args={"ctx_size": 1}))

    after = selected(model("a", **{"extra_args": {"ctx_size": 1}, **change}))

    assert after.spec_hash != before.spec_hash


def test_a_default_counts_like_the_models_own_key() -> None:
    written = selected(model("a", extra_args={"parallel": 4}))

    inherited = selected(model("a"), defaults={"extra_args": {"llama": {"parallel": 4}}})

    assert inherited.spec_hash == written.spec_hash


def test_any_document_suspends_all() -> None:
    assert desired(manifest("a"), manifest("b", suspend=True)).suspend


@pytest.mark.parametrize(("node", "suspended"), [("node-a", True), ("node-b", False)])
def test_a_node_is_suspended_by_its_settings(node: str, suspended: bool) -> None:
    file = manifest("a", node_settings={"node-a": {"suspend": True}})

    assert desired(file, node=node).suspend is suspended


def test_a_fallback_is_the_same_model_with_files_and_flags_of_its_own() -> None:
    entry = model(
        "a",
        source="huggingface/org_a",
        digest="0" * 64,
        type="embedding",
        format="safetensors",
        backend="vllm-cuda",
        gpu_memory="20GiB",
        extra_args={"max_model_len": 1},
        env={"A": "1"},
        fallback={
            "source": "gguf/org_a",
            "file": "q4.gguf",
            "extra_args": {"ctx-size": 7},
            "env": {"B": {"from_env": "B"}},
        },
    )

    defaults = {"extra_args": {"llama": {"parallel": 4}, "vllm": {"seed": 1}}}

    chosen = selected(entry, defaults=defaults)
    fallen = fallen_back(chosen)

    assert chosen.spec.extra_args == {"seed": 1, "max_model_len": 1}
    assert fallen.spec == ModelSpec(
        source="gguf/org_a",
        file="q4.gguf",
        type=ModelType.EMBEDDING,
        gpu_memory="20GiB",
        extra_args={"parallel": 4, "ctx_size": 7},
        env={"B": SecretRef(from_env="B")},
    )
    assert (fallen.stands_in_for, fallen.fallback) == (chosen.spec, None)
    assert fallen.spec_hash not in (chosen.spec_hash, selected(model("a")).spec_hash)
    assert chosen.spec_hash == selected(entry | {"fallback": None}, defaults=defaults).spec_hash


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({}, None),
        ({"gpus": 2, "tensor_parallel_size": 2}, 2),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, 4),
        ({"backend": "vllm-cpu"}, 0),
        ({"gpu_ids": [0, 1], "tensor_parallel_size": 2}, None),
    ],
)
def test_a_fallback_gets_as_many_gpus_as_its_source(
    fields: dict[str, object], gpus: int | None
) -> None:
    other: dict[str, object] = {"source": "gguf/org_a"}
    spec = fallen_back(
        selected(model("a", **fields, source="huggingface/org_a", fallback=other))
    ).spec

    assert (spec.gpus, len(spec.gpu_ids)) == (gpus, len(fields.get("gpu_ids", [])))  # type: ignore[arg-type]
    assert (spec.tensor_parallel_size, spec.pipeline_parallel_size) == (None, 1)


def test_a_fallback_in_safetensors_keeps_the_sizes() -> None:
    other: dict[str, object] = {"source": "huggingface/org_b", "extra_args": {"seed": 1}}
    entry = model("a", source="gguf/org_a", gpus=2, pipeline_parallel_size=2, fallback=other)

    assert fallen_back(selected(entry)).spec.pipeline_parallel_size == 2


def test_checks_arrive_as_they_are_written() -> None:
    asked = [
        {"prompt": "1, 2,", "contains": "3", "max_tokens": 4},
        {"message": "Hello", "contains": ["Hi", "Hello"]},
    ]
    heard = [{"audio_file": "@/hi.wav", "contains": "hi"}]
    near = [
        {"input": "a", "embedding": [1, 0.5]},
        {"input": "b", "embedding_file": "@/checks/b.json", "cosine": 0.9},
    ]
    ranked = [{"query": "a", "first": "b", "others": ["c"]}]

    def checks(kind: str, written: object) -> DesiredModel:
        return selected(model("a", type=kind, checks=written))

    assert checks("llm", asked).checks == (
        TextCheck(text="1, 2,", chat=False, contains=("3",), max_tokens=4),
        TextCheck(text="Hello", chat=True, contains=("Hi", "Hello"), max_tokens=64),
    )
    assert checks("transcription", heard).checks == (
        TranscriptionCheck(file="hi.wav", contains=("hi",)),
    )
    assert checks("embedding", near).checks == (
        EmbeddingCheck(text="a", embedding=(1.0, 0.5), cosine=0.99),
        EmbeddingCheck(text="b", file="checks/b.json", cosine=0.9),
    )
    assert checks("rerank", ranked).checks == (RerankCheck(query="a", first="b", others=("c",)),)


def test_checks_are_in_no_hash_and_their_files_are_the_models() -> None:
    near = {"input": "b", "embedding_file": "@/checks/b.json"}

    plain = selected(model("a", type="embedding"))
    checked = selected(model("a", type="embedding", checks=[near]))

    assert checked.spec_hash == plain.spec_hash
    assert checked.spec.check_files == ("checks/b.json",)
