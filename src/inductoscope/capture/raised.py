"""Whose code raised an exception: the stage of the innermost code that belongs to one stage.

The stage that torch had entered says less: index propagation runs while the scheduler makes its
nodes, and the wrapper is written while code is generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

from inductoscope.vocabulary.frames import is_compilers
from inductoscope.vocabulary.stage_lookup import stage_that_raised


def raising_stage(error: BaseException, open_stage: str) -> str:
    """The stage whose code raised `error` while `open_stage` was open."""
    return stage_that_raised(list(_frames_of(error)), open_stage)


def _frames_of(error: BaseException) -> Iterator[tuple[str, str]]:
    """File and function of every frame, innermost first; what an error was raised from is inner."""
    for each in reversed(list(_causes(error))):
        frames = []
        entry = each.__traceback__
        while entry is not None:
            frames.append(entry.tb_frame)
            entry = entry.tb_next
        yield from ((_file(frame), frame.f_code.co_name) for frame in reversed(frames))


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    inner: Any = error
    while isinstance(inner, BaseException) and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        inner = getattr(inner, "inner_exception", None) or inner.__cause__


def _file(frame: FrameType) -> str:
    """The file of a frame; for a method that replaces one of the compiler, that of its class."""
    code = frame.f_code
    if is_compilers(code.co_filename) or not code.co_argcount:
        return code.co_filename
    module = type(frame.f_locals.get(code.co_varnames[0])).__module__
    file = f"{module.replace('.', '/')}.py"
    return file if is_compilers(file) else code.co_filename
