"""The workflows of examples/review, whose commands a runner would execute: in a real repository,
with a branch that changes a manifest."""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from ruamel.yaml import YAML

from tests.cli.command import XGEN_MODEL, environment, xgen_model
from tests.cli.plan_answers import plan_of
from tests.e2e.agent import REPOSITORY
from tests.manifest.texts import manifest, model
from tests.source.git_repository import Repository

EXAMPLES = REPOSITORY / "examples" / "review"
MANIFESTS = "manifests/production"
CHAT = model("chat", nodes=["node-a"], gpus=1)
LONGER = model("chat", nodes=["node-a"], gpus=1, extra_args={"ctx_size": 8192})
NOWHERE = model("chat", nodes=["node-a"], gpu_ids=[7])


def read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(EXAMPLES / name)


def steps() -> dict[str, dict[str, Any]]:
    """Of the workflow for GitHub, those that run commands of ours."""
    (job,) = read("github.yml")["jobs"].values()
    return {each["name"]: each for each in job["steps"] if "run" in each}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """`main` has a manifest; the work tree has a branch, nothing in it yet."""
    made = Repository(root=tmp_path / "git")
    made.run("checkout", "--quiet", "-b", "main")
    (made.work / MANIFESTS).mkdir(parents=True)
    (made.work / MANIFESTS / "m.json").write_bytes(manifest(CHAT, "old"))
    (made.work / "fleet.yaml").write_bytes((EXAMPLES / "fleet.yaml").read_bytes())
    made.run("add", "--all")
    made.run("commit", "--quiet", "-m", "what runs")
    made.run("checkout", "--quiet", "-b", "branch")
    return made


def propose(repository: Repository, content: bytes) -> None:
    """As a forge checks it out: the merge of the branch into main."""
    (repository.work / MANIFESTS / "m.json").write_bytes(content)
    repository.run("commit", "--quiet", "--all", "-m", "a change")
    repository.run("checkout", "--quiet", "--detach", "main")
    repository.run("merge", "--quiet", "--no-ff", "-m", "merge", "branch")


@dataclass(kw_only=True)
class Runner:
    """Runs steps as a forge's runner does: bash, with its variables."""

    work: Path
    variables: dict[str, str]

    def run(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.work.parent / 'bin'}:{Path(XGEN_MODEL).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.work,
            env=environment(**{**self.variables, "PATH": path, **more}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def github(repository: Repository, tmp_path: Path) -> Runner:
    """`gh` notes what it is told, and answers with the file `answer`."""
    temporary = tmp_path / "runner"
    temporary.mkdir()
    told = repository.root / "bin"
    told.mkdir()
    stand_in = told / "gh"
    calls, answer = shlex.quote(str(told / "calls")), shlex.quote(str(told / "answer"))
    stand_in.write_text(f'#!/bin/sh\necho "$MARKER|$*" >> {calls}\ncat {answer}\n')
    stand_in.chmod(0o755)
    (told / "answer").touch()
    variables = {
        **repository.environment,
        "MANIFESTS": read("github.yml")["env"]["MANIFESTS"],
        "RUNNER_TEMP": str(temporary),
        "GITHUB_STEP_SUMMARY": str(temporary / "summary.md"),
        "GITHUB_WORKSPACE": str(repository.work),
        "GITHUB_REPOSITORY": "org/models",
        "NUMBER": "7",
    }
    return Runner(work=repository.work, variables=variables)


def test_a_pull_request_on_github_gets_its_plan(
    repository: Repository, github: Runner, tmp_path: Path
) -> None:
    propose(repository, manifest(LONGER, "new"))

    done = {name: github.run(steps()[name]["run"]) for name in ("validate", "plan", "comment")}

    assert [each.returncode for each in done.values()] == [0, 0, 0], done
    assert done["validate"].stdout == "1 file, 2 models, ok\n"
    comment = (tmp_path / "runner" / "plan.md").read_text()
    assert comment.startswith(f"<!-- xgen-model plan: {MANIFESTS} -->\n")
    assert "| `~` | `chat` | `node-a` |" in comment or "| `^` | `chat` | `node-a` |" in comment
    assert "`extra_args.ctx_size`: `(not set)` → `8192`" in comment
    assert "| `-` | `old` |" in comment
    assert (tmp_path / "runner" / "summary.md").read_text() == comment
    calls = (repository.root / "bin" / "calls").read_text().splitlines()
    marker = f"<!-- xgen-model plan: {MANIFESTS} -->"
    assert [call.partition("|")[0] for call in calls] == [marker, marker]
    assert " repos/org/models/issues/7/comments --jq " in calls[0]
    assert " --method POST repos/org/models/issues/7/comments -F body=@" in calls[1]


def test_the_comment_of_before_is_replaced(repository: Repository, github: Runner) -> None:
    propose(repository, manifest(LONGER, "old"))
    (repository.root / "bin" / "answer").write_text("4711\n4712\n")

    github.run(steps()["plan"]["run"])
    done = github.run(steps()["comment"]["run"])

    assert done.returncode == 0, done.stderr
    last = (repository.root / "bin" / "calls").read_text().splitlines()[-1]
    assert "--method PATCH repos/org/models/issues/comments/4711 -F body=@" in last


def test_a_refused_model_fails_the_check_and_is_in_the_comment(
    repository: Repository, github: Runner, tmp_path: Path
) -> None:
    propose(repository, manifest(NOWHERE, "old"))

    planned = github.run(steps()["plan"]["run"])
    commented = github.run(steps()["comment"]["run"])

    assert (planned.returncode, commented.returncode) == (1, 0)
    assert "there is no GPU 7" in (tmp_path / "runner" / "plan.md").read_text()


def test_an_invalid_manifest_is_annotated_in_its_line(
    repository: Repository, github: Runner
) -> None:
    propose(repository, manifest(model("chat", xyzzy=1)))

    done = github.run(steps()["validate"]["run"])

    assert done.returncode == 1
    assert done.stdout.startswith(f"::error file={MANIFESTS}/m.json,line=12,col=9::")


def test_the_comment_is_made_of_refusals_too_and_never_for_a_fork() -> None:
    condition = steps()["comment"]["if"]

    assert "always()" in condition
    assert "head.repo.full_name == github.repository" in condition
    assert read("github.yml")["permissions"] == {"contents": "read", "pull-requests": "write"}


@dataclass(slots=True)
class Notes:
    """A forge's list of notes. `asked`: method, path and body of each request."""

    there: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)


@contextmanager
def serving(notes: Notes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            notes.asked.append((self.command, self.path, self.rfile.read(length).decode()))
            body = json.dumps(notes.there).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api/v4"
        server.shutdown()
        thread.join()


def run_gitlab(repository: Repository, api: str) -> subprocess.CompletedProcess[str]:
    """All of the script, in one shell, as GitLab's runner has it."""
    job = read("gitlab.yml")["models"]
    variables = {
        **repository.environment,
        **job["variables"],
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.run("rev-parse", "HEAD^1"),
        "CI_API_V4_URL": api,
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "7",
        "MODELS_TOKEN": "secret",
        "no_proxy": "127.0.0.1",
    }
    bin = repository.root / "bin"
    bin.mkdir(exist_ok=True)
    (bin / "python3").symlink_to(sys.executable)
    return Runner(work=repository.work, variables=variables).run("\n".join(job["script"]))


@pytest.mark.parametrize(("there", "method", "path"), [(False, "POST", ""), (True, "PUT", "/11")])
def test_a_merge_request_on_gitlab_gets_its_plan_in_one_note(
    repository: Repository, there: bool, method: str, path: str
) -> None:
    propose(repository, manifest(LONGER, "new"))
    notes = Notes()
    if there:
        body = f"<!-- xgen-model plan: {MANIFESTS} -->\nof before"
        notes.there = [{"id": 10, "body": "LGTM"}, {"id": 11, "body": body}]

    with serving(notes) as api:
        done = run_gitlab(repository, api)

    assert done.returncode == 0, done.stderr
    base = "/api/v4/projects/3/merge_requests/7/notes"
    assert [each[:2] for each in notes.asked] == [
        ("GET", f"{base}?per_page=100"),
        (method, f"{base}{path}"),
    ]
    (sent,) = parse_qs(notes.asked[1][2])["body"]
    assert sent == (repository.work / "plan.md").read_text()
    assert "`extra_args.ctx_size`: `(not set)` → `8192`" in sent
    assert json.loads((repository.work / "gl-code-quality-report.json").read_text()) == []


def test_a_merge_request_that_is_refused_fails_after_its_note(repository: Repository) -> None:
    propose(repository, manifest(NOWHERE, "old"))
    notes = Notes()

    with serving(notes) as api:
        done = run_gitlab(repository, api)

    assert done.returncode == 1
    assert len(notes.asked) == 2
    assert "there is no GPU 7" in done.stdout


def test_an_invalid_manifest_is_in_gitlabs_report(repository: Repository) -> None:
    propose(repository, manifest(model("chat", xyzzy=1)))

    done = run_gitlab(repository, "http://127.0.0.1:9")

    assert done.returncode == 1
    (problem,) = json.loads((repository.work / "gl-code-quality-report.json").read_text())
    assert problem["location"]["path"] == f"{MANIFESTS}/m.json"
    assert "unknown key 'xyzzy'" in done.stdout


def test_what_runs_can_be_read_from_a_branch_without_a_checkout(repository: Repository) -> None:
    repository.run("push", "--quiet", "origin", "main")
    propose(repository, manifest(LONGER, "old"))

    planned = xgen_model(
        *("plan", "--manifest", repository.work / MANIFESTS, "--output", "json"),
        *("--from", repository.url(f"ref=main&path={MANIFESTS}")),
    )

    models = [each for node in plan_of(planned.stdout)["nodes"] for each in node["models"]]
    assert {each["model"]: each["action"] for each in models} == {
        "chat": "surge",
        "old": "unchanged",
    }


def hook() -> Mapping[str, Any]:
    (found,) = YAML(typ="safe", pure=True).load(REPOSITORY / ".pre-commit-hooks.yaml")
    return dict(found)


@pytest.mark.parametrize(("content", "code"), [(manifest(CHAT), 0), (b"a: [", 1)])
def test_the_hook_runs_as_pre_commit_runs_it(
    repository: Repository, content: bytes, code: int
) -> None:
    """Its entry and its args, in the root of the repository, without the names of files."""
    (repository.work / MANIFESTS / "m.json").write_bytes(content)
    told = hook()
    words = [*shlex.split(told["entry"]), *told["args"]]

    done = Runner(work=repository.work, variables={}).run(shlex.join(words))

    assert (told["id"], told["pass_filenames"]) == ("xgen-model-validate", False)
    assert done.returncode == code, done.stdout


def test_the_example_of_a_fleet_fits_the_example_of_a_manifest() -> None:
    planned = xgen_model(
        *("plan", "--manifest", REPOSITORY / MANIFESTS, "--fleet", EXAMPLES / "fleet.yaml")
    )

    assert planned.returncode == 2, planned.stdout + planned.stderr
