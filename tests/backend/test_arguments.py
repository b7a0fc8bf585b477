import json
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.backend.arguments import Tongue, translate
from reconciler.backend.flags import Flags, Takes
from reconciler.backend.llama_options import DIALECT
from reconciler.backend.vllm_flag_lists import flags_of
from reconciler.backend.vllm_options import DIALECT as VLLM
from reconciler.errors import Rejected
from reconciler.plan.desired import JsonValue
from tests.backend.build import HELP_FLAGS

ROOT = "/cache/gemma"


def words(extra_args: Mapping[str, JsonValue], flags: Flags = HELP_FLAGS) -> list[str]:
    tongue = Tongue(dialect=DIALECT, flags=flags, engine="llama-server 6123")
    translated = translate(extra_args, tongue, ROOT)
    return [word for argument in translated.arguments for word in argument.words]


@pytest.mark.parametrize(
    ("extra_args", "expected"),
    [
        ({"ctx_size": 8192}, ["--ctx-size", "8192"]),
        ({"ctx-size": 8192}, ["--ctx-size", "8192"]),
        ({"temp": 0.25, "seed": -1}, ["--temp", "0.25", "--seed", "-1"]),
        ({"cont_batching": True}, ["--cont-batching"]),
        ({"cont_batching": False}, ["--no-cont-batching"]),
        ({"no_cont_batching": True}, ["--no-cont-batching"]),
        ({"no_cont_batching": False}, ["--cont-batching"]),
        ({"no_mmproj": True}, ["--no-mmproj"]),
        ({"swa_full": True}, ["--swa-full"]),
        ({"swa_full": False}, []),
        ({"flash_attn": True}, ["--flash-attn", "on"]),
        ({"flash_attn": False}, ["--flash-attn", "off"]),
        ({"flash_attn": "auto"}, ["--flash-attn", "auto"]),
        ({"cpu_strict": True}, ["--cpu-strict", "1"]),
        ({"samplers": ["top_k", "temperature"]}, ["--samplers", "top_k;temperature"]),
        ({"override_kv": ["a=int:1", "b=bool:true"]}, ["--override-kv", "a=int:1,b=bool:true"]),
        (
            {"reverse_prompt": ["a,b", "c"]},
            ["--reverse-prompt", "a,b", "--reverse-prompt", "c"],
        ),
        (
            {"control_vector_layer_range": [2, 8]},
            ["--control-vector-layer-range", "2", "8"],
        ),
        ({"samplers": []}, []),
        (
            {"chat_template_kwargs": {"enable_thinking": False, "ü": [1]}},
            ["--chat-template-kwargs", '{"enable_thinking":false,"ü":[1]}'],
        ),
        (
            {"chat_template_file": "@/templates/chat.jinja"},
            ["--chat-template-file", "/cache/gemma/templates/chat.jinja"],
        ),
        ({"lora": ["@/a.gguf", "@/b.gguf"]}, ["--lora", f"{ROOT}/a.gguf,{ROOT}/b.gguf"]),
        ({"ctx_size": None}, []),
        ({"ctx_size": 4096.0}, ["--ctx-size", "4096"]),
        ({"n_gpu_layers": "auto"}, ["--n-gpu-layers", "auto"]),
        ({"json_schema": {"type": "object"}}, ["--json-schema", '{"type":"object"}']),
        ({"chat_template": ""}, ["--chat-template", ""]),
    ],
)
def test_turns_a_value_into_words(extra_args: dict[str, JsonValue], expected: list[str]) -> None:
    assert words(extra_args) == expected


@pytest.mark.parametrize(
    ("extra_args", "message"),
    [
        ({"ctx_sise": 1}, "llama-server 6123 has no flag --ctx-sise; did you mean ctx_size?"),
        ({"qqqqqq": 1}, "llama-server 6123 has no flag --qqqqqq"),
        ({"--ctx-size": 1}, "write a flag's long name without its dashes"),
        ({"c": 1}, "has no flag --c"),
        ({"ctx_size": True}, "it takes a value, not true or false"),
        ({"ctx_size": "4k"}, "it takes a number in digits, not '4k'"),  # llama.cpp reads 4
        ({"ctx_size": [1, 2]}, "it takes one number, not a list"),
        ({"override_kv": {"a": "int:1"}}, "it takes no map"),
        ({"chat_template": "@/x.jinja"}, "use chat_template_file for a file"),
        ({"json_schema": "@/x.json"}, "use json_schema_file for a file"),
        ({"cont_batching": 1}, "it takes no value: write true or false"),
        ({"cont_batching": [True]}, "it takes no value: write true or false"),
        ({"samplers": ["a;b"]}, "'a;b' holds ';'"),
        ({"samplers": [True]}, "a list may hold texts and numbers only"),
        ({"samplers": [["a"]]}, "a list may hold texts and numbers only"),
        ({"control_vector_layer_range": [1]}, "it takes two values, not 1"),
        ({"control_vector_layer_range": "1 2"}, "it takes a list of two values"),
        ({"temp": float("inf")}, "inf is not a number"),
        ({"chat_template": "a\0b"}, "a character that no argument can hold"),
        ({"chat_template_kwargs": {"a": "\ud83d"}}, "a character that no argument can hold"),
        ({"chat_template_kwargs": {"a": float("nan")}}, "JSON has no numbers"),
        ({"ctx_size": 1, "ctx-size": 2}, "it means the same as ctx_size"),
        ({"predict": 1, "n_predict": 2}, "it means the same as predict"),
        ({"draft_max": 8}, "llama-server 6123 has removed --draft-max: use --spec-draft-n-max"),
        ({"ctx_size": 1.5}, "it takes a whole number, not 1.5"),  # llama.cpp reads 1
        ({"flash_attn": "maybe"}, "'maybe' is none of on, off, auto, true"),
        ({"fit": "auto"}, "'auto' is none of on, off, true"),
        ({"lora": "@/a.gguf,@/b.gguf"}, "write several files as a list"),
        ({"chat_template_file": "@/../secret"}, "inside the model's files"),
    ],
)
def test_rejects_what_cannot_be_passed_on(extra_args: dict[str, JsonValue], message: str) -> None:
    with pytest.raises(Rejected, match=r"^cannot use extra_args\.") as error:
        words(extra_args)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("extra_args", "message"),
    [
        ({"max_model_len": {"a": 1}}, "it takes one value, not a map"),
        ({"max_model_len": [1, 2]}, "it takes one value, not a list"),
        ({"max_model_len": "long"}, "it takes a whole number, a size such as 32k, or auto, not"),
        ({"max_num_seqs": 4.5}, "it takes a whole number, not '4.5'"),
        ({"max_num_seqs": "4k"}, "it takes a whole number, not '4k'"),
        ({"cpu_offload_gb": "some"}, "it takes a number, not 'some'"),
        ({"compilation_config": "{bad json"}, "it takes a map, not '{bad json'"),
        ({"dtype": "float99"}, "'float99' is none of auto, bfloat16, float"),
        ({"dtype": ["half"]}, "it takes one value, not a list"),
        ({"attention_backend": "NOPE"}, "'NOPE' is none of auto, FLASH_ATTN, "),
        ({"cudagraph_capture_sizes": [1, 2.5]}, "it takes a whole number, not '2.5'"),
    ],
)
def test_what_vllm_would_refuse_is_found_without_its_start(
    extra_args: dict[str, JsonValue], message: str
) -> None:
    with pytest.raises(Rejected) as error:
        vllm_words(extra_args)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "extra_args",
    [
        {"max_model_len": "auto"},
        {"max_model_len": "25.6k"},
        {"max_model_len": -1},
        {"max_num_batched_tokens": "8K"},
        {"max_num_seqs": 4.0},
        {"max_num_seqs": " 4"},
        {"max_log_len": "None"},
        {"cpu_offload_gb": 4.5},
        {"compilation_config": {"mode": 3}},
        {"compilation_config": '{"max_capture_size": 2k}'},
        {"compilation_config": "3"},
        {"compilation_config.mode": "x"},
        {"dtype": "half"},
        {"attention_backend": "flash_attn"},
        {"moe_backend": "flashinfer-cutlass"},
        {"cudagraph_capture_sizes": [1, 2]},
        {"seed": 0},
    ],
)
def test_what_vllm_reads_is_passed_on(extra_args: dict[str, JsonValue]) -> None:
    assert vllm_words(extra_args)


OTHERS = pytest.mark.parametrize(
    "version", ["0.10.0", "0.10.1", "0.15.1", "0.17.0", "0.18.0", "0.31.0", "0.33.0", None]
)
"""Releases whose words this one does not know."""


@OTHERS
@pytest.mark.parametrize(
    ("extra_args", "message"),
    [
        ({"max_num_seqs": "lots"}, "it takes a number or a size, not 'lots'"),
        ({"tensor_parallel_size": [1, 2]}, "it takes one value, not a list"),
        ({"gpu_memory_utilization": {"a": 1}}, "it takes one value, not a map"),
        ({"max_model_len": True}, "it takes a value, not true or false"),
        ({"compilation_config": "{bad json"}, "it takes a map, not '{bad json'"),
    ],
)
def test_of_other_releases_what_is_no_number_is_refused(
    version: str | None, extra_args: dict[str, JsonValue], message: str
) -> None:
    with pytest.raises(Rejected) as error:
        vllm_words(extra_args, version)
    assert message in str(error.value)


@OTHERS
def test_of_other_releases_no_more_is_judged(version: str | None) -> None:
    said: dict[str, JsonValue] = {
        "dtype": "float99",
        "max_num_seqs": "4k",
        "max_model_len": "auto",
        "compilation_config": "3",
        "limit_mm_per_prompt": "image=2",
    }
    assert vllm_words(said, version)


def test_passes_an_unknown_flag_to_a_build_that_does_not_tell_its_flags() -> None:
    assert words({"brand_new": 1, "switch": True, "other": False}, Flags()) == [
        "--brand-new",
        "1",
        "--switch",
    ]


@pytest.mark.parametrize("value", ["--agent", "-m", "-1--x"])
def test_no_value_becomes_a_flag_where_nothing_is_known_of_its_own(value: str) -> None:
    """`jinja: --agent` would else switch on what the policy never saw."""
    with pytest.raises(Rejected, match="it would be another flag"):
        words({"jinja": value}, Flags())
    assert words({"temp": "-1.5e-3"}, Flags()) == ["--temp", "-1.5e-3"]


names = st.sampled_from(
    [
        flag.name.removeprefix("--").replace("-", "_")
        for flag in HELP_FLAGS.flags
        if flag.takes is Takes.VALUE
    ]
)
scalars = st.one_of(st.text(max_size=20), st.integers(), st.floats(), st.booleans(), st.none())
values: st.SearchStrategy[JsonValue] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(names | st.text(max_size=12), values, max_size=5))
def test_gives_words_that_can_be_executed_or_rejects(extra_args: dict[str, JsonValue]) -> None:
    try:
        result = words(extra_args)
    except Rejected:
        return
    assert not any("\0" in word for word in result)


@given(st.text(alphabet="./\\@ab", max_size=12))
def test_keeps_model_files_inside_the_models_folder(path: str) -> None:
    try:
        result = words({"chat_template_file": f"@/{path}"})
    except Rejected:
        return
    inside = PurePosixPath(result[1])
    assert inside.is_relative_to(ROOT)
    assert ".." not in inside.parts


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.one_of(
            st.booleans(),
            st.integers(),
            st.text(st.characters(codec="utf-8", exclude_characters="@"), max_size=5),
        ),
        min_size=1,
    )
)
def test_writes_a_map_as_json_that_means_the_same(kwargs: dict[str, JsonValue]) -> None:
    assert json.loads(words({"chat_template_kwargs": kwargs})[1]) == kwargs


def vllm_words(extra_args: Mapping[str, JsonValue], version: str | None = "0.32.0") -> list[str]:
    tongue = Tongue(dialect=VLLM, flags=flags_of(version), engine=f"vLLM {version}")
    return [
        word
        for argument in translate(extra_args, tongue, ROOT).arguments
        for word in argument.words
    ]


@pytest.mark.parametrize(
    ("extra_args", "expected"),
    [
        ({"max_model_len": "4k"}, ["--max-model-len", "4k"]),
        ({"max_model_len": "4K"}, ["--max-model-len", "4K"]),
        ({"kv_cache_memory_bytes": "1.5g"}, ["--kv-cache-memory-bytes", "1.5g"]),
        ({"max_model_len": -1}, ["--max-model-len", "-1"]),
        ({"max_num_seqs": 8.0}, ["--max-num-seqs", "8"]),
        ({"no_enable_lora": False}, ["--enable-lora"]),
        ({"max_model_len": None}, []),
        (
            {"compilation_config.cudagraph_capture_sizes": [1, 2]},
            ["--compilation-config.cudagraph_capture_sizes", "[1,2]"],
        ),
        (
            {"compilation_config.pass_config.fuse_norm_quant": True},
            ["--compilation-config.pass_config.fuse_norm_quant", "true"],
        ),
        (
            {"speculative_config": {"model": "@/draft", "num_speculative_tokens": 2}},
            ["--speculative-config", f'{{"model":"{ROOT}/draft","num_speculative_tokens":2}}'],
        ),
        ({"lora_modules": ["a=@/x", "b=@/y"]}, ["--lora-modules", f"a={ROOT}/x", f"b={ROOT}/y"]),
    ],
)
def test_turns_a_value_into_words_for_vllm(
    extra_args: dict[str, JsonValue], expected: list[str]
) -> None:
    assert vllm_words(extra_args) == expected


@pytest.mark.parametrize(
    ("extra_args", "message"),
    [
        ({"kv_cache_memory_bytes": "4GiB"}, "write 4G (k is 1000, K is 1024), not 4GiB"),
        ({"kv_cache_memory_bytes": "512MB"}, "write 512M (k is 1000, K is 1024), not 512MB"),
        ({"max_model_len": "1.5K"}, "1.5K is a fraction of a binary unit"),
        ({"cpu_offload_gb": -0.5}, "-0.5 begins with a dash"),
        ({"enable_lora": "true"}, "it takes no value: write true or false"),
        ({"compilation_config.": 1}, "write a flag's long name"),
        ({"compilation_config..mode": 1}, "write a flag's long name"),
        ({"max_model_length": 1}, "did you mean max_model_len?"),
    ],
)
def test_rejects_what_vllm_would_misread(extra_args: dict[str, JsonValue], message: str) -> None:
    with pytest.raises(Rejected, match=r"^cannot use extra_args\.") as error:
        vllm_words(extra_args)
    assert message in str(error.value)
