"""What is seen of a model in safetensors before a vLLM is started for it."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.backend.engines import Assessment, Engines
from reconciler.plan.desired import Format, ModelType
from reconciler.plan.observed import FilesCached
from tests.backend.build import files, inventory, model, vllm
from tests.engines.tiny_models import write_llama, write_reranker

ENGINES = Engines(inventory(vllm()))
SOURCE = "huggingface/org_name"
CURE = f"; push a good one to {SOURCE} in the hub, and it is taken by itself"


def cached(folder: Path) -> FilesCached:
    return files(folder, root=str(folder), format=Format.SAFETENSORS)


def assessed(folder: Path, **fields: Any) -> Assessment:
    return ENGINES.assess(model(source=SOURCE, **fields), cached(folder))


def test_nothing_speaks_against_a_whole_model(tmp_path: Path) -> None:
    found = assessed(write_llama(tmp_path))
    assert found.refusal is None
    assert found.choice is not None
    assert found.choice.build.id == "vllm-cpu"
    assert found.choice.reason == (
        "the first for safetensors on CPU that is here: /opt/vllm/bin/vllm, vLLM 0.32.0"
    )


def test_weights_that_are_cut_off_are_refused_before_a_start(tmp_path: Path) -> None:
    """vLLM itself says so after 27 s, and ends with exit code 1."""
    weights = write_llama(tmp_path) / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    found = assessed(tmp_path)
    assert found.bad_files
    assert f"cannot read {weights}: it is cut off" in str(found.refusal)
    assert str(found.refusal).endswith(CURE)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("config.json", "there is no config.json beside the weights"),
        ("model.safetensors", "no .safetensors lies beside its config.json"),
    ],
)
def test_a_folder_without_what_vllm_reads_is_refused(tmp_path: Path, gone: str, said: str) -> None:
    (write_llama(tmp_path) / gone).unlink()
    assert assessed(tmp_path).refusal == f"cannot use {tmp_path}: {said}{CURE}"


@pytest.mark.parametrize(
    ("type", "said"),
    [
        (ModelType.LLM, "BertForSequenceClassification generates no text"),
        (ModelType.RERANK, None),
        (ModelType.EMBEDDING, None),
    ],
)
def test_a_reranker_is_no_chat_model(tmp_path: Path, type: ModelType, said: str | None) -> None:
    """Scenario 54, gpustack#2408."""
    refusal = assessed(write_reranker(tmp_path), type=type).refusal
    assert (refusal is None) if said is None else (said in str(refusal))


def test_a_chat_model_ranks_only_where_it_is_told_how(tmp_path: Path) -> None:
    write_llama(tmp_path)
    refusal = assessed(tmp_path, type=ModelType.RERANK).refusal
    assert "LlamaForCausalLM has no classification head" in str(refusal)
    how = {"architectures": ["LlamaForSequenceClassification"]}
    told = assessed(tmp_path, type=ModelType.RERANK, extra_args={"hf_overrides": how})
    assert told.refusal is None


def test_a_config_that_names_several_architectures_or_none_is_taken(tmp_path: Path) -> None:
    config = write_llama(tmp_path) / "config.json"
    for named in (["LlamaForCausalLM", "Other"], [], None, "x"):
        content = {**json.loads(config.read_text()), "architectures": named}
        config.write_text(json.dumps(content))
        engines = Engines(inventory(vllm()))
        assert engines.assess(model(source=SOURCE), cached(tmp_path)).refusal is None


def test_a_wrong_flag_is_refused_before_the_files_are_here() -> None:
    wanted = model(source=SOURCE, format=Format.SAFETENSORS, extra_args={"max_modell_len": 1})
    assert "did you mean max_model_len?" in str(ENGINES.assess(wanted, None).refusal)


def test_an_engine_of_a_backend_that_is_named_tells_the_format() -> None:
    wanted = model(source=SOURCE, backend="vllm-cpu", extra_args={"max_modell_len": 1})
    assert "did you mean max_model_len?" in str(ENGINES.assess(wanted, None).refusal)


@pytest.mark.parametrize(
    ("copies", "refused"), [(1, False), ("1", False), (0, True), (-1, True), (2, True), ("2", True)]
)
def test_copies_of_a_model_count_among_its_gpus(copies: int | str, refused: bool) -> None:
    """On the CPU there is room for one; `0` is no number of copies."""
    found = ENGINES.assess(model(source=SOURCE, extra_args={"data_parallel_size": copies}), None)
    assert (found.refusal is not None) == refused


def write_whisper(folder: Path) -> Path:
    """What it calls itself; the rest of it is a small chat model's."""
    config = write_llama(folder) / "config.json"
    said = json.loads(config.read_text(encoding="utf-8"))
    said |= {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"}
    config.write_text(json.dumps(said), encoding="utf-8")
    return folder


def test_one_that_only_hears_serves_its_own_type_and_no_other(tmp_path: Path) -> None:
    whisper = write_whisper(tmp_path)

    assert assessed(whisper, type=ModelType.TRANSCRIPTION).refusal is None
    refused = assessed(whisper).refusal
    assert "as type llm: WhisperForConditionalGeneration writes down what it hears" in str(refused)


def test_one_that_reads_text_alone_transcribes_nothing(tmp_path: Path) -> None:
    """vLLM itself loads it, and has no such path."""
    refusal = assessed(write_llama(tmp_path), type=ModelType.TRANSCRIPTION).refusal
    assert f"cannot serve {tmp_path} as type transcription: LlamaForCausalLM hears nothing" in str(
        refusal
    )
    how = {"architectures": ["WhisperForConditionalGeneration"]}
    told = assessed(tmp_path, type=ModelType.TRANSCRIPTION, extra_args={"hf_overrides": how})
    assert told.refusal is None


@pytest.mark.parametrize(
    "says",
    [
        {"architectures": ["Phi4MMForCausalLM"], "audio_processor": {}},
        {"architectures": ["MoonshotKimiaForCausalLM"], "kimia_mimo_audiodelaytokens": 5},
        {"architectures": ["Qwen3ASRForConditionalGeneration"]},
        {"architectures": []},
    ],
)
def test_one_that_may_hear_is_taken_to_transcribe(tmp_path: Path, says: dict[str, Any]) -> None:
    config = write_llama(tmp_path) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **says}), encoding="utf-8")
    assert assessed(tmp_path, type=ModelType.TRANSCRIPTION).refusal is None


def test_a_vllm_that_cannot_read_sound_says_what_it_lacks(tmp_path: Path) -> None:
    """It would load for a minute, and then fail at its first answer."""
    engines = Engines(inventory(replace(vllm(), hears=False)))
    whisper = cached(write_whisper(tmp_path))
    wanted = model(source=SOURCE, type=ModelType.TRANSCRIPTION)
    assert engines.assess(wanted, whisper).refusal == (
        "cannot serve type transcription: vLLM 0.32.0 cannot read sound; install its extra "
        "vllm[audio] in its environment, and it is noticed"
    )


def test_without_a_vllm_one_that_hears_is_not_advised_to_be_a_gguf(tmp_path: Path) -> None:
    without = Engines(inventory(vllm_cpu="no vllm on PATH"))
    wanted = model(source=SOURCE, type=ModelType.TRANSCRIPTION)

    found = without.assess(wanted, cached(write_whisper(tmp_path)))

    assert found.refusal == (
        "no backend on this node can run safetensors on the CPU (vllm-cpu: no vllm on PATH)"
    )
