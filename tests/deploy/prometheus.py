"""The real Prometheus, as docs/metrics.md configures it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.helm import ROOT
from tests.waiting import wait_until


@dataclass(frozen=True)
class Prometheus:
    url: str
    client: httpx.Client

    def query(self, text: str) -> list[dict[str, Any]]:
        """The result of a query that has to be a good one."""
        answer = self.client.get(f"{self.url}/api/v1/query", params={"query": text})
        told = answer.json()
        assert told["status"] == "success", f"{text}: {told}"
        result: list[dict[str, Any]] = told["data"]["result"]
        return result

    def firing(self) -> set[tuple[str, str | None, str | None]]:
        """Alerts that fire, each with its labels `node` and `model`."""
        found = [each["metric"] for each in self.query('ALERTS{alertstate="firing"}')]
        return {(each["alertname"], each.get("node"), each.get("model")) for each in found}


def documented_scrapes(targets: dict[str, str]) -> dict[str, Any]:
    """The page's example, for these agents: node to HOST:PORT."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    lines = page.partition("    scrape_configs:\n")[2].splitlines()
    block = []
    for line in lines:
        if not line.startswith("    "):
            break
        block.append(line)
    agents, backends = yaml.safe_load("\n".join(block))
    agents["static_configs"] = [
        {**agents["static_configs"][0], "targets": [address], "labels": {"node": node}}
        for node, address in targets.items()
    ]
    backends["static_configs"] = [{"targets": list(targets.values())}]
    return {"scrape_configs": [agents, backends]}


@contextmanager
def prometheus(
    folder: Path, *, port: int, scrapes: dict[str, Any], rules: dict[str, Any]
) -> Iterator[Prometheus]:
    """One that looks every two seconds."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    every = {"scrape_interval": "2s", "evaluation_interval": "2s", "scrape_timeout": "2s"}
    config = {"global": every, "rule_files": ["rules.yaml"], **scrapes}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{port}"
    with (folder / "prometheus.log").open("wb") as log, httpx.Client(trust_env=False) as client:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'series'}",
                f"--web.listen-address={address}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            server = Prometheus(f"http://{address}", client)
            wait_until(lambda: _is_ready(server), what="Prometheus is ready", seconds=120)
            yield server
        finally:
            process.terminate()
            process.wait(60)


def _is_ready(server: Prometheus) -> bool:
    try:
        return server.client.get(f"{server.url}/-/ready").status_code == 200
    except httpx.TransportError:
        return False
