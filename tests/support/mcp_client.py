"""An agent: a real client of `inductoscope mcp`, over stdio. Needs the mcp package."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client

from inductoscope.processes.status import all_pids, is_alive
from inductoscope.processes.tree import environment_of

# A variable of the server that everything it starts inherits.
MARK = "INDUCTOSCOPE_TEST_MARK"


@dataclass
class Agent:
    """One client with its server, and what it was told while it waited."""

    session: ClientSession
    told: list[str] = field(default_factory=list)

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.session.call_tool(tool, arguments, progress_callback=self._hear)

    async def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The JSON of a call that worked."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.content
        found: dict[str, Any] = result.structured_content
        return found

    async def problem(self, tool: str, **arguments: Any) -> str:
        """The error that answers an invalid call."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result.content
        return str(result.content[0].text)

    async def _hear(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append(message or "")


@asynccontextmanager
async def connected(folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Agent]:
    """An agent whose server works in `folder`."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "inductoscope", "mcp"],
        env={**environment, MARK: str(folder)},
        cwd=folder,
    )
    with open(os.devnull, "w") as nowhere:
        async with (
            stdio_client(server, errlog=nowhere) as (reading, writing),
            ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            yield Agent(session)


def talk(
    folder: Path, environment: Mapping[str, str], work: Callable[[Agent], Awaitable[None]]
) -> None:
    """Let an agent work, and then look that nothing is left of what it started."""

    async def session() -> None:
        async with connected(folder, environment) as agent:
            await work(agent)

    anyio.run(session)
    assert left_in(folder) == []


def left_in(folder: Path) -> list[int]:
    """Processes that a server in `folder` started, or the server itself."""
    return [
        pid
        for pid in all_pids()
        if pid != os.getpid() and environment_of(pid).get(MARK) == str(folder) and is_alive(pid)
    ]
