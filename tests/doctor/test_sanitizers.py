"""Generated kernels under the sanitizers: the line that reads past the end of a buffer is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inductoscope.errors import ToolFailure
from inductoscope.inside.search import sanitizers
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.sanitizers import SanitizerFinding, findings_in, run_sanitized

KERNEL = """#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* in_out_ptr0)
{
    auto tmp0 = loadu(in_out_ptr0 + 4);
    auto tmp1 = tmp0 >> 33;
}
"""
WRAPPER = f"""
cpp_fused_sin_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C"  void  kernel(const float* in_ptr0)
''')
cpp_fused_exp_1 = async_compile.cpp_pybinding(['float*'], r'''
{KERNEL}''')
cpp_fused_cos_2 = async_compile.cpp_pybinding(['float*'], r'''
''')
"""
# As AddressSanitizer of g++ 12 printed it, without the frames of Python.
PRINTED = """
==919==ERROR: AddressSanitizer: heap-buffer-overflow on address 0xffff4d291ac0 at pc 0xffff473318b8
READ of size 16 at 0xffff4d291ac0 thread T0
    #0 0xffff473318b4 in at::vec::Vectorized<float>::loadu(void const*, long) /torch/neon.h:193
    #1 0xffff473318b4 in kernel PATH:4
    #2 0xffff47331f8c in kernel_py PATH:69

0xffff4d291ac0 is located 0 bytes to the right of 1600-byte region [0xffff4d291480,0xffff4d291ac0)
allocated by thread T0 here:
    #0 0xffff85e6b734 in __interceptor_malloc ../asan_malloc_linux.cpp:69
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "c1.main.cpp"
    path.write_text(KERNEL)
    return path


def test_the_report_names_kernel_and_line(source: Path) -> None:
    (found,) = findings_in(PRINTED.replace("PATH", str(source)), WRAPPER)
    assert found == SanitizerFinding(
        "heap-buffer-overflow",
        "READ of size 16",
        "0 bytes to the right of 1600-byte region",
        "cpp_fused_exp_1",
        "auto tmp0 = loadu(in_out_ptr0 + 4);",
    )


def test_undefined_behaviour_is_reported_with_its_line(source: Path) -> None:
    printed = f"{source}:5:24: runtime error: shift exponent 33 is too large for 32-bit type 'int'"
    (found,) = findings_in(printed, WRAPPER)
    assert found.kernel == "cpp_fused_exp_1"
    assert found.text.endswith("32-bit type 'int'; in the line `auto tmp1 = tmp0 >> 33;`")


def test_other_output_is_no_finding() -> None:
    assert findings_in("UserWarning: Failed to initialize NumPy", WRAPPER) == ()


def exp(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x) + 1


@pytest.fixture
def candidate() -> Candidate:
    return Candidate(torch.fx.symbolic_trace(exp), (torch.ones(20, 20),))


def test_without_the_sanitizer_it_says_so(
    candidate: Candidate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizers, "_libraries", list)
    with pytest.raises(ToolFailure, match="g\\+\\+ has no AddressSanitizer on this machine"):
        run_sanitized(candidate, Forks(), tmp_path / "new")


def test_a_kernel_that_reads_past_the_end_is_found(
    candidate: Candidate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.codegen.cpp import CppScheduling

    original = CppScheduling.define_kernel

    def define_kernel(self: Any, text: str, *args: Any, **kwargs: Any) -> Any:
        text = text.replace("loadu(in_ptr0 +", "loadu(in_ptr0 + 4 +")
        return original(self, text, *args, **kwargs)

    monkeypatch.setattr(CppScheduling, "define_kernel", define_kernel)
    first = run_sanitized(candidate, Forks(seconds=300), tmp_path / "new")[0]
    assert first.error == "heap-buffer-overflow"
    assert first.kernel.startswith("cpp_fused_add_exp")
    assert "loadu(in_ptr0 + 4 +" in first.source
