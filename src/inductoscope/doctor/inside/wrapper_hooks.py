"""Keeps generated wrappers as they are made, so that their kernels can be compared later."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from inductoscope.capture.scope import SCOPE
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap


def _keeping_graphs(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def codegen(lowered: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(lowered, *args, **kwargs)
        if SCOPE.active and not SCOPE.is_redirected:
            from inductoscope.doctor.compare.kept_wrappers import KEPT

            SCOPE.guard(KEPT.note_graph, lowered)
        return result

    return codegen


def _keeping_modules(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> Any:
        module = original(cls, key, path, *args, **kwargs)
        if SCOPE.active and not SCOPE.is_redirected:
            from inductoscope.doctor.compare.kept_wrappers import KEPT

            SCOPE.guard(KEPT.note_module, module, path)
        return module

    return load


KEEPING_WRAPPERS = Hook(
    stage=stages.WRAPPER,
    records="generated wrappers, so that their kernels can be compared with eager",
    wraps=(
        Wrap(TorchName("torch._inductor.graph", "GraphLowering.codegen"), _keeping_graphs),
        Wrap(
            TorchName("torch._inductor.codecache", "PyCodeCache.load_by_key_path"),
            _keeping_modules,
        ),
    ),
)
