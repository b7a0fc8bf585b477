"""The spec hash: stable over releases, and different wherever a process would differ."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from reconciler.plan.desired import Format, JsonValue, ModelSpec, ModelType, SecretRef
from reconciler.plan.spec_hash import spec_hash

PLAIN = ModelSpec(source="gguf/google_gemma-3-270m-it")
FULL = ModelSpec(
    source="gguf/google_gemma-3-270m-it",
    file="gemma-3-270m-it-Q4_K_M.gguf",
    type=ModelType.EMBEDDING,
    format=Format.GGUF,
    backend="llama-server-cpu",
    gpus=0,
    gpu_ids=("1", "0"),
    extra_args={"ctx_size": 4096, "temp": 0.5, "embeddings": True, "lora": ["a", {"b": None}]},
    env={"LOG": "info", "HF_TOKEN": SecretRef(from_env="HF_TOKEN")},
)


@pytest.mark.parametrize(
    ("spec", "golden"),
    [
        (PLAIN, "1:0884950cebbc826c"),
        (FULL, "1:809d6898a97d53af"),
    ],
    ids=["plain", "full"],
)
def test_hash_of_a_known_spec_never_changes(spec: ModelSpec, golden: str) -> None:
    """A release that changes one of these restarts every model of every user: bump VERSION."""
    assert spec_hash(spec) == golden


def test_writing_a_default_out_changes_nothing() -> None:
    written_out = ModelSpec(
        source=PLAIN.source,
        type=ModelType.LLM,
        format=Format.AUTO,
        backend="auto",
        pipeline_parallel_size=1,
        extra_args={},
        env={},
    )

    assert spec_hash(written_out) == spec_hash(PLAIN)


def test_order_of_keys_does_not_matter() -> None:
    one = replace(PLAIN, extra_args={"a": 1, "b": {"x": 1, "y": 2}}, env={"A": "1", "B": "2"})
    other = replace(PLAIN, extra_args={"b": {"y": 2, "x": 1}, "a": 1}, env={"B": "2", "A": "1"})

    assert spec_hash(one) == spec_hash(other)


def test_kind_of_mapping_and_sequence_does_not_matter() -> None:
    frozen = replace(PLAIN, extra_args=MappingProxyType({"a": [1, 2]}))

    assert spec_hash(frozen) == spec_hash(replace(PLAIN, extra_args={"a": [1, 2]}))


def test_order_of_devices_and_of_lists_matters() -> None:
    assert spec_hash(replace(PLAIN, gpu_ids=("0", "1"))) != spec_hash(
        replace(PLAIN, gpu_ids=("1", "0"))
    )
    assert spec_hash(replace(PLAIN, extra_args={"lora": ["a", "b"]})) != spec_hash(
        replace(PLAIN, extra_args={"lora": ["b", "a"]})
    )


def test_numbers_booleans_strings_and_null_are_kept_apart() -> None:
    values: list[JsonValue] = [1, 1.0, True, "1", "true", None, "", [], {}, [1], 0, 0.0, False]

    hashes = {spec_hash(replace(PLAIN, extra_args={"flag": value})) for value in values}

    assert len(hashes) == len(values)


def test_secret_counts_by_its_reference_and_differs_from_a_literal() -> None:
    hashes = {
        spec_hash(replace(PLAIN, env={"TOKEN": value}))
        for value in (
            SecretRef(from_env="A"),
            SecretRef(from_env="B"),
            SecretRef(from_file="A"),
            "A",
        )
    }

    assert len(hashes) == 4


def test_cpu_asked_for_differs_from_the_nodes_default() -> None:
    assert spec_hash(replace(PLAIN, gpus=0)) != spec_hash(PLAIN)


def test_a_pinned_digest_does_not_count() -> None:
    """Its files do, which have a digest of their own: pinning what runs restarts nothing."""
    assert spec_hash(replace(PLAIN, digest="abc")) == spec_hash(PLAIN)


def test_whether_memory_is_checked_does_not_count() -> None:
    """It decides before there is a process: what runs goes on."""
    assert spec_hash(replace(PLAIN, skip_memory_check=True)) == spec_hash(PLAIN)


def test_the_files_of_checks_do_not_count() -> None:
    """Checks say what must come of the very same process."""
    assert spec_hash(replace(PLAIN, check_files=("check.json",))) == spec_hash(PLAIN)


def test_every_other_field_of_the_spec_reaches_the_hash() -> None:
    changed = [
        replace(PLAIN, source="hf://org/name"),
        replace(PLAIN, file="x.gguf"),
        replace(PLAIN, type=ModelType.RERANK),
        replace(PLAIN, format=Format.GGUF),
        replace(PLAIN, backend="xllamacpp"),
        replace(PLAIN, engine="vllm-0.18"),
        replace(PLAIN, gpus=1),
        replace(PLAIN, gpu_ids=("0",)),
        replace(PLAIN, gpu_memory="0.45"),
        replace(PLAIN, tensor_parallel_size=2),
        replace(PLAIN, pipeline_parallel_size=2),
        replace(PLAIN, extra_args={"a": 1}),
        replace(PLAIN, env={"A": "1"}),
    ]

    assert len({spec_hash(spec) for spec in changed}) == len(ModelSpec.__dataclass_fields__) - 3
    assert spec_hash(PLAIN) not in {spec_hash(spec) for spec in changed}
