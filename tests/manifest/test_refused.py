"""Flags and variables that a manifest may not set, in every spelling that an engine takes."""

import pytest

from reconciler.manifest.refused import (
    canonical,
    refused_env_reason,
    refused_reason,
    refused_value,
)
from reconciler.plan.desired import JsonValue


def _words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize(
    "flag",
    _words(
        "host --host port m -m model a alias api_key --api-key-file hf hfr hf-repo mu "
        "model_url mmproj_url dr docker_repo offline device dev main-gpu ts split_mode "
        "embeddings reranking path log_file ssl_key_file tools agent no_agent "
        "mcp_servers_json rpc models_dir slot_save_path lookup_cache_dynamic video_ffmpeg_dir "
        "version"
    ),
)
def test_llama_server_flags_that_are_refused(flag: str) -> None:
    assert refused_reason("llama", flag)


@pytest.mark.parametrize(
    "flag",
    _words(
        "ctx_size --ctx-size c parallel np threads jinja no_mmproj no_host pooling cache_ram "
        "flash_attn lora chat_template_file ubatch_size spec_default n_gpu_layers ngl mlock "
        "temp reasoning_format cache_type_k"
    ),
)
def test_llama_server_flags_that_are_allowed(flag: str) -> None:
    assert refused_reason("llama", flag) is None


@pytest.mark.parametrize(
    "flag",
    _words(
        "trust_remote_code trust-remote middleware served-model-name api_key nnodes "
        "tensor_parallel_size tool_parser_plugin ssl_keyfile hf_token worker_cls "
        "kv_transfer_config.kv_connector distributed-executor-backend config ssl_ciphers "
        "enable_sleep_mode disable_log_stats device_memory_utilization model_class_overrides "
        "profiler_config data_parallel_start_rank grpc grpc_port"
    ),
)
def test_vllm_flags_that_are_refused(flag: str) -> None:
    assert refused_reason("vllm", flag)


@pytest.mark.parametrize(
    "flag",
    _words(
        "max_model_len enable_prefix_caching dtype tokenizer reasoning_parser seed "
        "tool_call_parser enable_auto_tool_choice kv_cache_memory_bytes chat_template "
        "data_parallel_size log_level pooler_config enable_log_requests shutdown_timeout"
    ),
)
def test_vllm_flags_that_are_allowed(flag: str) -> None:
    assert refused_reason("vllm", flag) is None


@pytest.mark.parametrize("family", ["llama", "vllm", "another"])
def test_one_model_over_several_nodes_is_refused_for_every_family(family: str) -> None:
    assert refused_reason(family, "nnodes") == "one model over several nodes is not supported"


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("lora", "/etc/passwd"),
        ("lora", ["@/a.gguf", "b.gguf"]),
        ("lora", "@/a.gguf,/b.gguf"),
        ("--lora-scaled", "/a:0.5"),
        ("md", "../draft.gguf"),
        ("chat_template_file", "@/../x"),
        ("anything", "@/../x"),
        ("anything", {"deep": ["@/a/../../x"]}),
    ],
)
def test_files_outside_the_model_are_refused(flag: str, value: JsonValue) -> None:
    assert refused_value("llama", flag, value)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("lora", "@/adapter.gguf"),
        ("lora_scaled", "@/adapter.gguf:0.5"),
        ("chat_template_file", "@/templates/chat.jinja"),
        ("chat_template", "{{ bos_token }}"),
        ("ctx_size", 8192),
        ("mmproj", None),
    ],
)
def test_files_of_the_model_are_allowed(flag: str, value: JsonValue) -> None:
    assert refused_value("llama", flag, value) is None


@pytest.mark.parametrize(
    ("flag", "value", "refused"),
    [
        ("lora_modules", "sql=@/adapters/sql", False),
        ("lora_modules", "sql=/etc/adapters", True),
        ("lora_modules", '{"name": "sql", "path": "/etc/adapters"}', True),
        ("chat_template", "{% for m in messages %}{{ m }}, {% endfor %}", False),
        ("chat_template", "/etc/template.jinja", True),
        ("spec_model", "@/draft", False),
        ("spec_model", "/draft", True),
    ],
)
def test_files_that_a_vllm_may_be_given(flag: str, value: JsonValue, refused: bool) -> None:
    assert (refused_value("vllm", flag, value) is not None) == refused


@pytest.mark.parametrize(
    "name",
    _words(
        "LD_PRELOAD LD_LIBRARY_PATH PYTHONPATH PYTHONSTARTUP PATH XGEN_NONCE "
        "CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES SPT_NOENV "
        "GGML_VK_VISIBLE_DEVICES LLAMA_ARG_HOST LLAMA_API_KEY VLLM_API_KEY VLLM_PORT "
        "HF_HUB_OFFLINE TRANSFORMERS_OFFLINE HOST PORT VLLM_SERVER_DEV_MODE"
    ),
)
def test_variables_that_are_refused(name: str) -> None:
    assert refused_env_reason(name)


@pytest.mark.parametrize(
    "name", ["OMP_NUM_THREADS", "HF_TOKEN", "VLLM_LOGGING_LEVEL", "GGML_CUDA_ENABLE_UNIFIED_MEMORY"]
)
def test_variables_that_are_allowed(name: str) -> None:
    assert refused_env_reason(name) is None


def test_spellings_of_a_flag_are_one() -> None:
    assert canonical("--max-model-len") == canonical("max_model_len") == "max_model_len"
