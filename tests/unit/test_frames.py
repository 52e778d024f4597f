"""Whose code a path belongs to, and how it is shown."""

from __future__ import annotations

import sysconfig
import threading

import pytest

import inductoscope
from inductoscope.torch_facts.frames import (
    innermost_users,
    is_compilers,
    is_generated,
    is_own,
    is_torchs,
    is_users,
    shorten,
)

HASH = "cqbq3f2hrhdbxbqjbzkzzqkqsbxlrxx6zzrl5c3yzfrkzqbxsjkq"

USERS = (
    "train.py",
    "/home/me/project/model.py",
    "/home/me/torch/model.py",
    "/home/me/inductoscope/examples/model.py",
    "C:\\Users\\me\\model.py",
    "/data/lib/model.py",
    "/content/drive/My Drive/model.py",
)
TORCHS = (
    "/opt/venv/lib/python3.12/site-packages/torch/_inductor/graph.py",
    "/usr/lib/python3/dist-packages/torch/nn/modules/module.py",
    "/home/me/pytorch/torch/_dynamo/convert_frame.py",
    "/home/me/pytorch/torch/fx/interpreter.py",
    "/home/me/pytorch/torch/_ops.py",
    "C:\\Python312\\Lib\\site-packages\\torch\\utils\\_pytree.py",
)
GENERATED = (
    "/tmp/torchinductor_me/qb/anything.py",
    f"/tmp/cache/inductor/qb/{HASH}.py",
    f"/tmp/cache/inductor/qb/{HASH}.main.cpp",
    f"/tmp/cache/{HASH}.py",
)
PYTHONS = (
    threading.__file__,
    f"{sysconfig.get_path('stdlib')}/contextlib.py",
    "/usr/lib/python3.11/threading.py",
    "/usr/lib64/python3.11/threading.py",
    "/opt/conda/lib/python3.13t/threading.py",
    "C:\\Python312\\Lib\\threading.py",
    "<frozen importlib._bootstrap>",
    "<string>",
    "",
)
OTHERS = (
    "/opt/venv/lib/python3.12/site-packages/transformers/models/bert.py",
    "/usr/lib/python3/dist-packages/numpy/core.py",
)
OWN = (
    inductoscope.__file__,
    "/home/me/inductoscope/src/inductoscope/capture/observe.py",
    "/opt/venv/lib/python3.12/site-packages/inductoscope/capture/observe.py",
)


@pytest.mark.parametrize("file", USERS)
def test_a_file_that_is_nobody_elses_is_the_users(file: str) -> None:
    assert is_users(file)
    assert not any(is_others(file) for is_others in (is_torchs, is_generated, is_own))


@pytest.mark.parametrize("file", [*TORCHS, *GENERATED, *PYTHONS, *OTHERS, *OWN])
def test_what_is_installed_generated_or_pythons_is_not_the_users(file: str) -> None:
    assert not is_users(file)


@pytest.mark.parametrize("file", TORCHS)
def test_torch_is_known_wherever_it_lies(file: str) -> None:
    assert is_torchs(file)
    assert is_compilers(file) == ("_inductor" in file or "_dynamo" in file)


@pytest.mark.parametrize("file", GENERATED)
def test_generated_files_are_known_by_their_folder_or_name(file: str) -> None:
    assert is_generated(file)


@pytest.mark.parametrize("file", OWN)
def test_our_own_files_are_known(file: str) -> None:
    assert is_own(file)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        (TORCHS[0], "torch/_inductor/graph.py"),
        (TORCHS[1], "torch/nn/modules/module.py"),
        (TORCHS[-1], "torch/utils/_pytree.py"),
        (OTHERS[0], "transformers/models/bert.py"),
        (USERS[1], USERS[1]),
        (USERS[4], USERS[4]),
        ("", ""),
    ],
)
def test_files_of_packages_are_shown_by_their_path_in_the_package(file: str, shown: str) -> None:
    assert shorten(file) == shown


def test_the_users_frame_is_the_innermost_of_theirs_or_else_the_innermost() -> None:
    stack = ["/a/train.py", "/a/model.py", OTHERS[0]]
    assert innermost_users(stack, str) == "/a/model.py"
    assert innermost_users([OTHERS[0], TORCHS[0]], str) == TORCHS[0]
    assert innermost_users([], str) is None
