"""What an operator reads of a model on its fallback."""

from dataclasses import replace

from reconciler.backend.engines import Assessment, Engines
from reconciler.backend.inventory import Inventory
from reconciler.backend.standing_in import standing_in
from reconciler.plan.desired import DesiredModel
from tests.backend.build import inventory, llama_server, model, spec, vllm

SOURCE = "huggingface/org_name"
LACKS_VLLM = inventory(llama_server(), vllm_cpu="no vllm on PATH")


def assessed(there: Inventory, source: str = SOURCE, fallback: str = "gguf/a") -> Assessment:
    engines, wanted = Engines(there), model(source=fallback)
    of_source = replace(wanted, spec=spec(source=source))
    verdict = engines.assess(of_source, None)
    return standing_in(engines.assess(wanted, None), source, verdict)


def test_the_reason_says_why_the_source_is_not_used() -> None:
    choice = assessed(LACKS_VLLM).choice
    assert choice is not None
    assert choice.reason == (
        "fallback: the first for gguf on CPU that is here: /opt/llama.cpp/llama-server, version "
        "6123 (abc); huggingface/org_name cannot run here: no backend on this node can run "
        "safetensors on the CPU (vllm-cpu: no vllm on PATH)"
    )
    assert choice.passed_over == ("vllm-cpu: no vllm on PATH",)


def test_what_was_passed_over_is_the_sources_then_the_fallbacks() -> None:
    there = inventory(
        llama_server(kind="vulkan"), vllm_cpu="no vllm on PATH", llama_server_cpu="built for vulkan"
    )
    none = assessed(there)
    assert none.no_backend is not None
    assert none.refusal is not None
    assert none.refusal.startswith("huggingface/org_name cannot run here: no backend")
    assert "(vllm-cpu: no vllm on PATH); nor its fallback: no backend on this" in none.refusal
    assert "llama-server-cpu: built for vulkan" in none.refusal


def test_a_source_that_could_run_by_now_is_told() -> None:
    choice = assessed(inventory(llama_server(), vllm())).choice
    assert choice is not None
    assert choice.build.id == "llama-server-cpu"
    assert choice.reason.endswith(
        "; huggingface/org_name could run here on vllm-cpu by now, and is used from its next start "
        "on"
    )


def test_a_source_of_which_nothing_is_known_any_more() -> None:
    choice = assessed(LACKS_VLLM, source="mine/org_name").choice
    assert choice is not None
    assert choice.reason.endswith("; no backend here could run mine/org_name")


def test_a_fallback_that_its_engine_refuses_is_refused_in_the_engines_words() -> None:
    wanted: DesiredModel = model(source="gguf/a", extra_args={"ctx_sise": 1})
    refused = Engines(LACKS_VLLM).assess(wanted, None)
    assert standing_in(refused, SOURCE, Assessment()).refusal == refused.refusal
