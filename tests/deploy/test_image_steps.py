"""The image for CPUs: its steps are run in a bare Debian, and its container as an engine would."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.cluster.network import Host, network, skip_without_namespaces
from tests.deploy.chroot import Mount, inside
from tests.deploy.image_build import Build, Image, context_of, mount_point
from tests.deploy.once import made_once
from tests.deploy.pid_namespace import first_below, members_of, namespace_of
from tests.deploy.registries import secrets
from tests.deploy.test_dockerfile import FILE, REPOSITORY
from tests.model_files import gemma
from tests.waiting import wait_for, wait_until

pytestmark = pytest.mark.timeout(900)

_DEBIAN = REPOSITORY / ".rootfs" / "trixie.tar"
_PREFIX = "gguf/gemma"
_MANIFEST = f"""\
apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {{name: test}}
spec:
  models:
    - name: gemma
      source: {_PREFIX}
      type: llm
      gpus: 0
      extra_args: {{ctx_size: 512, parallel: 1}}
"""
_COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "ld", "make")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Done; of its stages only the last is left."""
    skip_without_namespaces()
    assert _DEBIAN.exists(), "run `make test-deploy`, which makes it"
    return _build(made_once(tmp_path_factory, "image", _make_image))


def _build(folder: Path) -> Build:
    return Build(
        file=FILE,
        images={FILE.arguments["DEBIAN_IMAGE"]: _DEBIAN},
        context=folder / "context",
        arguments={"VARIANT": "cpu", "VERSION": "0.0.0-test"},
        secrets=secrets(folder),
        folder=folder,
    )


def _make_image(folder: Path) -> None:
    build = _build(folder)
    context_of(REPOSITORY, build.context)
    build.stage("final")
    for stage in (folder / "stages").iterdir():
        if stage.name != "final":
            shutil.rmtree(stage)


@pytest.fixture(scope="module")
def image(build: Build) -> Image:
    """`final`, all of its steps done."""
    config = FILE.config("final", build.arguments)
    return Image(root=build.folder / "stages" / "final", config=config)


@dataclass(kw_only=True)
class Container:
    """`process`: what stands for the container engine. `init`: its process 1, seen from here."""

    process: subprocess.Popen[str]
    init: int
    namespace: str
    host: Host
    log: Path

    def members(self) -> dict[int, int]:
        """All that lives in its pid namespace, with their users."""
        found = {pid: _uid(pid) for pid in members_of(self.namespace)}
        return {pid: uid for pid, uid in found.items() if uid is not None}


@pytest.fixture
def container(image: Image, tmp_path: Path) -> Iterator[Container]:
    """It runs: hub and manifest are mounted, all else is the image's."""
    hub, manifest = tmp_path / "hub", tmp_path / "manifest"
    (hub / _PREFIX).mkdir(parents=True)
    shutil.copy(gemma(), hub / _PREFIX / "gemma.gguf")
    manifest.mkdir()
    (manifest / "models.yaml").write_text(_MANIFEST, encoding="utf-8")
    mounts = []
    for source, target in ((hub, "/hub"), (manifest, "/etc/xgen-model/manifest")):
        (image.root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(source=source, target=target))
    given = {
        "XGEN_HUB": "/hub",
        "XGEN_MANIFEST": "/etc/xgen-model/manifest",
        "NODE_NAME": "node-a",
    }
    config = image.config
    with ExitStack() as stack:
        net = stack.enter_context(network(tmp_path, names="a"))
        host = net.hosts["a"]
        words = inside(
            image.root,
            [*config.entrypoint, *config.command],
            env={**config.env, **given},
            user=config.user,
            folder=config.folder,
            mounts=mounts,
        )
        log = tmp_path / "container.log"
        output = stack.enter_context(log.open("w"))
        process = stack.enter_context(
            subprocess.Popen(
                [*host.inside, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        stack.callback(process.kill)
        stack.callback(shutil.rmtree, hub)
        init = wait_for(lambda: first_below(process.pid), what="process 1", seconds=30)
        namespace = namespace_of(init)
        assert namespace is not None, log.read_text(encoding="utf-8")
        yield Container(process=process, init=init, namespace=namespace, host=host, log=log)


def test_no_compiler_and_no_pip_are_shipped(image: Image) -> None:
    folders = ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "opt/xgen-model/bin")
    found = [image.root / folder / name for folder in folders for name in (*_COMPILERS, "pip")]
    assert [path for path in found if path.exists()] == []


def test_nothing_of_a_secret_or_a_cache_stays(image: Image, build: Build) -> None:
    assert not (image.root / "etc/pip.conf").exists()
    assert list((image.root / "run").rglob("*secret*")) == []
    assert list((image.root / "root").rglob("*.whl")) == []
    assert list((image.root / "var/lib/apt/lists").glob("*_Packages*")) == []
    assert list((build.folder / "caches" / "xgen-model-lists").glob("*_Packages*"))


def test_packages_come_from_the_sources_of_the_build_alone(image: Image, tmp_path: Path) -> None:
    nowhere = tmp_path / "sources"
    nowhere.write_text("deb http://127.0.0.1:1/nowhere trixie main\n", encoding="ascii")
    script = REPOSITORY / "deploy" / "image" / "install-packages"
    mounts = [
        Mount(source=nowhere, target="/run/secrets/sources"),
        Mount(source=script, target="/run/install-packages"),
    ]
    with ExitStack() as stack:
        for mount in mounts:
            stack.enter_context(mount_point(image.root, mount))
        words = inside(image.root, ["sh", "/run/install-packages", "hello"], env={}, mounts=mounts)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    sources = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("Err:")}
    assert (done.returncode != 0, sources) == (True, {"http://127.0.0.1:1/nowhere"})


def test_the_git_source_has_what_it_needs(image: Image) -> None:
    for words in (
        ["git", "--version"],
        ["ssh", "-V"],
        ["test", "-s", "/etc/ssl/certs/ca-certificates.crt"],
    ):
        done = subprocess.run(
            inside(image.root, words, env={}, user=image.config.user),
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_agent_cannot_be_changed_by_its_user(image: Image) -> None:
    words = ["find", "/opt/xgen-model", "/usr/local/bin", "-writable", "-not", "-type", "l"]
    done = subprocess.run(
        inside(image.root, words, env={}, user=image.config.user), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_container_serves_a_real_model_and_ends_with_nothing_left(
    image: Image, container: Container
) -> None:
    url = f"http://{container.host.ipv4}:8000"
    with httpx.Client(timeout=60) as client:
        wait_until(lambda: _ready(client, url, container), what="the model is loaded", seconds=300)
        answer = client.post(
            f"{url}/v1/chat/completions",
            json={
                "model": "gemma",
                "messages": [{"role": "user", "content": "Say hello."}],
                "max_tokens": 8,
            },
        )
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"]
    members = container.members()
    assert len(members) >= 3, "the supervisor, the agent, a backend"
    assert set(members.values()) == {10001}
    assert _healthy(image, container)

    os.kill(container.init, getattr(signal, image.config.stop_signal))
    assert container.process.wait(90) == 0, container.log.read_text(encoding="utf-8")[-4000:]
    assert container.members() == {}


def _healthy(image: Image, container: Container) -> bool:
    """What HEALTHCHECK says, run in the container's own network."""
    words = inside(image.root, image.config.health, env=image.config.env, user=image.config.user)
    done = container.host.run(*words)
    return done.returncode == 0


def test_health_is_bad_where_no_agent_listens(image: Image) -> None:
    words = inside(image.root, image.config.health, env=image.config.env, user=image.config.user)
    done = subprocess.run(["unshare", "--net", *words], capture_output=True, check=False)
    assert done.returncode == 1


def _ready(client: httpx.Client, url: str, container: Container) -> bool:
    assert container.process.poll() is None, container.log.read_text(encoding="utf-8")[-4000:]
    with suppress(httpx.TransportError):
        return client.get(f"{url}/readyz").status_code == 200
    return False


def _uid(pid: int) -> int | None:
    """None: it has ended since."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("\nUid:")[2].split()[0])
    return None
