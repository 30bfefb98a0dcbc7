"""A stand-in for the package ray: it carries out a task in this process, when somebody waits for it."""

from collections.abc import Callable, Sequence
from pickle import dumps, loads
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    """A task was lost."""


class RayTaskError(RayError):
    """A task raised an error."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class RayHere:
    """Tasks are carried out one by one. What they are given and what they return is pickled, as by Ray.

    Attributes:
        options: What each task asked of a node.
        cancelled: The tasks that were cancelled.
        before: Called before each task, with its number. An error of Ray that it raises ends the task.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, resources: Sequence[dict[str, float]] = ({"CPU": 2, "memory": 1e12},)) -> None:
        self.resources, self.options, self.cancelled = list(resources), list[dict[str, float]](), list[int]()
        self.before: Callable[[int], object] = lambda number: None
        self.calls, self.returned = list[Callable[[], Any]](), dict[int, bytes | RayError]()

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Resources": one, "Alive": True} for one in self.resources] + [{"Resources": {}, "Alive": False}]

    def put(self, value: Any) -> bytes:
        return dumps(value)

    def remote(self, *, max_retries: int) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            def options(**asked: float) -> Any:
                def start(work: bytes, *rest: Any) -> int:
                    self.options.append(asked)
                    self.calls.append(lambda: function(loads(work), *loads(dumps(rest))))
                    return len(self.calls) - 1

                return SimpleNamespace(remote=start)

            return SimpleNamespace(options=options)

        return decorate

    def wait(self, tasks: list[int], *, timeout: float, num_returns: int = 1) -> tuple[list[int], list[int]]:
        if tasks[0] not in self.cancelled:
            self._carry_out(tasks[0])
        return tasks[:1], tasks[1:]

    def get(self, task: int) -> Any:
        found = self.returned[task]
        if isinstance(found, RayError):
            raise found
        return loads(found)

    def cancel(self, task: int, *, force: bool = False) -> None:
        self.cancelled.append(task)

    def _carry_out(self, task: int) -> None:
        try:
            self.before(task)
            self.returned[task] = dumps(self.calls[task]())
        except RayError as error:
            self.returned[task] = error
        except ValueError as error:
            self.returned[task] = RayTaskError(error)
