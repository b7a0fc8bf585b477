"""Variables that a manifest may not set by itself for its engines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.manifest.policy import UNKNOWN_VARIABLE, variable_ruling
from reconciler.plan.desired import JsonValue, SecretRef
from tests.manifest.texts import words


@pytest.mark.parametrize(
    "name",
    words(
        "XGEN_NONCE CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES SPT_NOENV "
        "GGML_VK_VISIBLE_DEVICES LLAMA_ARG_HOST LLAMA_API_KEY VLLM_API_KEY VLLM_PORT "
        "HF_HUB_OFFLINE TRANSFORMERS_OFFLINE HOST PORT VLLM_CACHE_ROOT MASTER_ADDR VLLM_DP_SIZE"
    ),
)
def test_variables_that_no_node_allows(name: str) -> None:
    ruling = variable_ruling(name, "1")
    assert ruling is not None
    assert ruling.never


@pytest.mark.parametrize(
    "name",
    words(
        "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONPATH PYTHONSTARTUP PYTHONHOME PATH HOME TMPDIR "
        "BASH_ENV VLLM_PLUGINS VLLM_SERVER_DEV_MODE VLLM_ALLOW_INSECURE_SERIALIZATION "
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING VLLM_RUST_FRONTEND_PATH VLLM_NCCL_SO_PATH "
        "VLLM_LOGGING_CONFIG_PATH VLLM_TUNED_CONFIG_FOLDER VLLM_LOOPBACK_IP VLLM_USE_MODELSCOPE "
        "GGML_BACKEND_PATH NCCL_NET_PLUGIN NCCL_TOPO_FILE NCCL_DEBUG_FILE NCCL_CONF_FILE "
        "NCCL_COMM_ID CUDA_HOME CUDA_CACHE_PATH CUDA_INJECTION64_PATH TRITON_CACHE_DIR "
        "TORCHINDUCTOR_CACHE_DIR TORCH_LOGS_OUT HF_HOME HF_MODULES_CACHE XDG_CACHE_HOME CC "
        "http_proxy HTTPS_PROXY ALL_PROXY SSL_CERT_FILE REQUESTS_CA_BUNDLE AWS_ENDPOINT_URL "
        "VK_ICD_FILENAMES VK_DRIVER_FILES OPENSSL_CONF GLIBC_TUNABLES LMCACHE_CONFIG_FILE "
        "OTEL_EXPORTER_OTLP_ENDPOINT MY_OWN VLLM_BRAND_NEW PROMETHEUS_MULTIPROC_DIR GIT_SSH_COMMAND"
    ),
)
def test_variables_that_need_a_permission(name: str) -> None:
    ruling = variable_ruling(name, "1")
    assert ruling is not None
    assert not ruling.never


@pytest.mark.parametrize(
    "name",
    words(
        "OMP_NUM_THREADS HF_TOKEN VLLM_LOGGING_LEVEL GGML_CUDA_ENABLE_UNIFIED_MEMORY TZ "
        "VLLM_ATTENTION_BACKEND VLLM_CPU_KVCACHE_SPACE VLLM_CPU_OMP_THREADS_BIND NCCL_DEBUG "
        "NCCL_P2P_DISABLE PYTORCH_CUDA_ALLOC_CONF HSA_OVERRIDE_GFX_VERSION VLLM_ROCM_USE_AITER "
        "VLLM_ENABLE_V1_MULTIPROCESSING VLLM_USE_V1 CUDA_LAUNCH_BLOCKING LC_ALL"
    ),
)
def test_free_variables(name: str) -> None:
    assert variable_ruling(name, "1") is None


@pytest.mark.parametrize("value", ["/etc/passwd", "~/x", "../x", "https://example.com", "file:x"])
def test_a_free_variable_names_no_place(value: str) -> None:
    assert variable_ruling("VLLM_LOGGING_PREFIX", value) is not None


def test_a_secret_is_not_put_where_an_engine_prints_it() -> None:
    """VLLM_LOGGING_PREFIX: {from_env: MINIO_SECRET_KEY} would stand on every line of a log."""
    secrets: list[JsonValue | SecretRef] = [
        {"from_env": "MINIO_SECRET_KEY"},
        SecretRef(from_env="MINIO_SECRET_KEY"),
        SecretRef(from_file="/run/secrets/key"),
    ]
    for secret in secrets:
        assert variable_ruling("VLLM_LOGGING_PREFIX", secret) is not None
        assert variable_ruling("HF_TOKEN", secret) is None


@given(st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True), st.sampled_from(["LD_", "PYTHON"]))
def test_no_variable_of_the_loader_or_of_python_is_free(name: str, prefix: str) -> None:
    assert variable_ruling(prefix + name, "1") is not None


def test_an_unknown_variable_says_so() -> None:
    ruling = variable_ruling("MY_OWN", "1")
    assert ruling is not None
    assert ruling.reason == UNKNOWN_VARIABLE
