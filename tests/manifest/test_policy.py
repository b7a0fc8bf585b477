"""Flags that a manifest may not set by itself, in every spelling of them."""

import argparse
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reconciler.backend
from reconciler.backend.xllamacpp_params import FLAGS
from reconciler.manifest.flag_rules import FlagRules
from reconciler.manifest.llama_rules import LLAMA_RULES
from reconciler.manifest.policy import (
    UNKNOWN_FLAG,
    canonical,
    flag_ruling,
    nearest_flag,
    never_allowed,
)
from reconciler.manifest.vllm_rules import VLLM_RULES
from reconciler.plan.desired import JsonValue
from tests.backend.build import HELP_FLAGS, llama_cpp_python
from tests.manifest.texts import words

VLLM_LISTS = sorted((Path(reconciler.backend.__file__).parent / "vllm_flags").glob("*.json"))
RULES = {"llama": LLAMA_RULES, "vllm": VLLM_RULES}


def lines_of(listed: Path) -> list[str]:
    takes: dict[str, list[str]] = json.loads(listed.read_text())["takes"]
    return [line for lines in takes.values() for line in lines]


def verdict(family: str, flag: str, value: JsonValue = "x") -> str:
    ruling = flag_ruling(family, flag, value)
    if ruling is None:
        return "free"
    return "never" if ruling.never else "asked"


@pytest.mark.parametrize(
    "flag",
    words(
        "host --host HOST port m -m model a alias api_key --api-key-file hf hfr hf-repo mu "
        "model_url mmproj_url dr docker_repo offline no_offline device dev main-gpu ts split_mode "
        "embeddings reranking log_file ssl_key_file rpc models_dir version nnodes "
        "fim-qwen-1.5b-default sleep_idle_seconds cors_origins hf_token log_disable"
    ),
)
def test_flags_of_llama_cpp_that_no_node_allows(flag: str) -> None:
    assert verdict("llama", flag) == "never"


@pytest.mark.parametrize(
    "flag",
    words(
        "path tools agent --tools mcp_servers_json slot_save_path lookup_cache_dynamic media_path "
        "video_ffmpeg_dir log-prompts-dir ui_mcp_proxy trust_remote_code brand_new c verbose"
    ),
)
def test_flags_of_llama_cpp_that_need_a_permission(flag: str) -> None:
    assert verdict("llama", flag) == "asked"


@pytest.mark.parametrize(
    "flag",
    words(
        "ctx_size --ctx-size parallel threads jinja no_mmproj no_host pooling cache_ram "
        "flash_attn ubatch_size spec_default n_gpu_layers mlock no_mmap no-context-shift "
        "temp reasoning_format cache_type_k draft_max"
    ),
)
def test_free_flags_of_llama_cpp(flag: str) -> None:
    assert verdict("llama", flag) == "free"


@pytest.mark.parametrize(
    "flag",
    words(
        "served-model-name api_key nnodes tensor_parallel_size ssl_keyfile hf_token config "
        "distributed-executor-backend ssl_ciphers enable_sleep_mode disable_log_stats "
        "device_memory_utilization data_parallel_start_rank grpc grpc_port host.x hos ssl serv "
        "no_enable_sleep_mode root_path task revision enable_elastic_ep"
    ),
)
def test_flags_of_vllm_that_no_node_allows(flag: str) -> None:
    assert verdict("vllm", flag) == "never"


@pytest.mark.parametrize(
    "flag",
    words(
        "trust_remote_code trust-remote trust middleware tool_parser_plugin worker_cls worker_ext "
        "kv_transfer_config.kv_connector model_class_overrides profiler_config tool-server "
        "logits_processors allowed_local_media_path otlp_traces_endpoint kv_events_config "
        "additional_config enable_prompt_embeds trust_request_chat_template brand_new "
        "reasoning_parser_plugin io_processor_plugin scheduler-cls enable_log_outputs Trust_Remote "
        "logits_processor_pattern enable_scale_out"
    ),
)
def test_flags_of_vllm_that_need_a_permission(flag: str) -> None:
    assert verdict("vllm", flag) == "asked"


@pytest.mark.parametrize(
    "flag",
    words(
        "max_model_len enable_prefix_caching no_enable_prefix_caching dtype reasoning_parser seed "
        "tool_call_parser enable_auto_tool_choice kv_cache_memory_bytes data_parallel_size "
        "log_level pooler_config shutdown_timeout allowed_media_domains"
    ),
)
def test_free_flags_of_vllm(flag: str) -> None:
    assert verdict("vllm", flag) == "free"


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("trust_remote_code", False, "free"),
        ("trust_remote_code", None, "free"),
        ("no_trust_remote_code", True, "free"),
        ("no_trust_remote_code", False, "asked"),
        ("trust_remote_code", "false", "asked"),
        ("disable_log_requests", True, "free"),
        ("disable_log_requests", False, "asked"),
        ("enable_log_requests", False, "free"),
        ("api_key", None, "never"),
        ("load_format", "safetensors", "free"),
        ("load_format", "dummy", "free"),
        ("load_format", "pt", "asked"),
        ("load_format", "runai_streamer", "asked"),
        ("hf_overrides", {"architectures": ["X"]}, "free"),
        ("hf_overrides", '{"auto_map": {"AutoConfig": "evil.C"}}', "asked"),
        ("hf_overrides.auto_map.AutoConfig", "evil.C", "asked"),
        ("mm_processor_kwargs", {"deep": [{"trust_remote_code": True}]}, "asked"),
        ("mm_processor_kwargs", {"a": "/etc/passwd"}, "asked"),
        ("media_io_kwargs", {"a": "file:///etc/passwd"}, "asked"),
        ("quantization", "https://example.com/x", "asked"),
        ("compilation_config", 3, "free"),
        ("compilation_config", {"mode": 3, "backend": "inductor"}, "free"),
        ("compilation_config", {"backend": "evil.compiler"}, "asked"),
        ("compilation_config", {"inductor_passes": {"a": "os.system"}}, "asked"),
        ("compilation_config.inductor_passes.a", "os.system", "asked"),
        ("compilation_config", '  {"cache_dir": "here"}', "asked"),
        ("compilation-config.cache_dir", "here", "asked"),
        ("compilation_config.pass_config", '{"fuse_norm_quant": true}', "free"),
        ("structured_outputs_config", {"reasoning_parser_plugin": "x.py"}, "asked"),
        ("structured_outputs_config.backend", "xgrammar", "free"),
        ("speculative_config", {"method": "ngram", "num_speculative_tokens": 3}, "free"),
        ("speculative_config", {"model": "@/draft"}, "free"),
        ("speculative_config", {"model": "org/name"}, "asked"),
        ("speculative_config.model", "/models/x", "asked"),
        ("speculative_config", {"draft_load_config": {"load_format": "pt"}}, "asked"),
        ("lora_modules", "sql=@/adapters/sql", "free"),
        ("lora_modules", "sql=/etc/adapters", "asked"),
        ("lora_modules", '{"name": "sql", "path": "/etc/adapters"}', "asked"),
        ("default_mm_loras", {"audio": "@/lora"}, "free"),
        ("default_mm_loras", {"audio": "/lora"}, "asked"),
        ("chat_template", "{% for m in messages %}{{ m }}, and so on{% endfor %}", "free"),
        ("chat_template", "@/template.jinja", "free"),
        ("chat_template", "/etc/template.jinja", "asked"),
        ("chat_template", "@/../{x}", "never"),
        ("chat_template", "/srv/{x}.jinja", "asked"),
        ("spec_model", "@/draft", "free"),
        ("spec_model", "/draft", "asked"),
        ("tokenizer", "org/name", "asked"),
        ("generation_config", "vllm", "free"),
        ("generation_config", "/etc", "asked"),
    ],
)
def test_values_of_vllm(flag: str, value: JsonValue, expected: str) -> None:
    assert verdict("vllm", flag, value) == expected


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("lora", "/etc/passwd", "asked"),
        ("lora", ["@/a.gguf", "b.gguf"], "asked"),
        ("lora", "@/a.gguf,/b.gguf", "asked"),
        ("--lora-scaled", "/a:0.5", "asked"),
        ("md", "draft.gguf", "asked"),
        ("chat_template_file", "@/../x", "never"),
        ("json_schema", "@/../x", "never"),
        ("anything", {"deep": ["@/a/../../x"]}, "never"),
        ("lora", "@/adapter.gguf", "free"),
        ("lora_scaled", "@/adapter.gguf:0.5", "free"),
        ("chat_template_file", "@/templates/chat.jinja", "free"),
        ("chat_template", "{{ bos_token }}", "free"),
        ("reverse_prompt", "/end", "free"),
        ("json_schema", '{"$schema": "https://json-schema.org/draft"}', "free"),
        ("ctx_size", 8192, "free"),
        ("mmproj", None, "free"),
        ("numa", "/etc/passwd", "asked"),
        ("agent", False, "free"),
        ("no_agent", True, "free"),
        ("no_agent", False, "asked"),
        ("cache_type", "disk", "asked"),
        ("lora_path", "/x", "asked"),
        ("verbosity", 3, "free"),
        ("verbosity", 4, "asked"),
    ],
)
def test_values_of_llama_cpp(flag: str, value: JsonValue, expected: str) -> None:
    assert verdict("llama", flag, value) == expected


@pytest.mark.parametrize("listed", VLLM_LISTS, ids=lambda path: path.stem)
def test_every_flag_of_a_vllm_whose_flags_are_known_was_looked_at(listed: Path) -> None:
    names = [name for line in lines_of(listed) for name in line.split()]
    unknown = [name for name in names if _is_unknown("vllm", name)]
    assert unknown == []


@pytest.mark.parametrize(
    "flags",
    [HELP_FLAGS, FLAGS, llama_cpp_python().flags],
    ids=["llama-server", "xllamacpp", "llama-cpp-python"],
)
def test_every_flag_of_a_llama_cpp_was_looked_at(flags: Any) -> None:
    names = [name for flag in flags.flags for name in (*flag.names, *flag.negations)]
    assert [name for name in names if _is_unknown("llama", name)] == []


def _is_unknown(family: str, flag: str) -> bool:
    ruling = flag_ruling(family, flag, "x")
    return ruling is not None and ruling.reason == UNKNOWN_FLAG


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_flag_stands_in_one_table(rules: FlagRules) -> None:
    tables = [set(rules.ours), set(rules.asked), set(rules.free), set(rules.files)]
    assert sum(map(len, tables)) == len(set().union(*tables))
    assert rules.texts <= rules.free | rules.files
    assert set(rules.values) | set(rules.keys) <= rules.free


def test_an_alias_of_the_build_is_judged_too() -> None:
    assert flag_ruling("llama", "brand_new", "x", ["--brand-new", "--tools"])
    known = flag_ruling("llama", "context", 1, ["--context", "--ctx-size"])
    assert known is None
    outside = flag_ruling("llama", "adapter", "/x", ["--adapter", "--lora"])
    assert outside is not None
    assert outside.name == "lora"


# vLLM reads its command line with argparse, which takes any unique beginning of a flag for it.
class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


PARSER = _Parser(add_help=False)
for _line in sorted({line for path in VLLM_LISTS for line in lines_of(path)}):
    _name = _line.split()[0]
    if _name not in PARSER._option_string_actions:
        PARSER.add_argument(_name, action="append")


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A dangerous flag, and a way to write it that vLLM might take for it."""
    name = draw(st.sampled_from(sorted({*VLLM_RULES.ours, *VLLM_RULES.asked})))
    cut = draw(st.integers(min_value=1, max_value=len(name)))
    mixed = "".join(
        draw(st.sampled_from("-_")) if character == "_" else character for character in name[:cut]
    )
    part = draw(st.sampled_from(["", ".x", ".a.b"]))
    return name, mixed.strip("-_") + part


@given(spellings())
def test_no_spelling_of_a_dangerous_flag_of_vllm_passes(case: tuple[str, str]) -> None:
    _, key = case
    option = "--" + key.partition(".")[0].replace("_", "-")
    try:
        parsed, rest = PARSER.parse_known_args([option, "x"])
    except ValueError:
        return  # it is the beginning of several, and so of none
    meant = [name for name, value in vars(parsed).items() if value]
    if rest or not meant:
        return
    dangerous = {*VLLM_RULES.ours, *VLLM_RULES.asked}
    if meant[0] in dangerous:
        assert verdict("vllm", key) != "free", (key, meant)


@given(
    st.sampled_from(sorted({*LLAMA_RULES.asked, *LLAMA_RULES.ours})),
    st.text(alphabet="-_", max_size=3),
    st.booleans(),
)
def test_no_spelling_of_a_dangerous_flag_of_llama_cpp_passes(
    name: str, before: str, dashed: bool
) -> None:
    written = before.replace("_", "-") + (name.replace("_", "-") if dashed else name)
    assert verdict("llama", written) != "free"
    assert verdict("llama", written.upper()) != "free"


@given(st.text(min_size=1, max_size=30), st.sampled_from(["llama", "vllm"]))
def test_what_nobody_knows_is_not_free(name: str, family: str) -> None:
    known = RULES[family].free | RULES[family].files
    base = canonical(name).partition(".")[0] if family == "vllm" else canonical(name)
    if base not in known and base.lower().removeprefix("no_") not in known:
        assert verdict(family, name) != "free"


def test_a_person_is_told_what_is_near() -> None:
    assert nearest_flag("llama", "ctx_sise") == "ctx_size"
    assert nearest_flag("vllm", "max-model-length") == "max_model_len"
    assert nearest_flag("vllm", "qqqqqq") is None


@pytest.mark.parametrize(
    ("flag", "allowed"),
    [("trust_remote_code", True), ("--tools", True), ("brand_new", True), ("lora", True)]
    + [(flag, False) for flag in words("host api-key served_model_name hf_repo help nnodes rpc")],
)
def test_what_an_operator_can_allow(flag: str, allowed: bool) -> None:
    assert (never_allowed(flag) is None) == allowed


@pytest.mark.parametrize(
    ("family", "flag", "told"),
    [
        ("vllm", "ssl_key_file", "never"),
        ("vllm", "rpc", "never"),
        ("vllm", "no-model-url", "never"),
        ("llama", "served-model-name", "never"),
        ("vllm", "ctx_size", "asked"),
        ("llama", "middleware", "asked"),
        ("llama", "n", "asked"),
    ],
)
def test_what_no_node_allows_one_family_is_not_to_be_allowed_for_the_other(
    family: str, flag: str, told: str
) -> None:
    assert verdict(family, flag) == told


def test_a_name_of_a_build_is_not_taken_for_a_flag_of_the_other_family() -> None:
    """llama-server's -n is --n-predict, and vLLM's would be --nnodes."""
    assert flag_ruling("llama", "n_predict", 5, ["-n", "--predict"]) is None
