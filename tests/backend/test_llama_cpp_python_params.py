"""llama-server's flags as settings of llama-cpp-python's server."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.backend.flags import Takes
from reconciler.backend.llama_cpp_python import check
from reconciler.backend.llama_cpp_python_params import PARAMETERS, flags_of
from reconciler.backend.model_info import ModelInfo
from reconciler.errors import Rejected
from reconciler.manifest.policy import flag_ruling
from reconciler.plan.desired import ModelType
from tests.backend.build import HELP_FLAGS, LLM, SETTINGS, llama_cpp_python, spec


def told(**extra_args: Any) -> str | None:
    """Why they cannot be told; None: they can."""
    try:
        check(spec(extra_args=extra_args), "/", LLM, llama_cpp_python())
    except Rejected as exc:
        return str(exc)
    return None


def test_the_table_sets_what_there_is_and_by_names_that_llama_server_has() -> None:
    for parameter in PARAMETERS:
        assert {*parameter.settings} <= {*SETTINGS}, parameter.flag.name
        own = f"--{parameter.settings[0].replace('_', '-')}" if parameter.settings else ""
        theirs = HELP_FLAGS.find(parameter.flag.name) is not None
        assert theirs or parameter.flag.name == own, parameter.flag.name


def test_every_setting_is_a_flag_that_the_policy_knows() -> None:
    flags = flags_of(SETTINGS)
    for setting in SETTINGS:
        assert flags.find(f"--{setting.replace('_', '-')}") is not None, setting
        ruling = flag_ruling("llama", setting, None)
        assert ruling is None or ruling.never, setting


@pytest.mark.parametrize(
    ("word", "refusal"),
    [
        ("chatml", None),
        ("chat_template.tool_use", None),
        ("chatlm", "it has no 'chatlm'; did you mean chatml?"),
        ("bogus", "it has no 'bogus'; there are chatml, mtmd"),
    ],
)
def test_a_chat_format_is_one_that_the_build_knows(word: str, refusal: str | None) -> None:
    """It takes any, and then answers each chat with 500."""
    build = replace(llama_cpp_python(), flags=flags_of(SETTINGS, ("chatml", "mtmd")))
    said = None
    try:
        check(spec(extra_args={"chat_format": word}), "/", LLM, build)
    except Rejected as exc:
        said = str(exc)
    assert said == (
        refusal and f"cannot tell llama-cpp-python 0.3.36 extra_args.chat_format: {refusal}"
    )


@pytest.mark.parametrize(
    ("annotation", "takes"),
    [
        ("<class 'bool'>", Takes.ON_OFF),
        ("typing.Optional[bool]", Takes.ON_OFF),
        ("bool | None", Takes.ON_OFF),
        ("<class 'int'>", Takes.VALUE),
        ("typing.Optional[str]", Takes.VALUE),
        ("typing.Literal['ram', 'disk']", Takes.VALUE),
        ("typing.Optional[typing.List[float]]", Takes.SEVERAL),
        ("list[str] | None", Takes.SEVERAL),
        ("typing.Optional[typing.Dict[str, typing.Any]]", Takes.JSON),
    ],
)
def test_a_setting_takes_what_its_type_says(annotation: str, takes: Takes) -> None:
    flag = flags_of({"new_one": annotation}).find("--new-one")
    assert flag is not None
    assert flag.takes is takes


@pytest.mark.parametrize(
    ("extra_args", "why"),
    [
        ({"ctx_size": -1}, "-1 is not from 0 to 2147483647"),
        ({"n_batch": 0}, "0 is not from 1 to 2147483647"),
        ({"gpu_layers": "auto"}, "'auto' is not a whole number"),
        ({"gpu_layers": "all"}, None),
        ({"flash_attn": "auto"}, "'auto' is none of on, off"),
        ({"flash_attn": False}, None),
        ({"cache_type_k": "q2_k"}, "'q2_k' is none of f32, f16"),
        ({"rope_scale": 0}, "0 is not a scale"),
        ({"rope_freq_base": "high"}, "'high' is not a number"),
        ({"numa": "distribute"}, None),
        ({"numa": "isolate"}, "'isolate' is none of on, off, distribute"),
        ({"override_kv": "key"}, "'key' is not KEY=TYPE:VALUE"),
        ({"override_kv": "key=int8:1"}, "'key=int8:1' is not KEY=TYPE:VALUE"),
        ({"override_kv": "key=str:a:b"}, "no value with an = or a colon"),
        ({"ctx_size": 1, "n_ctx": 1}, "it means the same as ctx_size"),
        ({"parallel": 2}, "it answers one request at a time"),
        ({"interrupt_requests": True, "logits_all": True}, None),
        ({"jinja": True}, "has no flag --jinja"),
    ],
    ids=str,
)
def test_what_cannot_be_said_is_refused_with_the_reason(
    extra_args: dict[str, Any], why: str | None
) -> None:
    reason = told(**extra_args)
    if why is None:
        assert reason is None
    else:
        assert reason is not None
        assert why in reason


def test_an_embedding_model_can_be_judged_before_its_files_are_here() -> None:
    wanted = spec(type=ModelType.EMBEDDING)
    checked = check(wanted, "/", ModelInfo(), llama_cpp_python())
    assert checked.value("--pooling") == "mean"


@pytest.mark.parametrize(
    ("extra_args", "warned"), [({}, True), ({"n_ctx": 2048}, False), ({"ctx_size": 0}, False)]
)
def test_a_context_that_nobody_asked_for_is_told(extra_args: dict[str, Any], warned: bool) -> None:
    checked = check(spec(extra_args=extra_args), "/", LLM, llama_cpp_python())
    expected = ("context 2048 of 32768: set ctx_size for longer texts",) if warned else ()
    assert checked.warnings == expected


def test_what_a_variable_would_set_is_refused_in_any_case() -> None:
    for name in ("n_ctx", "N_CTX", "Rpc_Servers", "config_file"):
        with pytest.raises(Rejected, match=f"cannot use env.{name}: "):
            check(spec(env={name: "1"}), "/", LLM, llama_cpp_python())
