"""Installs the hooks into torch modules as they are imported, and removes them again.

The finder is first in `sys.meta_path` and asks all others for the module. The user's own start-up
hooks that patch torch on import therefore still work, and ours wrap what they left behind.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import inspect
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import HookOff, TorchImported
from inductoscope.torch_facts.torch_names import Hook, TorchName, Wrap

Undo = Callable[[], None]

_IMPORT_SYSTEM = "<frozen importlib._bootstrap_external>"


class Installer(importlib.abc.MetaPathFinder):
    """Installs `hooks`, each part as soon as its module is imported."""

    def __init__(
        self, hooks: Sequence[Hook], *, on_import: dict[str, Callable[[], None]] | None = None
    ) -> None:
        """`on_import` names further work to do once, after a module is imported."""
        self._hooks = hooks
        self._on_import = on_import or {}
        self._modules = {"torch", *(name.module for hook in hooks for name in hook.names)}
        self._modules.update(self._on_import)
        self._done: set[str] = set()
        self._off: set[str] = set()
        self._undo: dict[str, list[Undo]] = {}
        self._searching: set[str] = set()
        self._torch_seconds = 0.0

    def start(self) -> None:
        """Hook modules that are already imported, and wait for the others."""
        sys.meta_path.insert(0, self)
        self.catch_up()

    def stop(self) -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        # Two hooks may wrap the same name, so they are undone in reverse order of installation.
        for hook in reversed(self._hooks):
            for undo in reversed(self._undo.get(hook.records, [])):
                undo()
        self._undo.clear()
        self._done.clear()

    def catch_up(self) -> None:
        for module in sorted(self._modules - self._done):
            loaded = sys.modules.get(module)
            if loaded is not None and not _is_loading(loaded):
                self._module_ready(module)

    # --- the import side ------------------------------------------------------------------------

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Let the other finders find the module, and hook it after it is executed."""
        if fullname not in self._modules or fullname in self._searching:
            return None
        spec = self._ask_the_others(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._call_after_execution(spec, fullname)
        return spec

    def _ask_the_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        self._searching.add(fullname)
        try:
            for finder in list(sys.meta_path):
                search = getattr(finder, "find_spec", None)
                spec = None if search is None else search(fullname, path, target)
                if spec is not None:
                    return spec  # type: ignore[no-any-return]
            return None
        finally:
            self._searching.discard(fullname)

    def _call_after_execution(self, spec: importlib.machinery.ModuleSpec, fullname: str) -> None:
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            started = time.perf_counter()
            execute(module)
            if fullname == "torch":
                self._torch_seconds = time.perf_counter() - started
            SCOPE.guard(self._module_ready, fullname)

        # Python strips frames of its import system from tracebacks; with this name, ours as well.
        exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORT_SYSTEM)
        with contextlib.suppress(AttributeError):  # The loader does not allow attributes.
            loader.exec_module = exec_module

    # --- the torch side -------------------------------------------------------------------------

    def _module_ready(self, module: str) -> None:
        if module in self._done:
            return
        self._done.add(module)
        if module == "torch":
            SCOPE.guard(describe_torch, self._torch_seconds)
        if module in self._on_import:
            SCOPE.guard(self._on_import[module])
        for hook in self._hooks:
            if any(name.module == module for name in hook.names):
                self._install(hook, module)

    def _install(self, hook: Hook, module: str) -> None:
        if hook.records in self._off:
            return
        concerned = [name for name in hook.names if name.module == module]
        missing = [name for name in concerned if name.find() is None]
        if missing:
            self._switch_off(hook, missing)
            return
        undos = self._undo.setdefault(hook.records, [])
        undos.extend(_replace(wrap) for wrap in hook.wraps if wrap.name.module == module)

    def _switch_off(self, hook: Hook, missing: list[TorchName]) -> None:
        self._off.add(hook.records)
        for undo in reversed(self._undo.pop(hook.records, [])):
            undo()
        if hook.is_optional:
            return
        SCOPE.emit(
            HookOff(
                stage=hook.stage,
                records=hook.records,
                missing=tuple(str(name) for name in missing),
            )
        )


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _replace(wrap: Wrap) -> Undo:
    """Replace the original with a function of the same kind: method, static or class method."""
    *path, last = wrap.name.attribute.split(".")
    owner: Any = sys.modules[wrap.name.module]
    for part in path:
        owner = getattr(owner, part)
    own = last in vars(owner)
    original = inspect.getattr_static(owner, last)
    setattr(owner, last, _same_kind(original, wrap))

    def undo() -> None:
        if own:
            setattr(owner, last, original)
        else:
            delattr(owner, last)

    return undo


def _same_kind(original: Any, wrap: Wrap) -> Any:
    if isinstance(original, staticmethod):
        return staticmethod(wrap.replacement(original.__func__))
    if isinstance(original, classmethod):
        return classmethod(wrap.replacement(original.__func__))
    return wrap.replacement(original)


def describe_torch(seconds: float = 0.0) -> None:
    version = sys.modules.get("torch.version")
    SCOPE.emit(
        TorchImported(
            version=str(getattr(version, "__version__", "unknown")),
            git=getattr(version, "git_version", ""),
            cuda=getattr(version, "cuda", "") or "",
            hip=getattr(version, "hip", "") or "",
            seconds=round(seconds, 3),
        )
    )
