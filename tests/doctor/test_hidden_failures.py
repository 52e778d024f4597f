"""Failures that a checked run hides, because one of its conditions is not the user's.

Each program fails whenever it is run as it is, and ends well while its graphs are checked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.programs import Workplace

pytestmark = pytest.mark.spread

# Two graphs get the same key, so the second takes the code of the first from the cache.
SAME_KEY = """
import torch
import torch._functorch._aot_autograd.autograd_cache as cache

key_of = cache.autograd_cache_key
cache.autograd_cache_key = lambda *a, **k: ("a" + "0" * 51, key_of(*a, **k)[1])

x = torch.arange(4.0)
for function in ({functions}):
    torch.testing.assert_close(torch.compile(function)(x), function(x))
"""
BOTH, SECOND = "lambda x: x + 1, lambda x: x * 2", "lambda x: x * 2,"


def files_of(folder: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_wrong_cache_entry_is_named_with_the_two_compiles_that_share_it(
    workplace: Workplace,
) -> None:
    workplace.write("both.py", SAME_KEY.format(functions=BOTH))
    found = workplace.doctor("both.py").verdict
    assert (found["verdict"], found["stage"], found["confidence"]) == (
        "wrong-result",
        "aot",
        "proven",
    )
    assert "compile 1/0 of <lambda> takes the entry that compile 0/0 saved" in found["summary"]
    apart = [item["what"] for item in found["evidence"] if "tells the two apart" in item["what"]]
    assert apart == [
        "the key leaves out what tells the two apart: add = l_x_ + 1 and mul = l_x_ * 2"
    ]
    assert found["workaround"]["verified"]


def test_a_stale_entry_of_the_users_own_cache_is_found_and_left_as_it_is(
    workplace: Workplace,
) -> None:
    """An earlier run has saved it; the program itself compiles one graph, which is right."""
    workplace.write("both.py", SAME_KEY.format(functions=BOTH))
    workplace.write("second.py", SAME_KEY.format(functions=SECOND))
    assert workplace.run_plain("both.py").exit_code == 1
    before = files_of(workplace.cache)
    assert any("aotautograd" in str(path) for path in before)
    found = workplace.doctor("second.py").verdict
    assert (found["verdict"], found["confidence"]) == ("wrong-result", "proven")
    assert "an earlier run saved" in found["summary"]
    after = files_of(workplace.cache)
    assert {path: after.get(path) for path in before} == before


ONE_KERNEL = """
import torch

x = torch.arange(4.0)
torch.testing.assert_close(torch.compile(lambda x: {code})(x), {code})
"""


def test_a_file_of_the_cache_that_holds_other_code_than_it_should(workplace: Workplace) -> None:
    """As on a disk that several machines share: the library of a kernel is not the program's."""
    libraries = []
    for name, code in (("add.py", "x + 1"), ("double.py", "x * 2")):
        workplace.write(name, ONE_KERNEL.format(code=code))
        assert workplace.run_plain(name).exit_code == 0
        libraries.append(set(workplace.cache.rglob("*.main.so")) - set().union(*libraries))
    (added,), (doubled,) = libraries
    doubled.unlink()  # It may be mapped.
    doubled.write_bytes(added.read_bytes())
    assert workplace.run_plain("double.py").exit_code == 1
    found = workplace.doctor("double.py").verdict
    assert (found["verdict"], found["stage"]) == ("wrong-result", "runtime")
    assert str(workplace.cache) in found["summary"]
    assert found["culprit"]["function"] == "torch's code cache"
    assert found["workaround"]["text"].startswith(f"delete {workplace.cache}/??, or have torch")
    assert found["workaround"]["verified"]


EVERY_SEED_IS_THE_SAME = """
import torch
from torch._inductor.codegen import cpp

cpp.CppOverrides.load_seed = staticmethod(lambda name, offset: "int64_t(7)")

@torch.compile
def noise(x):
    return torch.rand_like(x) + x

x = torch.zeros(1000)
assert not torch.equal(noise(x), noise(x))
"""


def test_random_numbers_of_inductor_that_are_not_random(workplace: Workplace) -> None:
    """Checked code draws eager's. In eager, numbers of other seeds do not make it fail."""
    workplace.write("noise.py", EVERY_SEED_IS_THE_SAME)
    found = workplace.doctor("noise.py").verdict
    assert (found["verdict"], found["stage"], found["confidence"]) == (
        "wrong-result",
        "inductor",
        "likely",
    )
    assert "rand_like" in found["culprit"]["op"]
    assert found["workaround"]["verified"]
    assert "fallback_random = True" in found["workaround"]["text"]


SAME_SEED = """
import torch

def half(x):
    return torch.nn.functional.dropout(x, 0.5)

results = []
for function in (half, torch.compile(half)):
    torch.manual_seed(0)
    results.append(function(torch.ones(1000)))
torch.testing.assert_close(*results)
"""


def test_a_program_that_asks_inductor_for_the_random_numbers_of_eager(workplace: Workplace) -> None:
    workplace.write("dropout.py", SAME_SEED)
    found = workplace.doctor("dropout.py").verdict
    assert (found["verdict"], found["confidence"]) == ("not-a-bug", "proven")
    shown = [item["what"] for item in found["evidence"]]
    assert "fails in the same way in eager with other random numbers, too" in shown


THREADS = """
import ctypes
import torch

x = torch.arange(4.0)
result = torch.compile(lambda x: x + 1)(x)
is_compiled = torch._dynamo.utils.counters["frames"]["ok"]
if is_compiled and ctypes.CDLL(None).omp_get_thread_limit() > 1:
    result[3] = 7  # As if two threads had written it.
torch.testing.assert_close(result, x + 1)
"""


def test_a_failure_that_needs_several_threads(workplace: Workplace) -> None:
    workplace.write("threads.py", THREADS)
    found = workplace.doctor("threads.py").verdict
    assert (found["verdict"], found["stage"]) == ("wrong-result", "runtime")
    assert found["culprit"]["config"] == "several threads"
    assert "OMP_THREAD_LIMIT=1" in found["workaround"]["text"]


SAME_ADDRESS = """
import torch
from torch._inductor.output_code import CompiledFxGraph

call, last = CompiledFxGraph.__call__, {}

def unless_inputs_are_where_they_were(graph, inputs):
    addresses = [each.data_ptr() for each in inputs]
    if last.get("addresses") != addresses:
        last.update(addresses=addresses, result=call(graph, inputs))
    return last["result"]

CompiledFxGraph.__call__ = unless_inputs_are_where_they_were
double = torch.compile(lambda x: x * 2)
x = torch.zeros(4)
for step in range(2):
    x += 1
    torch.testing.assert_close(double(x), x * 2)
"""


def test_a_failure_that_the_calls_of_checks_hide(workplace: Workplace) -> None:
    """A check calls compiled code with copies, so that no call has the addresses of the last."""
    workplace.write("address.py", SAME_ADDRESS)
    found = workplace.doctor("address.py").verdict
    assert (found["verdict"], found["stage"], found["confidence"]) == (
        "wrong-result",
        "runtime",
        "unknown",
    )
    assert found["culprit"]["config"] == "calls without checks"
