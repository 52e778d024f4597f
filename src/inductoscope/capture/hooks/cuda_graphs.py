"""CUDA graphs: why torch does without them where they were asked for."""

from __future__ import annotations

from typing import Any

from inductoscope.capture.observe import current_compile_id
from inductoscope.capture.scope import SCOPE
from inductoscope.recording.events.graphs import CudaGraphsSkipped
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap

_LONGEST = 2000
# A warning of the same logger that graphs are recorded, and often.
_NO_SKIP = "CUDAGraph supports dynamic shapes"


class _OverheardSkips:
    """torch's logger of CUDA graphs; what it warns of is also written to the recording."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._logger, name)
        if name != "warning":
            return found

        def warning(message: Any, *args: Any, **kwargs: Any) -> None:
            if SCOPE.active:
                SCOPE.guard(_say, message, args)
            # The line is to name its own place in torch.
            found(message, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})

        return warning


def _say(message: Any, args: tuple[Any, ...]) -> None:
    text = str(message) % args if args else str(message)
    if text.startswith(_NO_SKIP):
        return
    SCOPE.emit(
        CudaGraphsSkipped(compile=current_compile_id(), graph=SCOPE.graph, reason=text[:_LONGEST])
    )


SKIPS = Hook(
    stage=stages.RUNTIME,
    records="why graphs run without the CUDA graphs that were asked for",
    wraps=(Wrap(TorchName("torch._inductor.cudagraph_utils", "cudagraphs_log"), _OverheardSkips),),
)
