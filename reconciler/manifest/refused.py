"""Flags and variables that a manifest may not set, with the reasons (design §4).

Two kinds: what the agent sets itself, and what would give an editor of the manifest code, files or
the network on the node. Names come from llama-server's and vLLM's own argument tables.
"""

import re
from collections.abc import Mapping

from reconciler.plan.desired import JsonValue

_OURS = "the agent sets it itself"
_TYPE = "it follows from the model's `type`"
_DEVICE = "the agent selects the devices; use gpus or gpu_ids"
_NAME = "the backend knows the model by its name only; use name and aliases"
_KEY = "the agent gives each backend a random key"
_LOOPBACK = "backends listen on loopback only, and the agent is their only client"
_LOGS = "the agent keeps the backend's output in a log file of its own"
_HUB = "files come from the hub only, and backends run offline; use source"
_CODE = "it would run code of the manifest's choice on the node"
_FILES = "it would open files of the node to the manifest or to clients"
_ROUTER = "one backend serves one model; list several under models"
_EXITS = "it prints something and exits"
_SEVERAL_NODES = "one model over several nodes is not supported"
_CONFIG = "flags stand in extra_args, not in a file of the node"


def _table(*rows: tuple[str, str]) -> Mapping[str, str]:
    return {flag: reason for flags, reason in rows for flag in flags.split()}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLAGS: Mapping[str, Mapping[str, str]] = {
    "llama": _table(
        ("host port reuse_port api_prefix", _OURS),
        ("model m metrics offline no_offline", _OURS),
        ("embedding embeddings rerank reranking", _TYPE),
        ("alias a", _NAME),
        ("tags", _NAME),
        ("device dev main_gpu mg split_mode sm tensor_split ts", _DEVICE),
        ("device_draft devd spec_draft_device mmproj_device mmdev", _DEVICE),
        ("api_key api_key_file", _KEY),
        ("ssl_key_file ssl_cert_file cors_origins cors_methods cors_headers", _LOOPBACK),
        ("cors_credentials no_cors_credentials", _LOOPBACK),
        ("log_file log_disable log_prompts_dir", _LOGS),
        ("hf_repo hf hfr hf_file hff hf_repo_v hfv hfrv hf_file_v hffv hf_token hft", _HUB),
        ("hf_repo_draft hfd hfrd spec_draft_hf docker_repo dr", _HUB),
        ("model_url mu mmproj_url mmu", _HUB),
        ("embd_gemma_default fim_qwen_1_5b_default fim_qwen_3b_default", _HUB),
        ("fim_qwen_7b_default fim_qwen_7b_spec fim_qwen_14b_spec fim_qwen_30b_default", _HUB),
        ("gpt_oss_20b_default gpt_oss_120b_default", _HUB),
        ("vision_gemma_4b_default vision_gemma_12b_default", _HUB),
        ("tools tools_runtime agent ui_mcp_proxy webui_mcp_proxy", _CODE),
        ("mcp_servers_config mcp_servers_json video_ffmpeg_dir", _CODE),
        ("path media_path slot_save_path lookup_cache_dynamic lcd prompt_cache", _FILES),
        ("models_dir models_preset models_max models_autoload no_models_autoload", _ROUTER),
        ("rpc", _SEVERAL_NODES),
        ("help h usage version license licenses list_devices cache_list cl", _EXITS),
        ("completion_bash fit_print", _EXITS),
    ),
    "vllm": _table(
        ("host port uds root_path data_parallel_rpc_port grpc grpc_port", _OURS),
        ("disable_log_stats", "the agent reads these counts"),
        ("enable_sleep_mode", "a model that sleeps would count as loaded"),
        ("model model_tag revision code_revision tokenizer_revision", _HUB),
        ("download_dir hf_token load_format model_loader_extra_config", _HUB),
        ("task runner convert", _TYPE),
        ("served_model_name", _NAME),
        ("device device_ids gpu_ids", _DEVICE),
        ("tensor_parallel_size tp pipeline_parallel_size pp", "use the field of that name"),
        ("gpu_memory_utilization device_memory_utilization", "use gpu_memory"),
        ("api_key", _KEY),
        ("ssl_keyfile ssl_certfile ssl_ca_certs ssl_cert_reqs ssl_ciphers", _LOOPBACK),
        ("enable_ssl_refresh", _LOOPBACK),
        ("allowed_origins allowed_methods allowed_headers allow_credentials", _LOOPBACK),
        ("log_config_file logging_config_file logging_config", _CODE),
        ("trust_remote_code middleware tool_parser_plugin reasoning_parser_plugin", _CODE),
        ("tool_server worker_cls worker_extension_cls scheduler_cls logits_processors", _CODE),
        ("io_processor_plugin kv_transfer_config ec_transfer_config additional_config", _CODE),
        ("hf_config_path model_class_overrides weight_transfer_config", _CODE),
        ("allowed_local_media_path allowed_media_domains profiler_config", _FILES),
        ("mm_encoder_fp8_scale_save_path kv_events_config otlp_traces_endpoint", _FILES),
        ("config", _CONFIG),
        ("nnodes n node_rank r master_addr master_port headless", _SEVERAL_NODES),
        (
            "distributed_executor_backend data_parallel_address data_parallel_backend",
            _SEVERAL_NODES,
        ),
        ("data_parallel_hybrid_lb data_parallel_external_lb data_parallel_rank", _SEVERAL_NODES),
        ("data_parallel_start_rank data_parallel_size_local", _SEVERAL_NODES),
        ("data_parallel_multi_port_external_lb data_parallel_supervisor_port", _SEVERAL_NODES),
        ("help h version", _EXITS),
    ),
}
_ANYWHERE = _table(
    ("nnodes node_rank master_addr master_port", _SEVERAL_NODES),
    ("trust_remote_code", _CODE),
)

_MODEL_FILES: Mapping[str, frozenset[str]] = {
    "llama": _words(
        "lora lora_scaled control_vector control_vector_scaled mmproj mm model_draft md "
        "spec_draft_model chat_template_file grammar_file json_schema_file jf "
        "lookup_cache_static lcs ui_config_file webui_config_file model_vocoder mv "
        "tts_speaker_file binary_file file in_file system_prompt_file"
    ),
    "vllm": _words(
        "chat_template lora_modules tokenizer generation_config spec_model "
        "mm_encoder_fp8_scale_path"
    ),
}
"""Flags whose value names files: only files of the model itself, as `@/…`, may be named."""
_WHOLE: Mapping[str, frozenset[str]] = {
    "llama": _words("no_host"),
    "vllm": _words("tokenizer reasoning_parser data_parallel_size dp"),
}
"""Flags of their own that are also the negation or the beginning of a refused one."""
_NOT_FILES = frozenset({"auto", "vllm"})


def canonical(flag: str) -> str:
    """One spelling for a flag: `--max-model-len` and `max_model_len` are the same."""
    return flag.lstrip("-").replace("-", "_")


def refused_reason(backend_family: str, flag: str) -> str | None:
    """Why the flag is refused, in any spelling; None: it is not. Families: `llama`, `vllm`."""
    name = canonical(flag).partition(".")[0]
    table = _FLAGS.get(backend_family, {})
    if name in _WHOLE.get(backend_family, frozenset()):
        return None
    for candidate in (name, name.lower(), name.lower().removeprefix("no_")):
        if reason := table.get(candidate) or _ANYWHERE.get(candidate):
            return reason
    if backend_family == "vllm":  # argparse takes any unique beginning of a flag for the flag
        return next((table[full] for full in table if full.startswith(name.lower())), None)
    return None


def refused_value(backend_family: str, flag: str, value: JsonValue) -> str | None:
    """Why this value is refused for a flag that is allowed: a file outside the model's folder."""
    texts = [text for text in _texts(value) if text not in _NOT_FILES]
    if any(text.startswith("@/") and ".." in text.split("/") for text in texts):
        return "'@/' paths must stay inside the model's folder"
    if canonical(flag).lower() not in _MODEL_FILES.get(backend_family, frozenset()):
        return None
    parts = [part for text in texts for part in text.split(",")]
    if backend_family == "vllm":
        if canonical(flag).lower() == "chat_template":  # may stand there itself, as Jinja
            parts = [part for part in parts if "{" not in part]
        parts = [part.partition("=")[2] or part for part in parts]
    if all(part.startswith("@/") and ".." not in part.split("/") for part in parts):
        return None
    return f"{_FILES}; name a file of the model itself, as '@/…'"


def _texts(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return []


_ENV_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"XGEN_.*|SPT_NOENV", _OURS),
        (r"LD_.*|GCONV_PATH|LOCPATH|GLIBC_TUNABLES|MALLOC_CHECK_", _CODE),
        (r"PYTHON.*|PATH|BASH_ENV|ENV|SHELLOPTS|PERL.*|IFS", _CODE),
        (r"CC|CXX|NVCC.*|CUDACXX|TRITON_.*|TORCHINDUCTOR_.*", _CODE),
        (r"OPENSSL_.*|GGML_BACKEND_.*", _CODE),
        (r"VK_(ICD|DRIVER|ADD|LAYER|INSTANCE|LOADER)_?.*|OCL_ICD_.*|OPENCL_.*", _CODE),
        (r"(CUDA|NVTX)_INJECTION.*|HSA_TOOLS_.*|ROCP_.*|OMP_TOOL.*", _CODE),
        (r"NCCL_.*PLUGIN|RCCL_.*PLUGIN", _CODE),
        (r"VLLM_(PLUGINS|CACHE_ROOT|CONFIG_ROOT|LOGGING_CONFIG_PATH)", _CODE),
        (r"VLLM_(ALLOW_INSECURE_SERIALIZATION|ALLOW_RUNTIME_LORA_UPDATING)", _CODE),
        (r"VLLM_(SERVER_DEV_MODE|USE_MODELSCOPE)", _CODE),
        (r".*_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|GPU_DEVICE_ORDINAL", _DEVICE),
        (r"(LLAMA|VLLM)_API_KEY|API_KEY", _KEY),
        (r"LLAMA_ARG_.*", "flags of the engine stand in extra_args"),
        (r"LLAMA_(CACHE|SERVER_.*|APP_CMD)", _OURS),
        (r"VLLM_(HOST_IP|PORT|KEEP_ALIVE_ON_ENGINE_DEATH)|HOST|HOST_IP|PORT|MODEL", _OURS),
        (r"LLAMA_LOG_FILE", _LOGS),
        (r"CONFIG_FILE", _CONFIG),
        (r"(HF_HUB|TRANSFORMERS|HF_DATASETS)_OFFLINE|HF_ENDPOINT", _HUB),
    )
)


def refused_env_reason(name: str) -> str | None:
    """Why a backend's environment may not hold this variable; None: it may."""
    return next((reason for rule, reason in _ENV_RULES if rule.fullmatch(name)), None)
