"""Events on a ConfigMap: one for each thing to be said, counted."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.errors import Rejected, Transient
from reconciler.source.kubernetes import ConfigMapSource
from reconciler.source.kubernetes_access import KubernetesAccess
from reconciler.source.kubernetes_address import parse_config_map
from reconciler.source.manifest_source import ManifestNews
from tests.source.kubernetes_files import kubeconfig
from tests.source.kubernetes_server import Server, serving
from tests.source.kubernetes_store import Object, Refused

BAD = ManifestNews(
    node="gpu-1",
    time="2026-12-01T07:00:00.250+00:00",
    bad=True,
    reason="ManifestInvalid",
    message="models.yaml:3:5: spec: what is wrong; what runs stays as it is",
)
GOOD = replace(BAD, bad=False, reason="ManifestTaken", message="valid again")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        made.store.put({"a.yaml": "1"})
        yield made


@asynccontextmanager
async def read_by(access: KubernetesAccess) -> AsyncIterator[ConfigMapSource]:
    source = ConfigMapSource(parse_config_map("configmap://models/models"), access, now=str)
    async with aclosing(source.snapshots()) as snapshots:
        await anext(snapshots)
        yield source


@pytest.fixture
def access(tmp_path: Path, server: Server) -> KubernetesAccess:
    return KubernetesAccess(kubeconfig=kubeconfig(tmp_path, server))


def shown(event: Object) -> tuple[object, ...]:
    keys = ("type", "reason", "count", "firstTimestamp", "lastTimestamp")
    return tuple(event[key] for key in keys)


async def test_is_about_the_config_map_as_kubectl_describe_looks_for_it(
    server: Server, access: KubernetesAccess
) -> None:
    async with read_by(access) as source:
        await source.tell(BAD)
    (event,) = server.store.events()
    held = server.store.get("configmaps", "models", "models")["metadata"]
    about = event["involvedObject"]
    assert (about["kind"], about["namespace"], about["name"]) == ("ConfigMap", "models", "models")
    assert (about["uid"], about["resourceVersion"]) == (held["uid"], held["resourceVersion"])
    assert event["message"] == BAD.message
    assert event["source"] == {"component": "xgen-model", "host": "gpu-1"}
    at = "2026-12-01T07:00:00Z"
    assert shown(event) == ("Warning", "ManifestInvalid", 1, at, at)


async def test_what_is_said_again_is_counted_whoever_says_it(
    server: Server, access: KubernetesAccess
) -> None:
    later = "2026-12-01T08:00:00+00:00"
    async with read_by(access) as source:
        for news in (BAD, GOOD, replace(BAD, node="gpu-2"), replace(BAD, node="gpu-3", time=later)):
            await source.tell(news)
    bad, good = server.store.events()
    until = ("2026-12-01T07:00:00Z", "2026-12-01T08:00:00Z")
    assert shown(bad) == ("Warning", "ManifestInvalid", 3, *until)
    assert shown(good)[:3] == ("Normal", "ManifestTaken", 1)


async def test_what_is_too_long_is_cut(server: Server, access: KubernetesAccess) -> None:
    async with read_by(access) as source:
        await source.tell(replace(BAD, message="x" * 5000))
    (event,) = server.store.events()
    assert event["message"] == "x" * 1023 + "…"


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (lambda it: it.forbidden.add(("create", "events")), Rejected, "events is forbidden: User"),
        (lambda it: it.forbidden.add(("patch", "events")), Rejected, "cannot patch resource"),
        (lambda it: setattr(it, "failing", Refused(500, "E", "away")), Transient, "500: away"),
        (lambda it: it.stop(), Transient, "connect"),
    ],
)
async def test_says_why_it_cannot(
    server: Server,
    access: KubernetesAccess,
    fault: Callable[[Server], None],
    kind: type[Exception],
    said: str,
) -> None:
    async with read_by(access) as source:
        await source.tell(BAD)
        fault(server)
        news = GOOD if ("create", "events") in server.forbidden else BAD
        with pytest.raises(kind) as caught:
            await source.tell(news)
    assert str(caught.value).startswith("cannot write an Event on configmap://models/models: ")
    assert said in str(caught.value)


async def test_nothing_is_said_of_one_that_is_gone(
    server: Server, access: KubernetesAccess
) -> None:
    server.store.delete()
    async with read_by(access) as source:
        await source.tell(BAD)
    assert server.store.events() == []
