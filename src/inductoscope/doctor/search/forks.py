"""Runs work in forks of this process, several at once, each under limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from inductoscope.doctor.search.fork_answer import ForkAnswer, Work
from inductoscope.doctor.search.fork_executor import ForkExecutor, answer_without_fork
from inductoscope.doctor.search.hang_limits import HangPatience
from inductoscope.processes.cores import own_cores

# Forks that use a GPU at the same time share its memory.
WORKERS_ON_GPU = 4
_MOST_GUESSES = 4


class Forks:
    """Runs work in forks, `workers` at once."""

    # Whether all work is done on this machine, so that times can be compared.
    is_here = True

    def __init__(
        self, *, workers: int | None = None, seconds: float = 60.0, uses_gpu: bool = False
    ) -> None:
        most = workers or len(own_cores())
        self.workers = min(most, WORKERS_ON_GPU) if uses_gpu else most
        self.seconds = seconds
        self.uses_gpu = uses_gpu
        # While a hang is searched for: ends forks that get nowhere, long before their time is over.
        self.patience: HangPatience | None = None
        self.count = 0

    @property
    def guesses(self) -> int:
        """Up to how many pieces of work to hand over at once, some of which may not be needed.

        All of them are made before the first is begun.
        """
        return min(self.workers, _MOST_GUESSES) if can_fork() else 1

    def executor(self) -> ForkExecutor:
        """What does the work."""
        return ForkExecutor(self.workers, uses_gpu=self.uses_gpu, patience=self.patience)

    def ask(self, work: Work, *, seconds: float | None = None) -> ForkAnswer:
        """Run one piece of work."""
        return self.ask_all([work], seconds=seconds)[0]

    def ask_all(self, works: Sequence[Work], *, seconds: float | None = None) -> list[ForkAnswer]:
        """Run all, and return the answers in the same order."""
        answers: list[ForkAnswer] = [ForkAnswer() for _ in works]
        for number, answer in self.as_done(works, seconds=seconds):
            answers[number] = answer
        return answers

    def as_done(
        self, works: Sequence[Work], *, seconds: float | None = None
    ) -> Iterator[tuple[int, ForkAnswer]]:
        """Answers as they arrive, each with the number of its work; closing this ends the rest.

        No more is under way than can run at once: the caller may not want what comes later.
        """
        if not can_fork():
            yield from self._one_by_one(works)
            return
        limit = seconds or self.seconds
        waiting = deque(enumerate(works))
        running: dict[Future[ForkAnswer], int] = {}
        executor = self.executor()
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    number, work = waiting.popleft()
                    self.count += 1
                    running[executor.submit(work, seconds=limit)] = number
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            executor.shutdown(cancel_futures=True)

    def _one_by_one(self, works: Sequence[Work]) -> Iterator[tuple[int, ForkAnswer]]:
        """Without forks."""
        for number, work in enumerate(works):
            self.count += 1
            yield number, answer_without_fork(work)


def can_fork() -> bool:
    """Whether this process can be forked: not if it uses a GPU, which does not survive a fork."""
    import torch

    return not torch.cuda.is_initialized()


def can_fork_alone() -> bool:
    """Whether a fork could run the program's graphs without talking to the program's peers."""
    import torch

    is_one_of_many = torch.distributed.is_available() and torch.distributed.is_initialized()
    return can_fork() and not is_one_of_many
