"""Blocks of memory: when each is allocated and freed in a step, and which are there at the peak."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from inductoscope.profiling.memory.observed import (
    AllocationEvent,
    HeldMemory,
    NamedMemory,
    TracedStep,
)
from inductoscope.profiling.memory.step_tracer import bytes_before

# The profiler's clock and ours agree within this.
_CLOCKS_APART = 50_000


@dataclass(frozen=True)
class Block:
    """One allocation. Times are nanoseconds from the beginning of the step."""

    number: int
    address: int
    bytes: int
    # None: it was there before the step began, or is there after it has ended.
    begin: int | None = None
    end: int | None = None
    # The operation of torch in which it was allocated.
    operation: str = ""
    # Every name that it had in turn: a buffer may take over the memory of another.
    names: tuple[NamedMemory, ...] = ()
    # What holds it before the step, and after it.
    before: HeldMemory | None = None
    after: HeldMemory | None = None

    def is_there(self, at: int) -> bool:
        """Whether it is in use at this time."""
        return (self.begin is None or self.begin <= at) and (self.end is None or at < self.end)


@dataclass(frozen=True)
class DeviceSteps:
    """The memory of one device in one step."""

    device: str
    step: TracedStep
    blocks: tuple[Block, ...]
    # Bytes at the beginning, and of these the bytes of blocks that are not known one by one.
    base: int
    unknown: int
    peak: int
    # When the peak is reached, from the beginning of the step.
    peak_at: int

    @property
    def at_peak(self) -> tuple[Block, ...]:
        """The blocks in use at the peak, the largest first."""
        found = [block for block in self.blocks if block.is_there(self.peak_at)]
        return tuple(sorted(found, key=lambda block: -block.bytes))


def devices_of(step: TracedStep) -> tuple[DeviceSteps, ...]:
    """What happened on each device in a step; that with most named memory comes first."""
    by_device: dict[str, list[AllocationEvent]] = {}
    for event in step.events:
        by_device.setdefault(event.device, []).append(event)
    found = [_device(step, device, events) for device, events in by_device.items()]
    return tuple(sorted(found, key=_named_bytes, reverse=True))


def _named_bytes(device: DeviceSteps) -> tuple[int, int]:
    named = sum(block.bytes for block in device.blocks if block.names and block.begin is not None)
    return named, device.peak


@dataclass
class _Lives:
    """The blocks of a device, as far as they have been followed."""

    finished: list[Block] = field(default_factory=list)
    open: dict[int, Block] = field(default_factory=dict)

    def allocated(self, event: AllocationEvent, at: int) -> None:
        """Memory is handed out; what was at its address must have gone unseen."""
        self.freed(event.address, -1, at)
        block = Block(0, event.address, event.bytes, at, operation=event.operation)
        self.open[event.address] = block

    def freed(self, address: int, size: int, at: int) -> None:
        """Memory is given back; what was never seen was there before the step."""
        block = self.open.pop(address, None)
        if block is None and size >= 0:
            block = Block(0, address, size)
        if block is not None:
            self.finished.append(replace(block, end=at))


def _device(step: TracedStep, device: str, events: Sequence[AllocationEvent]) -> DeviceSteps:
    lives = _Lives()
    held = [block for block in step.before if block.device == device]
    for block in held:
        lives.open[block.address] = Block(0, block.address, block.bytes, before=block)
    base = now = peak = bytes_before(step, events[0])
    peak_at = 0
    for event in events:
        at = max(0, event.at - step.begin)
        now += event.bytes
        if event.bytes > 0:
            lives.allocated(event, at)
        else:
            lives.freed(event.address, -event.bytes, at)
        if now > peak:
            peak, peak_at = now, at
    every = sorted([*lives.finished, *lives.open.values()], key=lambda block: block.begin or -1)
    numbered = [replace(block, number=number) for number, block in enumerate(every)]
    named = tuple(_with_holders(_with_names(numbered, step), step, device))
    known = sum(block.bytes for block in named if block.begin is None)
    return DeviceSteps(device, step, named, base, max(0, base - known), peak, peak_at)


def _with_names(blocks: Sequence[Block], step: TracedStep) -> list[Block]:
    """Each block with the names that its address had while it was in use."""
    by_address: dict[int, list[Block]] = {}
    for block in blocks:
        by_address.setdefault(block.address, []).append(block)
    names: dict[int, list[NamedMemory]] = {}
    for note in step.names:
        found = _at(by_address.get(note.address, ()), note.at - step.begin)
        if found is not None:
            names.setdefault(found.number, []).append(note)
    return [replace(block, names=tuple(names.get(block.number, ()))) for block in blocks]


def _at(blocks: Sequence[Block], at: int) -> Block | None:
    """The block at an address at some time: the last one that was allocated before it."""
    begins = [-1 if block.begin is None else block.begin for block in blocks]
    place = bisect_right(begins, at + _CLOCKS_APART) - 1
    if place > 0 and begins[place] > at and _is_just_freed(blocks[place - 1], at):
        place -= 1
    return blocks[place] if place >= 0 else None


def _is_just_freed(block: Block, at: int) -> bool:
    return block.end is not None and block.end > at


def _with_holders(blocks: Sequence[Block], step: TracedStep, device: str) -> Iterator[Block]:
    after = {block.address: block for block in step.after if block.device == device}
    for block in blocks:
        yield replace(block, after=after.get(block.address) if block.end is None else None)


def timeline(device: DeviceSteps) -> list[tuple[int, int, int]]:
    """Every change in the order of time: when, the number of the block, bytes gained or lost."""
    changes = [
        (at, block.number, sign * block.bytes)
        for block in device.blocks
        for at, sign in ((block.begin, 1), (block.end, -1))
        if at is not None
    ]
    return sorted(changes)
