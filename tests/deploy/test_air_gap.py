"""docs/air-gap.md, run as it stands there: no packet and no DNS query leaves the host."""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.network import skip_without_namespaces
from tests.deploy.air_gap import Layers, gapped, run
from tests.deploy.registries import secrets
from tests.model_files import gemma

pytestmark = pytest.mark.timeout(900)

_REPOSITORY = Path(__file__).parents[2]
_PAGE = (_REPOSITORY / "docs" / "air-gap.md").read_text(encoding="utf-8")
_PATH = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_ENV = {"HOME": "/root", "PATH": _PATH, "LANG": "C.UTF-8"}
_STOP = 'kill "$!" && wait "$!"'


def _commands(section: str) -> str:
    """Every shell block of a section, in its order."""
    body = _PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    assert blocks, section
    return "\n".join(blocks)


def _of_this_machine(folder: Path) -> Mapping[str, str]:
    """How the machine outside reaches its package index."""
    found = secrets(folder, ca_at=str(folder / "ca"))
    if "ca" in found:
        shutil.copy(found["ca"], folder / "ca")
    return {"PIP_CONFIG_FILE": str(found["pip"])}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder that does not stay: models are in it several times."""
    skip_without_namespaces()
    yield tmp_path
    shutil.rmtree(tmp_path)


def test_the_documented_way_serves_a_model_and_asks_nobody(scratch: Path) -> None:
    outside, inside = Layers(folder=scratch / "outside"), Layers(folder=scratch / "inside")
    models = outside.of("/srv/models/gemma")
    models.mkdir(parents=True)
    shutil.copy(gemma(), models)
    done = run(
        _commands("Outside"),
        outside,
        folder=_REPOSITORY,
        env={**_ENV, **_of_this_machine(scratch)},
    )
    assert done.returncode == 0, done.stdout[-4000:]

    for carried in ("/media/carry", "/root/carry.sha256"):
        target = inside.of(carried)
        target.parent.mkdir(parents=True, exist_ok=True)
        outside.of(carried).rename(target)
    with gapped(scratch) as there:
        done = run(
            f"{_commands('Inside')}\n{_STOP}",
            inside,
            folder=Path("/srv"),
            env=_ENV,
            host=there.host,
        )
        assert done.returncode == 0, done.stdout[-4000:]
        assert there.packets() == []
    (line,) = [line for line in done.stdout.splitlines() if '"choices"' in line]
    answer, _ = json.JSONDecoder().raw_decode(line[line.index("{") :])
    assert answer["model"] == "gemma"
    assert answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    ("attempt", "seen"),
    [
        ("socket.getaddrinfo('huggingface.co', 443)", r"udp .* > .*:53 dns huggingface\.co.*"),
        ("socket.create_connection(('203.0.113.7', 443), 5)", r"tcp .* > 203\.0\.113\.7:443"),
        ("socket.create_connection(('2001:db8::7', 443), 5)", r"tcp .* > \[2001:db8::7\]:443"),
        ("socket.socket(type=2).sendto(b'x', ('203.0.113.7', 9))", r"udp .* > 203\.0\.113\.7:9"),
    ],
)
def test_an_attempt_is_seen_and_fails(tmp_path: Path, attempt: str, seen: str) -> None:
    skip_without_namespaces()
    with gapped(tmp_path) as there:
        done = run(
            f'python3 -c "import socket; {attempt}" || echo failed',
            Layers(folder=tmp_path / "layers"),
            folder=Path("/srv"),
            env=_ENV,
            host=there.host,
        )
        assert done.returncode == 0, done.stdout
        assert "failed" in done.stdout or "sendto" in attempt
        assert any(re.fullmatch(seen, line) for line in there.packets()), there.packets()
