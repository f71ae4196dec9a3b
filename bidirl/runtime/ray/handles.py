"""Driver-side handles of the actors: bounded calls, and errors that name the worker and the cause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from typing import Any

import psutil

from bidirl.core.errors import BidirlError, ConfigError, LearnerLost, WorkerError
from bidirl.core.topology import Role, Worker


class WorkerHandle:
    """One actor as the driver sees it.

    Attributes:
        actor: Ray's handle.
        process_ids: processes behind the worker, known once it has started.
    """

    def __init__(self, worker: Worker, actor: Any, timeout_seconds: float) -> None:
        self.worker = worker
        self.actor = actor
        self.process_ids: tuple[int, ...] = ()
        self._timeout_seconds = timeout_seconds

    async def call(self, method: str, *args: Any, timeout_seconds: float | None = None) -> Any:
        """Await one remote call.

        Raises:
            WorkerError: if the worker died, answered with an error, or took too long.
            LearnerLost: instead of it, if the worker is a primary trainer.
            ConfigError: if the worker found that a setting is wrong.
        """
        return await self.wait(self.submit(method, *args), method, timeout_seconds)

    def submit(self, method: str, *args: Any) -> Any:
        """Start one remote call; returns Ray's reference."""
        return getattr(self.actor, method).remote(*args)

    async def wait(self, reference: Any, what: str, timeout_seconds: float | None = None) -> Any:
        """Await a submitted call; raises as :meth:`call` does."""
        import ray

        limit = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        name = self.worker.name
        try:
            async with asyncio.timeout(limit):  # not wait_for, which swallows a cancellation that meets the answer
                return await asyncio.wrap_future(reference.future())
        except TimeoutError:
            raise self._failure(f"{name} did not finish {what} within {limit:g} s") from None
        except ray.exceptions.RayActorError as error:
            raise self._failure(f"{name} died during {what}: {_first_line(error)}") from error
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if getattr(error, "cause", None) is not None else error
            if isinstance(cause, ConfigError):
                raise ConfigError(str(cause)) from error
            described = _described(cause)
            message = described if described.startswith(name) else f"{name} failed in {what}: {described}"
            raise self._failure(message) from error
        except ray.exceptions.RayError as error:
            raise self._failure(f"{name} was lost during {what}: {_first_line(error)}") from error

    def _failure(self, message: str) -> BidirlError:
        learner = self.worker.primary and self.worker.role is Role.TRAINER
        return LearnerLost(message) if learner else WorkerError(message)


async def gather_or_cancel(calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await all calls; the first error is raised as soon as the others are cancelled, whose errors it stands for."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def descendants() -> list[int]:
    """Processes that this one started, directly or not."""
    return [process.pid for process in psutil.Process().children(recursive=True)]


def end_processes(process_ids: list[int], started_after: float, grace_seconds: float = 3.0) -> None:
    """End what is left of the workers: these processes and their children, if they are not older than the cluster."""
    found: dict[int, psutil.Process] = {}
    for process_id in process_ids:
        try:
            process = psutil.Process(process_id)
            if process.create_time() >= started_after:
                found |= {p.pid: p for p in (process, *process.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + grace_seconds
    for process in found.values():
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(list(found.values()), timeout=max(0.0, deadline - time.monotonic()))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _described(cause: BaseException) -> str:
    return str(cause) if isinstance(cause, WorkerError) else f"{type(cause).__name__}: {_last_line(cause)}"


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else ""
