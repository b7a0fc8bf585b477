"""The table against the CommonParams of the wheel that is installed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import xllamacpp as wheel

from reconciler.backend import xllamacpp as adapter
from reconciler.backend.child import common_params
from reconciler.backend.flags import Takes
from reconciler.backend.site import Site
from reconciler.backend.xllamacpp_params import (
    PARAMETERS,
    SAMPLING_BITS,
    EnumMember,
    Parameter,
    TextFile,
)
from reconciler.errors import Rejected
from tests.backend.build import HELP_FLAGS, LLM, files, model, xllamacpp

pytestmark = pytest.mark.engine


def words(parameter: Parameter) -> Iterator[str | bool]:
    """Every kind of word that a flag takes, found by trying."""
    if parameter.flag.takes is Takes.NOTHING:
        yield from (True, False)
        return
    tried = ("1", "0.5", "on", "off", "auto", "none", "f16", "q8_0", "mean", "linear", "isolate")
    for word in (*tried, "deepseek-legacy", "mmap+mlock", "dio", '{"a": 1}'):
        try:
            tuple(parameter.read(word))
        except ValueError:
            continue
        yield word


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda one: one.flag.name)
def test_the_wheel_has_the_fields_that_a_flag_sets(parameter: Parameter) -> None:
    said = list(words(parameter))
    assert said
    for word in said:
        params = wheel.CommonParams()
        for name, value in parameter.read(word):
            *outer, last = name.split(".")
            owner = params
            for part in outer:
                owner = getattr(owner, part)
            match value:
                case TextFile():
                    value = "text"
                case EnumMember():
                    value = getattr(getattr(wheel, value.type), value.member)
                    value = int(value) if name == SAMPLING_BITS else value
                case _:
                    pass
            setattr(owner, last, value)
            assert getattr(owner, last) == pytest.approx(value)


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda one: one.flag.name)
def test_a_flag_is_called_as_in_llama_server(parameter: Parameter) -> None:
    known = HELP_FLAGS.find(parameter.flag.name)
    if parameter.flag.name == "--kv-unified-per-slot":  # newer than the help text that we keep
        assert known is None
        return
    assert known is not None
    assert set(parameter.flag.names) == set(known.names)
    # The table itself reads numbers.
    takes = Takes.VALUE if known.takes is Takes.NUMBER else known.takes
    assert takes is parameter.flag.takes


def told(**extra_args: Any) -> Any:
    """The wheel's own value, once the child has read its configuration."""
    launch = adapter.launch(
        model(extra_args=extra_args),
        files(),
        xllamacpp(),
        LLM,
        Site(port=18001, api_key="k", environment={}, secrets={}),
    )
    return common_params(wheel, json.loads(launch.argv[-1]))


def test_says_to_the_wheel_what_llama_server_makes_of_its_flags() -> None:
    params = told(
        ctx_size=512,
        seed=-1,
        temp=-1,
        top_k=7,
        rope_scale=4,
        repeat_last_n=128,
        kv_offload=False,
        perf=True,
        reasoning=False,
        chat_template_kwargs={"a": [1]},
        cache_type_k="q8_0",
        no_cont_batching=True,
        timeout=60,
    )
    assert (params.n_ctx, params.sampling.seed, params.sampling.temp) == (512, 2**32 - 1, 0.0)
    assert params.rope_freq_scale == 0.25
    assert (params.sampling.penalty_last_n, params.sampling.n_prev) == (128, 128)
    assert params.no_kv_offload
    assert not params.no_perf
    assert not params.sampling.no_perf
    assert params.enable_reasoning == 0
    assert params.default_template_kwargs == {"a": "[1]", "enable_thinking": "false"}
    assert params.cache_type_k == wheel.ggml_type.GGML_TYPE_Q8_0
    assert not params.cont_batching
    assert (params.timeout_read, params.timeout_write) == (60, 60)
    bits = wheel.common_params_sampling_config
    assert params.sampling.user_sampling_config == (
        bits.COMMON_PARAMS_SAMPLING_CONFIG_TEMP
        | bits.COMMON_PARAMS_SAMPLING_CONFIG_TOP_K
        | bits.COMMON_PARAMS_SAMPLING_CONFIG_PENALTY_LAST_N
    )


def test_says_nothing_of_what_the_manifest_leaves_open() -> None:
    params, plain = told(), wheel.CommonParams()
    assert (params.n_ctx, params.n_batch, params.n_ubatch) == (
        plain.n_ctx,
        plain.n_batch,
        plain.n_ubatch,
    )
    assert params.sampling.user_sampling_config == 0


@pytest.mark.parametrize(
    ("extra_args", "message"),
    [
        ({"ctx_size": "many"}, "extra_args.ctx_size: 'many' is not a whole number"),
        ({"ctx_size": 2**40}, "is not from 0 to 2147483647"),
        ({"batch_size": 2**40}, "is not from -2147483648 to 2147483647"),
        ({"temp": "hot"}, "'hot' is not a number"),
        ({"cache_type_k": "q9_9"}, "'q9_9' is none of f32, f16"),
        ({"pooling": "max"}, "'max' is none of none, mean, cls, last, rank"),
        ({"flash_attn": "perhaps"}, "'perhaps' is none of auto, on, off"),
        ({"reasoning": "perhaps"}, "'perhaps' is none of on, off, auto"),
        ({"ctx_size": -5}, "-5 is not from 0 to 2147483647"),
        ({"parallel": 257}, "257 is not from -1 to 256"),
        ({"seed": -2}, "-2 is not from -1 to 4294967295"),
        ({"rope_scale": 0}, "0 is not a scale"),
        ({"chat_template_kwargs": "x"}, "it must be a map"),
        ({"chat_template_kwargs": "[1]"}, "it must be a map"),
        ({"spec_type": "ngram-mod"}, "xllamacpp 2026.10 has no flag --spec-type"),
        ({"paralel": 2}, "did you mean parallel?"),
    ],
)
def test_rejects_before_a_start_what_cannot_be_translated(
    extra_args: dict[str, Any], message: str
) -> None:
    with pytest.raises(Rejected) as error:
        told(**extra_args)
    assert message in str(error.value)


def test_does_not_guess_at_a_flag_that_is_like_no_other() -> None:
    with pytest.raises(Rejected) as error:
        told(samplers="top_k")
    assert "did you mean" not in str(error.value)
