"""What an agent imports before its first answer, which is most of the time until that."""

import json
import subprocess
import sys

_START = """
import json, os, sys
before = dict(os.environ)
from reconciler.cli.main import make_app
make_app(["run"])
from reconciler.cli.bare_imports import import_aiohttp
import_aiohttp()
import reconciler.cli.agent_process
imported = sorted(sys.modules)
import rich, ssl, structlog
authorities = ssl.create_default_context().cert_store_stats()["x509_ca"]
print(json.dumps([imported, bool(rich.__path__), authorities, os.environ == before]))
"""
_LATER = {
    "huggingface_hub",
    "minio",
    "reconciler.backend.adapters",
    "reconciler.backend.builds",
    "reconciler.hub.huggingface",
    "reconciler.hub.push",
    "reconciler.source.git",
    "rich",
}


def test_an_agent_begins_without_what_its_first_answer_does_not_need() -> None:
    command = [sys.executable, "-c", _START]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    imported, rich_is_there, authorities, variables_are_as_before = json.loads(made.stdout)

    assert not _LATER & set(imported)
    assert rich_is_there
    assert variables_are_as_before
    plain = "import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'])"
    usual = subprocess.run([sys.executable, "-c", plain], capture_output=True, check=True)
    assert authorities == int(usual.stdout)


def test_validate_begins_without_what_it_does_not_need() -> None:
    began = "import sys; from reconciler.cli.main import make_app; make_app(['validate'])"
    command = [sys.executable, "-c", f"{began}; print(*sys.modules)"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)

    later = {"rich.console", "reconciler.source.git_reader", "reconciler.plan.gpu_claims", "httpx"}
    assert not later & set(made.stdout.split())
