"""Background tasks, one a model, each for as long as its subject stays the same."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from reconciler.apply.within import within
from reconciler.plan.ids import ModelName

T = TypeVar("T")


class ModelTasks(Generic[T]):
    """`work`: what is done about a subject, without an end. `kind`: for the tasks' names."""

    def __init__(
        self, kind: str, work: Callable[[ModelName, T], Coroutine[Any, Any, None]]
    ) -> None:
        self._kind = kind
        self._work = work
        self._tasks: dict[ModelName, tuple[T, asyncio.Task[None]]] = {}

    def keep(self, subjects: Mapping[ModelName, T]) -> None:
        """These and no others, from now on."""
        for name, (subject, task) in tuple(self._tasks.items()):
            if subjects.get(name) != subject:
                task.cancel()
                del self._tasks[name]
        for name, subject in subjects.items():
            if name not in self._tasks:
                self._begin(name, subject)

    def again(self, model: ModelName | None) -> None:
        """From the beginning: one model's, or all."""
        for name in tuple(self._tasks) if model is None else (model,):
            if name in self._tasks:
                subject, task = self._tasks.pop(name)
                task.cancel()
                self._begin(name, subject)

    async def close(self) -> None:
        tasks = [task for _, task in self._tasks.values()]
        self.keep({})
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: ModelName, subject: T) -> None:
        task = asyncio.create_task(self._work(name, subject), name=f"{self._kind}:{name}")
        self._tasks[name] = (subject, task)


async def pause(seconds: float, ends: asyncio.Event) -> None:
    """For so long, or until it ends, which is then forgotten."""
    await within(seconds, ends)
    ends.clear()
