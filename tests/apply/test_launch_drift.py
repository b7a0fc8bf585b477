"""How a start by now would differ from the one of a backend that an earlier agent has started."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reconciler.apply.launch_drift import launch_drift, launch_hash
from reconciler.plan.desired import SecretRef
from tests.apply.dead_agent import dead_agent
from tests.apply.world import MARK, World, launch

OF_THE_STARTER = {"LANG": "C.UTF-8", "HOME": "/home/other", "TMPDIR": "/var/tmp", "LC_ALL": "C"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"argv": ("--ctx-size", "8192")}, "--ctx-size 8192"),
        ({"argv": ("--jinja", "--seed", "-1")}, "--jinja, --seed, -1"),
        ({"argv": ("--api-key", "another-key")}, "--api-key ***"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "GPU-1"}}, "CUDA_VISIBLE_DEVICES=GPU-1"),
        ({"env": {"HF_TOKEN": "hf_secret"}}, "HF_TOKEN=***"),
        ({"env": {"MINE": "a-secret-value"}}, "MINE=***"),
        ({"argv": ("--token", "a-secret-value"), "env": {"MINE": "a-secret-value"}}, "MINE=***"),
        ({"env": OF_THE_STARTER}, None),
        ({}, None),
    ],
)
async def test_what_it_would_get_is_named_and_no_secret_is(
    world: World, change: Mapping[str, Mapping[str, str]], told: str | None
) -> None:
    dead = await dead_agent(world)
    view = await dead.adopted()
    own = {"MINE": SecretRef(from_env="ITS_NAME")}
    now = launch(mark=world.mark, port=view.launch.port)
    now = replace(
        now,
        argv=(*now.argv, *change.get("argv", ())),
        env={**now.env, **change.get("env", {})},
        api_key="another-key",
    )

    drift = launch_drift(view.launch.argv, view.launch_hash, view.pid, now, own)

    if told is None:
        assert drift is None
    else:
        assert drift is not None
        assert told in drift
        assert "secret" not in drift
        assert "another-key" not in drift
    await dead.stop()


async def test_what_it_has_and_would_not_get_is_named(world: World) -> None:
    dead = await dead_agent(world, "--exit-code", "3")
    view = await dead.adopted()
    now = launch(mark=world.mark, port=view.launch.port)

    drift = launch_drift(view.launch.argv, view.launch_hash, view.pid, now, {})

    assert drift == "no --exit-code 3"
    await dead.stop()


async def test_a_variable_that_it_would_not_get_any_more_is_told(world: World) -> None:
    """By the hash: what else a process has may be of a script of its own."""
    dead = await dead_agent(world)
    view = await dead.adopted()
    now = launch(mark=world.mark, port=view.launch.port)
    now = replace(now, env={name: now.env[name] for name in now.env if name != MARK})

    assert launch_drift(view.launch.argv, view.launch_hash, view.pid, now, {}) == "other variables"
    await dead.stop()


async def test_what_an_older_release_noted_is_compared_by_its_command(world: World) -> None:
    dead = await dead_agent(world)
    dead.rewrite(launch_hash="0123456789abcdef")
    view = await dead.adopted()
    now = launch(mark="another", port=view.launch.port)
    more = replace(now, argv=(*now.argv, "--new"))

    assert launch_drift(view.launch.argv, view.launch_hash, view.pid, now, {}) is None
    assert launch_drift(view.launch.argv, view.launch_hash, view.pid, more, {}) == "--new"
    await dead.stop()


def test_a_hash_is_of_no_port_no_key_and_no_starter() -> None:
    one = launch(mark="m", port=20_001, api_key="first-key")
    other = launch(mark="m", port=20_002, api_key="second-key")
    other = replace(other, env={**other.env, **OF_THE_STARTER})

    assert launch_hash(one, {}) == launch_hash(other, {})
    assert launch_hash(one, {}) != launch_hash(launch("--x", mark="m", port=20_001), {})
