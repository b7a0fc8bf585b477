from pathlib import Path
from typing import Any

import pytest

from reconciler.backend.engines import Assessment, Engines
from reconciler.errors import Rejected, Transient
from reconciler.plan.desired import Format, ModelType, SecretRef
from reconciler.plan.observed import FilesCached
from tests.backend.build import files, inventory, llama_server, model, xllamacpp
from tests.gguf_file import header
from tests.tiny_bert import tiny_bert

ENGINES = Engines(inventory(llama_server(), xllamacpp()))
LLAMA = {"general.architecture": "llama", "llama.context_length": 4096}


@pytest.fixture
def cached(tmp_path: Path) -> FilesCached:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(LLAMA))
    return files(path)


def refusal(found: FilesCached | None, **fields: Any) -> str:
    said = ENGINES.assess(model(**fields), found).refusal
    assert said is not None
    return said


def test_chooses_a_backend_and_sees_nothing_against_it(cached: FilesCached) -> None:
    assessment = ENGINES.assess(model(), cached)
    assert assessment.refusal is None
    assert assessment.choice is not None
    assert assessment.choice.build.id == "llama-server-cpu"


def test_refuses_a_bad_flag_before_anything_is_started(cached: FilesCached) -> None:
    """Scenario 5, llama-swap#100: the child exits at once, and the supervisor waits 15 minutes."""
    said = refusal(cached, extra_args={"ctx_sise": 1})
    assert "has no flag --ctx-sise; did you mean ctx_size?" in said


def test_refuses_what_the_chosen_backend_cannot_be_told(cached: FilesCached) -> None:
    extra_args = {"spec_type": "ngram-mod"}
    assert ENGINES.assess(model(extra_args=extra_args), cached).refusal is None
    assert "--spec-type" in refusal(cached, extra_args=extra_args, backend="xllamacpp")


def test_refuses_a_bad_flag_before_the_files_are_fetched() -> None:
    assert "--ctx-sise" in refusal(None, extra_args={"ctx_sise": 1})


def test_says_nothing_of_files_whose_format_it_cannot_know() -> None:
    assert ENGINES.assess(model(source="mine/org_name"), None) == Assessment()


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"source": "huggingface/org_name"}, True),
        ({"source": "hf://org/name@v1"}, True),
        ({"source": "mine/org_name", "format": Format.SAFETENSORS}, False),
        ({"source": "mine/org_name", "backend": "vllm-cpu"}, True),
    ],
)
def test_knows_safetensors_by_their_source(fields: dict[str, Any], hint: bool) -> None:
    """Nothing is fetched that nothing here can run."""
    found = ENGINES.assess(model(**fields), None)
    assert (found.choice, found.format) == (None, Format.SAFETENSORS)
    assert found.no_backend is not None
    assert found.refusal is not None
    assert found.refusal.endswith("; if its files are GGUF, say format: gguf") is hint


@pytest.mark.parametrize(
    "fields",
    [
        {"source": "gguf/org_name"},
        {"source": "file:///models/a.gguf"},
        {"source": "huggingface/org_name", "format": Format.GGUF},
        {"source": "huggingface/org_name", "file": "a.gguf"},
        {"source": "hf://org/name-GGUF"},
    ],
)
def test_knows_a_gguf_by_its_source(fields: dict[str, Any]) -> None:
    assert ENGINES.assess(model(**fields), None).choice is not None


@pytest.mark.parametrize(
    ("source", "cure"),
    [
        ("gguf/org_name", "push a good one to gguf/org_name in the hub"),
        ("file:///models/a.gguf", "put a good one in its place"),
    ],
)
def test_refuses_a_file_that_is_not_a_model_and_says_what_helps(
    cached: FilesCached, source: str, cure: str
) -> None:
    Path(cached.path).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assessment = ENGINES.assess(model(source=source), cached)
    assert "not a GGUF file" in str(assessment.refusal)
    assert f"; {cure}, and it is taken by itself" in str(assessment.refusal)
    assert assessment.bad_files


def test_a_projector_that_was_cut_is_as_bad_as_a_model(cached: FilesCached) -> None:
    """Else llama.cpp would find it, three exits later."""
    projector = Path(cached.root) / "mmproj.gguf"
    projector.write_bytes(header({"general.architecture": "clip"})[:-1])
    with_it = files(cached.path, mmproj=str(projector), digest="d3")
    assert "mmproj.gguf: truncated header" in refusal(with_it)


def test_what_the_manifest_asks_is_no_fault_of_the_files(cached: FilesCached) -> None:
    assessment = ENGINES.assess(model(extra_args={"ctx_sise": 1}), cached)
    assert assessment.refusal is not None
    assert not assessment.bad_files


def test_reads_files_again_when_their_digest_is_another(cached: FilesCached) -> None:
    engines = Engines(inventory(llama_server()))
    Path(cached.path).write_bytes(b"not yet a model")
    assert engines.assess(model(), cached).refusal is not None
    Path(cached.path).write_bytes(header(LLAMA))
    assert engines.assess(model(), files(cached.path, digest="d2")).refusal is None


def test_does_not_refuse_a_file_that_cannot_be_read_just_now(cached: FilesCached) -> None:
    Path(cached.path).unlink()
    assessment = ENGINES.assess(model(), cached)
    assert (assessment.refusal, assessment.lasting) == (None, False)
    choice = assessment.choice
    assert choice is not None
    with pytest.raises(Transient):
        ENGINES.launch(model(), cached, choice, port=18001, environment={}, secrets={})


def test_refuses_safetensors_on_cpu(cached: FilesCached) -> None:
    said = refusal(files(cached.path, format=Format.SAFETENSORS))
    assert said.startswith("no backend on this node can run safetensors")


def test_gives_each_launch_a_key_of_its_own(cached: FilesCached) -> None:
    choice = ENGINES.assess(model(), cached).choice
    assert choice is not None
    one, two = (
        ENGINES.launch(model(), cached, choice, port=18001, environment={}, secrets={})
        for _ in range(2)
    )
    assert one.api_key != two.api_key
    assert one.env["LLAMA_API_KEY"] == one.api_key
    assert one.api_key is not None
    assert len(one.api_key) >= 32


def test_rejects_a_secret_that_nobody_resolved(cached: FilesCached) -> None:
    wants = model(env={"TOKEN": SecretRef(from_env="HF_TOKEN")})
    choice = ENGINES.assess(wants, cached).choice
    assert choice is not None
    with pytest.raises(Rejected, match=r"env\.TOKEN"):
        ENGINES.launch(wants, cached, choice, port=18001, environment={}, secrets={})


@pytest.mark.parametrize("pooling", ["rank", None])
def test_takes_a_reranker_by_its_head(cached: FilesCached, pooling: str | None) -> None:
    Path(cached.path).write_bytes(tiny_bert(pooling=pooling))
    assert ENGINES.assess(model(type=ModelType.RERANK), cached).refusal is None


@pytest.mark.parametrize(
    ("type", "pooling", "why"),
    [
        (ModelType.RERANK, "rank", "it has no classification head, so its scores mean nothing"),
        (ModelType.LLM, "cls", "it is an encoder, which generates no text"),
    ],
)
def test_refuses_files_of_another_type_until_others_come(
    cached: FilesCached, type: ModelType, pooling: str, why: str
) -> None:
    """llama.cpp#25447, where it answers all the same, and gpustack#2408 (scenario 54)."""
    Path(cached.path).write_bytes(tiny_bert(pooling=pooling, head=False))
    assessment = ENGINES.assess(model(type=type), cached)
    assert assessment.refusal == (
        f"cannot serve {cached.path} as type {type}: {why}; "
        "push a good one to gguf/google_gemma-3-270m in the hub, and it is taken by itself"
    )
    assert assessment.bad_files


@pytest.mark.parametrize("type", [ModelType.LLM, ModelType.RERANK])
def test_says_nothing_of_the_type_of_files_that_are_not_here(type: ModelType) -> None:
    assert ENGINES.assess(model(type=type), None).refusal is None


@pytest.mark.parametrize("pooling", ["mean", "rank", None])
def test_a_rerankers_pooling_follows_from_its_type(
    cached: FilesCached, pooling: str | None
) -> None:
    Path(cached.path).write_bytes(tiny_bert())
    said = refusal(cached, type=ModelType.RERANK, extra_args={"pooling": pooling})
    assert said == "cannot use extra_args.pooling: it follows from the model's `type`"
