"""The tests of `make test`: each part of the product is used for real once.

Tests that need no torch all belong to it. Of the others, which start programs that compile, this
table has one or a few for each part. `make test-all` runs everything.
"""

from __future__ import annotations

from pathlib import Path

# Folders whose tests all belong to it.
WHOLE_FOLDERS = ("unit", "fuzz")

# Files, or functions of a file, by the part of the product that they use.
EVERYDAY: dict[str, tuple[str, ...]] = {
    "recording a program, and every stage in the recording": ("integration/test_capture.py",),
    "a program that goes on undisturbed": (
        "integration/test_hostile_programs.py::test_a_full_disk_stops_the_recording",
        "integration/test_hostile_programs.py::test_a_missing_private_name",
        "integration/test_uncaught.py",
    ),
    "a cache hit": ("doctor/test_later_runs.py",),
    "doctor: a wrong result, from the program to the proof": (
        "doctor/test_doctor.py::test_a_wrong_lowering",
    ),
    "doctor: a compile error": ("doctor/test_doctor.py::test_code_that_the_cpp_compiler_refuses",),
    "doctor: healthy programs are clean": (
        "doctor/test_doctor_healthy.py::test_a_healthy_model_with_gradients_is_clean",
        "doctor/test_doctor_healthy.py::test_ctrl_c_ends",
        "doctor/test_doctor_healthy.py::test_bad_usage",
    ),
    "doctor: a failure that a checked run hides": (
        "doctor/test_hidden_failures.py::test_a_stale_entry",
    ),
    "doctor: a machine that cannot compile": (
        "doctor/test_doctor_bad_input.py::test_without_a_cpp_compiler",
    ),
    "doctor: an autotuning choice that hangs": (
        "doctor/test_doctor_autotune.py::test_the_configuration_is_named",
    ),
    "doctor: comparing": (
        "doctor/test_bug_or_rounding.py",
        "doctor/test_cpp_kernels.py",
        "doctor/test_operators.py",
        "doctor/test_guarded_memory.py",
        "doctor/test_loop_bodies.py",
        "doctor/test_kernels.py",
        "doctor/test_nan_asserts.py",
        "doctor/test_checked_function.py",
    ),
    "doctor: searching, shrinking and writing scripts": (
        "doctor/test_axes.py",
        "doctor/test_shrink.py",
        "doctor/test_forks.py",
        "doctor/test_subgraph.py",
        "doctor/test_failure_script.py",
        "doctor/test_python_text.py",
        "doctor/test_verify.py",
    ),
    "doctor: a large model": ("doctor/test_large_calls.py",),
    "doctor: the verdict": ("doctor/test_verdict.py",),
    "doctor: the sentinel": (
        "doctor/test_sentinel_alarm.py::test_what_a_compiled_optimizer_writes",
    ),
    "doctor: a cluster": ("doctor/test_cluster_faults.py",),
    "attach, and stalls": (
        "integration/test_attach.py::test_a_program_in_code_of_its_own",
        "integration/test_watch_stalls.py::test_a_compile_that_is_only_slow_moves",
    ),
    "kernel": (
        "integration/test_kernel_alone.py::test_a_kernel_that_compiles_alone",
        "integration/test_kernel_alone.py::test_an_assembler_that_never_ends",
    ),
    "run --values": ("integration/test_kernel_values.py::test_only_the_kernels",),
    "Triton without a GPU, and --target": (
        "integration/test_triton.py",
        "integration/test_recompile.py",
    ),
    "bounds": ("integration/test_bounds_command.py::test_healthy_operators",),
    "fusion": ("integration/test_fusion.py",),
    "profile": (
        "integration/test_profile.py::test_a_program_is_profiled",
        "integration/test_memory_peaks.py",
    ),
    "aoti": ("integration/test_package_runs.py::test_inputs_that_break_a_guard",),
    "preflight": ("integration/test_preflight.py::test_a_collective_of_the_first_rank_alone",),
    "pytest --inductoscope": (
        "integration/test_pytest_plugin.py::test_wrong_code_fails_the_tests",
    ),
    "mcp": ("integration/test_mcp.py::test_output_of_the_program_comes_after_the_json",),
    "%%inductoscope": ("integration/test_notebook.py::test_a_recorded_cell",),
    "api: check": ("integration/test_check_function.py",),
    "env": ("integration/test_environment_command.py::test_json_on_stdout",),
    "the page": ("browser/test_page_browser.py",),
    "the installed package": ("integration/test_wheel.py",),
}


def is_everyday(nodeid: str) -> bool:
    """Whether a test, by pytest's name for it, belongs to `make test`."""
    place = nodeid.removeprefix("tests/")
    if place.partition("/")[0] in WHOLE_FOLDERS:
        return True
    return any(place.startswith(chosen) for part in EVERYDAY.values() for chosen in part)


def has_everyday(path: Path) -> bool:
    """Whether a test file has tests that belong to `make test`; importing the others takes long."""
    place = path.relative_to(Path(__file__).parent).as_posix()
    if place.partition("/")[0] in WHOLE_FOLDERS:
        return True
    return any(chosen.partition("::")[0] == place for part in EVERYDAY.values() for chosen in part)


def missing() -> list[str]:
    """Entries that no test file has."""
    here = Path(__file__).parent
    names = [chosen.partition("::") for part in EVERYDAY.values() for chosen in part]
    return [
        f"{file}::{name}"
        for file, _, name in names
        if not (here / file).is_file() or f"def {name}" not in (here / file).read_text("utf-8")
    ]
