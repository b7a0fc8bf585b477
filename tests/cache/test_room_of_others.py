"""Agents of one models folder leave each other the room that their downloads still need."""

import re
from pathlib import Path

from tests.cache.rivals import rival
from tests.cache.rooms import MIB, push

FILES = ("x-00001-of-00002.gguf", "x-00002-of-00002.gguf")


def reserved(models: Path) -> list[Path]:
    return list((models / ".use").glob("*.room"))


def test_of_two_downloads_that_do_not_fit_together_one_waits(tmp_path: Path) -> None:
    """They begin at once, in two processes. The one that is refused goes on when there is room:
    here the other one is killed, and its reservation ends with it."""
    hub, models = tmp_path / "hub", tmp_path / "models"
    a, b = push(hub, "o_a", *FILES), push(hub, "o_b", *FILES)
    with (
        rival(hub, models, "node-a", int(3.5 * MIB)) as one,
        rival(hub, models, "node-b", int(3.5 * MIB)) as two,
    ):
        one.say(a)
        two.say(b)
        answers = {each.answer(): each for each in (one, two)}

        first = answers.pop("coming")
        (refusal, second), *_ = answers.items()
        ours, theirs = (b, f"{a} on node-a") if second is two else (a, f"{b} on node-b")
        assert refusal.startswith(f"cannot fetch {ours}: 2.0 MiB are needed and ")
        still = re.search(
            r"other agents' downloads still need (\S+) MiB for (.*? in \S+);", refusal
        )
        assert still is not None
        assert still[2] == f"{theirs} in /data/{theirs.split()[-1]}"
        assert "of its 3.5 MiB; nothing can be evicted" in refusal
        assert len(reserved(models)) == 1

        first.process.kill()
        first.process.wait()
        assert len(reserved(models)) == 1
        second.say(ours)
        assert second.answer() == "coming"
        second.say("go on")
        assert second.answer() == "here"
        assert reserved(models) == []


def test_what_another_agent_has_written_counts_once(tmp_path: Path) -> None:
    """As used, and not as reserved, too: what fits beside the rest of it is fetched."""
    hub, models = tmp_path / "hub", tmp_path / "models"
    a, b = push(hub, "o_a", *FILES), push(hub, "o_b")
    with (
        rival(hub, models, "node-a", 4 * MIB) as one,
        rival(hub, models, "node-b", int(3.5 * MIB)) as two,
    ):
        one.say(a)
        assert one.answer() == "coming"
        two.say(b)
        assert two.answer() == "coming"
        two.say("go on")
        assert two.answer() == "here"
        one.say("go on")
        assert one.answer() == "here"
