"""Hooks are put into modules, and taken out again."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from inductoscope.inside.install import Installer
from inductoscope.torch_facts.torch_names import Hook, TorchName, Wrap


def hook(records: str) -> Hook:
    def replacement(original: Callable[[], list[str]]) -> Callable[[], list[str]]:
        return lambda: [records, *original()]

    return Hook("caches", records, (Wrap(TorchName("hooked", "answer"), replacement),))


def test_two_hooks_on_one_name_are_both_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("hooked")
    module.answer = original = list
    monkeypatch.setitem(sys.modules, "hooked", module)
    installer = Installer((hook("first"), hook("second")))
    installer.start()
    assert module.answer() == ["second", "first"]
    installer.stop()
    assert module.answer is original
