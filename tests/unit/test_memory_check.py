"""Output of compute-sanitizer on an H200, parsed."""

from __future__ import annotations

from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.compute_sanitizer import InvalidAccess, check_memory, read_report

# A kernel of the user's own reads 2**34 elements too far; CUDA 13.0.
REPORT = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 8 bytes
=========     at shifted+0xd0 in cv7e7wv7kvji7jgqoior7epdpmkg7tqf6etgf7mj7n7iilittvbc.py:20
=========     by thread (96,0,0) in block (2,0,0)
=========     Access to 0x7f526a800b00 is out of bounds
=========     and is 68,581,067,009 bytes after the nearest allocation at 0x7f4272c00000 of size 512 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch [0x1da3] in __triton_launcher.cpython-312-x86_64-linux-gnu.so
"""  # noqa: E501


def test_the_kernel_the_line_and_the_distance_are_read(snapshot: SnapshotAssertion) -> None:
    access = read_report(REPORT)
    assert isinstance(access, InvalidAccess)
    assert access.kernel == "shifted"
    assert access.text == snapshot


def test_a_report_without_an_access_names_nothing() -> None:
    text = 'Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"'
    assert read_report(f"========= {text} on CUDA API call to cudaDeviceSynchronize.") is None


def test_where_it_is_not_installed_that_is_said(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    found = check_memory(["true"], tmp_path, {"PATH": str(tmp_path)})
    assert found.access is None
    assert found.why_not == snapshot


def test_a_tool_that_prints_a_report_is_run_with_the_program(tmp_path: Path) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f'#!/bin/sh\ncat {tmp_path}/report\nshift 4\nexec "$@"\n')
    tool.chmod(0o755)
    (tmp_path / "report").write_text(REPORT)
    found = check_memory(["/bin/sh", "-c", "echo ran"], tmp_path, {"PATH": f"{tmp_path}:/bin"})
    assert found.access is not None
    assert found.access.kernel == "shifted"
