"""The user's Dask cluster, used through `concurrent.futures.Executor`.

Dask reassigns the work of a lost worker. A worker is used only if its versions match this
machine's, because another torch compiles other code.
"""

from __future__ import annotations

import contextlib
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, TypeVar

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.version import __version__

_ADDRESS = re.compile(r"dask://(?P<place>[^\s/]+:\d+)")
_SECONDS_TO_CONNECT = 10.0
_LOOK_EVERY = 2.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class ClusterWorker:
    address: str
    host: str
    threads: int
    versions: Mapping[str, str] = field(compare=False)


def check_address(text: str) -> str:
    """Parse dask://HOST:PORT into Dask's own address format; `UsageError` if invalid."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--executor {text} is not an address. Write dask://HOST:PORT, with the port that "
            "'dask scheduler' prints (8786 unless it was told otherwise)."
        )
    return f"tcp://{found['place']}"


class Cluster:
    """A connection to a cluster, with the workers that may be used."""

    def __init__(self, address: str, client: Any, workers: Sequence[ClusterWorker]) -> None:
        self.address = address
        self.workers = tuple(workers)
        self._client = client

    @property
    def threads(self) -> int:
        return sum(worker.threads for worker in self.workers)

    def executor(self, workers: Sequence[ClusterWorker]) -> Executor:
        addresses = [worker.address for worker in workers]
        # Results must not be shared between equal calls.
        found: Executor = self._client.get_executor(
            workers=addresses, allow_other_workers=False, pure=False
        )
        return found

    def on_every_worker(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Run a function on every remaining worker; return each result or exception by address.
        `ToolFailure` if the scheduler is gone.
        """
        # Dask would retry a lost scheduler or worker endlessly.
        if self._client.status != "running":
            raise ToolFailure(f"The Dask scheduler at {self.address} is gone.")
        known = _known_workers(self._client)
        present = [worker.address for worker in self.workers if worker.address in known]
        return _answers(self._client, function, *arguments, workers=present)

    def as_done(
        self, asked: Mapping[Future[Result], Sequence[ClusterWorker]]
    ) -> Iterator[Future[Result]]:
        """Yield futures as they complete. Cancel those whose workers are all gone, since Dask would
        wait for new workers.
        """
        waiting = set(asked)
        while waiting:
            done, waiting = wait(waiting, timeout=_LOOK_EVERY, return_when=FIRST_COMPLETED)
            yield from done
            for future in waiting if not done else ():
                if not self.has_any_of(asked[future]):
                    future.cancel()

    def has_any_of(self, workers: Sequence[ClusterWorker]) -> bool:
        """Check that the scheduler and at least one of these workers are still there."""
        try:
            known = _known_workers(self._client)
        except ToolFailure:
            return False
        is_running = self._client.status == "running"
        return is_running and any(worker.address in known for worker in workers)

    def close(self) -> None:
        """Disconnect; the cluster keeps running."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)


def connect(address: str, *, any_versions: bool = False) -> Cluster:
    """Connect to a scheduler; `any_versions` accepts workers that have other versions.

    Raises `ToolFailure` if the scheduler does not answer, or has no worker or an unusable one.
    """
    place = check_address(address)
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            "--executor needs Dask. Install it with: pip install 'inductoscope[cluster]'"
        ) from None
    try:
        client = Client(place, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ToolFailure(
            f"No Dask scheduler answers at {address}. Start one with 'dask scheduler', and workers "
            "with 'dask worker ADDRESS', or leave out --executor to use this machine."
        ) from error
    try:
        return Cluster(address, client, _usable(client, address, any_versions=any_versions))
    except BaseException:
        client.close(timeout=2)
        raise


def _usable(client: Any, address: str, *, any_versions: bool) -> list[ClusterWorker]:
    known = _known_workers(client)
    if not known:
        raise ToolFailure(
            f"The Dask scheduler at {address} has no worker. Start one with 'dask worker ADDRESS'."
        )
    # Workers that join later are excluded: their versions are unchecked.
    answers = _answers(client, own_versions, workers=list(known))
    workers = [_worker(place, known[place], versions) for place, versions in answers.items()]
    if not any_versions:
        _refuse_others(workers)
    return workers


def _known_workers(client: Any) -> Mapping[str, Any]:
    """Return the scheduler's information about its workers, by address."""
    try:
        found: Mapping[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    except Exception as error:  # Any failure means that the scheduler is unreachable.
        raise ToolFailure(f"The Dask scheduler does not answer any more: {error}") from error
    return found


def _answers(
    client: Any, function: Callable[..., Any], *arguments: Any, workers: list[str]
) -> dict[str, Any]:
    """Run a function on these workers; return each result or exception by address."""
    try:
        found: dict[str, Any] = client.run(function, *arguments, workers=workers, on_error="return")
    except Exception as error:
        raise ToolFailure(f"The Dask scheduler does not answer any more: {error}") from error
    return found


def _worker(place: str, info: Mapping[str, Any], versions: Any) -> ClusterWorker:
    if not isinstance(versions, Mapping):
        raise ToolFailure(
            f"The worker {place} cannot work for inductoscope: {type(versions).__name__}: "
            f"{versions}. Install inductoscope in the environment of every worker."
        )
    return ClusterWorker(place, str(info["host"]), int(info["nthreads"]), dict(versions))


def _refuse_others(workers: Sequence[ClusterWorker]) -> None:
    ours = own_versions()
    for worker in workers:
        if other := differences(worker.versions, ours):
            raise ToolFailure(
                f"The worker {worker.address} has {', '.join(other)}. What it compiles may differ, "
                "so it is not asked. Give all workers the same versions, or add --any-worker."
            )


# --- What a machine has installed that results depend on ------------------------------------------

ABSENT = "none"


def own_versions() -> dict[str, str]:
    """Return the versions of torch, Triton, Python and this tool, without importing torch."""
    return {
        "torch": _installed("torch"),
        "triton": _installed("triton"),
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "inductoscope": __version__,
        "processor": platform.machine(),
    }


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ABSENT


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """Describe the versions of another machine that differ from ours."""
    return [
        f"{name} {theirs.get(name, ABSENT)} instead of {version}"
        for name, version in ours.items()
        if theirs.get(name, ABSENT) != version
    ]
