"""Imports as events: which model they are about."""

import asyncio
from typing import Any

from reconciler.events import Journal
from reconciler.jobs.job import Ask, new_job
from reconciler.jobs.news import ImportStarted
from reconciler.loop.chronicle import Chronicle
from reconciler.metrics import Metrics
from reconciler.node.import_report import ImportReport
from reconciler.plan.desired import Desired, DesiredModel, Format, ModelSpec
from reconciler.plan.ids import ModelName, NodeName, Place, SpecHash
from reconciler.plan.repository import parse_repository

Q4 = Ask(repository=parse_repository("org/m"), file="q4.gguf")
WHOLE = Ask(repository=parse_repository("org/m@v1"), format=Format.SAFETENSORS)


def model(name: str, source: str, **spec: Any) -> DesiredModel:
    return DesiredModel(
        name=ModelName(name),
        spec=ModelSpec(source=source, **spec),
        spec_hash=SpecHash("1:0"),
        place=Place(file="models.yaml", line=1, column=1),
    )


async def test_an_event_names_the_model_where_it_is_one_model_s() -> None:
    desired = Desired(
        node=NodeName("n"),
        revision="r",
        models=(
            model("a", "hf://org/m", file="q4.gguf"),
            model("b", "hf://org/m@v1", format=Format.SAFETENSORS),
            model("c", "hf://org/m@v1", format=Format.SAFETENSORS),
            model("d", "gguf/org_m", file="q4.gguf"),
            model("e", "hf://no-repository"),
        ),
    )
    journal = Journal(node=NodeName("n"), now=lambda: "t")
    report = ImportReport(Chronicle(journal), Metrics(node="n"), lambda: desired)
    for ask in (Q4, WHOLE):
        report.happened(ImportStarted(job=new_job(ask, now="t")))
    await asyncio.wait_for(journal.newer_than(1), 10)
    told = [(event.model, event.data["prefix"]) for event in journal.after(0).events]
    assert told == [("a", "gguf/org_m"), (None, "huggingface/org_m@v1")]
