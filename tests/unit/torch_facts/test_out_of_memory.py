"""A GPU that has run out of memory: who holds it, and what the doctor makes of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.torch_facts.messages import out_of_memory
from support.program_cases import COMPILED_ONE, ENDS_WELL, End, check, written_case

SAID = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried} GiB. GPU 0 has a total "
    "capacity of 139.80 GiB of which {free} GiB is free. Process 4242 has 100.00 GiB memory in "
    "use. Including non-PyTorch memory, this process has {own} GiB memory in use. Of the allocated "
    "memory 12.40 GiB is allocated by PyTorch, and 94.05 MiB is reserved by PyTorch but "
    "unallocated."
)
FILLED = SAID.format(tried="30.00", free="19.80", own="20.00")
OWN = SAID.format(tried="30.00", free="1.80", own="138.00")
EVENTS = (COMPILED_ONE, check())


def test_the_message_tells_who_holds_the_memory() -> None:
    lack = out_of_memory(FILLED)
    assert lack is not None
    assert round(lack.of_others / (1 << 30)) == 100
    assert lack.is_caused_by_others
    lack = out_of_memory(OWN)
    assert lack is not None
    assert not lack.is_caused_by_others
    assert out_of_memory("MemoryError") is None


def test_a_limit_that_the_program_sets_itself_is_nobody_elses() -> None:
    """`torch.cuda.set_per_process_memory_fraction` leaves the rest of the GPU to others."""
    text = FILLED.replace("in use. Of the", "in use. 27.96 GiB allowed; Of the")
    lack = out_of_memory(text)
    assert lack is not None
    assert "the memory fraction" in lack.place
    assert round(lack.total / (1 << 30)) == 28
    assert not lack.is_caused_by_others


@pytest.mark.parametrize("first", [End(1, FILLED, events=EVENTS), End(events=EVENTS)])
def test_a_gpu_that_another_process_has_filled_is_no_failure_of_the_program(
    first: End, tmp_path: Path
) -> None:
    """Whether it is full while the program is checked, or when it is run without the tool."""
    case, _ = written_case(tmp_path, first, plain=[End(1, FILLED)])
    verdict = first_verdict(case)
    assert verdict.verdict == "not-checked"
    assert verdict.summary.startswith("Other processes hold 100.0 of the 139.8 GiB of GPU 0")


def test_the_tools_own_copies_are_said_to_be_the_tools(tmp_path: Path) -> None:
    case, _ = written_case(tmp_path, End(1, OWN, events=EVENTS), plain=[ENDS_WELL])
    verdict = first_verdict(case)
    assert verdict.verdict == "not-checked"
    assert "without the tool it ends well" in verdict.summary


def test_a_program_that_is_too_large_itself_fails_in_eager_too(tmp_path: Path) -> None:
    end = End(1, OWN, events=EVENTS)
    case, _ = written_case(tmp_path, end, plain=[end], off=[end])
    assert first_verdict(case).verdict == "not-a-bug"
