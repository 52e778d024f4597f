"""The tables of `inductoscope env`, held against the installed torch."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inductoscope.torch_facts.log_lines import (
    PATTERNS,
    LogPattern,
    Presence,
    check_pattern,
    release,
)
from inductoscope.views.env.collection import Environment, Question, ask, find_variables
from inductoscope.views.env.flags import ARTIFACT, FLAGS, SETTING, VARIABLE, Flag

# Every name that the debugging guides for Inductor tell people to set.
ADVISED = {
    VARIABLE: """
        TORCH_LOGS TORCH_TRACE TORCH_COMPILE_DEBUG TORCH_SHOW_CPP_STACKTRACES
        TORCHDYNAMO_REPRO_AFTER TORCHINDUCTOR_TRITON_CUDAGRAPHS TORCHINDUCTOR_FREEZING
        TORCHINDUCTOR_NAN_ASSERTS AOTI_RUNTIME_CHECK_INPUTS PYTORCH_NO_CUDA_MEMORY_CACHING
        CUDA_LAUNCH_BLOCKING AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER
        AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT
    """,
    ARTIFACT: "inductor fusion schedule ir_pre_fusion ir_post_fusion output_code",
    SETTING: """
        debug verbose_progress trace.enabled pattern_matcher freezing cpp_wrapper cpp.simdlen
        cpp.threads max_autotune max_autotune_gemm autotune_local_cache autotune_remote_cache
        triton.cudagraphs triton.unique_kernel_names triton.debug_sync_kernel
        triton.debug_sync_graph
    """,
}

BY_NAME = {flag.name: flag for flag in FLAGS}
SETS_A_KEY = [flag for flag in FLAGS if flag.config_key]


@pytest.fixture(scope="module")
def unused_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("user") / "cache"


@pytest.fixture(scope="module")
def switched(unused_cache: Path) -> dict[str, Any]:
    """The installed torch, asked with every variable that sets a config key at its example."""
    with pytest.MonkeyPatch.context() as patch:
        for flag in SETS_A_KEY:
            patch.setenv(flag.name, flag.example or "")
        patch.setenv("TORCH_LOGS", "+inductor,fusion")
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(unused_cache))
        return ask(
            sys.executable,
            Question(
                names=[
                    ("torch._inductor.scheduler", "Scheduler.fuse_two_node"),
                    ("torch._inductor.scheduler", "Scheduler.__call__"),
                    ("torch._inductor.no_such_module", "anything"),
                    ("no_such_package.module", "anything"),
                ],
                settings=[flag.setting for flag in SETS_A_KEY if flag.setting],
                artifacts=["inductor", "fusion", "schedule", "no_such_artifact"],
            ),
        )


# --- the table of flags ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ADVISED)
def test_every_advised_name_is_in_the_table(kind: str) -> None:
    ours = {flag.name for flag in FLAGS if flag.kind == kind}
    assert set(ADVISED[kind].split()) <= ours


def test_the_table_is_consistent() -> None:
    assert len(BY_NAME) == len(FLAGS)
    assert {flag.replaced_by for flag in FLAGS if flag.replaced_by} <= BY_NAME.keys()
    assert all(flag.example for flag in FLAGS if flag.kind == VARIABLE)


def test_the_table_says_who_sets_a_flag_today() -> None:
    assert {flag.name: flag.set_by for flag in FLAGS if flag.set_by} == {
        "TORCHINDUCTOR_CACHE_DIR": ("run --fresh",),
        "TRITON_CACHE_DIR": ("run --fresh",),
    }


def test_the_installed_torch_knows_all_flags_but_the_replaced_ones(
    environment: Environment,
) -> None:
    assert environment.torch is not None
    version = release(environment.torch.version)
    unknown = {check.flag.name for check in environment.flags if not check.known}
    replaced = {flag.name for flag in FLAGS if flag.replaced_by}
    newer = {flag.name for flag in FLAGS if flag.since and version < release(flag.since)}
    other_builds = {
        flag.name for flag in FLAGS if flag.needs and flag.needs not in environment.torch.builds
    }
    assert unknown == replaced | newer | other_builds


def test_a_flag_of_another_build_says_so(environment: Environment) -> None:
    check = next(c for c in environment.flags if c.flag.name == "PYTORCH_NO_CUDA_MEMORY_CACHING")
    assert environment.torch is not None
    expected = (
        "string in libc10_cuda.so"
        if environment.torch.cuda
        else "not found: this torch is built without CUDA"
    )
    assert check.how == expected


def test_a_cited_line_reads_the_variable(environment: Environment) -> None:
    assert environment.torch is not None
    folder = Path(environment.torch.root).parent
    cited = [check for check in environment.flags if check.how.startswith("read in ")]
    assert len(cited) > 20
    for check in cited:
        path, line = check.how.removeprefix("read in ").split(":")
        assert check.flag.name in (folder / path).read_text("utf-8").splitlines()[int(line) - 1]


@pytest.mark.parametrize("flag", SETS_A_KEY, ids=lambda flag: flag.name)
def test_a_variable_sets_its_config_key(
    flag: Flag, environment: Environment, switched: dict[str, Any]
) -> None:
    check = next(check for check in environment.flags if check.flag == flag)
    if flag.since and not check.known:
        pytest.skip(check.how)
    setting = switched["settings"][SETS_A_KEY.index(flag)]
    assert setting["known"]
    assert setting["value"] != check.config_value


def test_artifacts_tell_whether_they_are_on(switched: dict[str, Any]) -> None:
    assert [(reply["how"], reply["value"]) for reply in switched["artifacts"]] == [
        ("registered log", "DEBUG"),
        ("registered artifact", "on"),
        ("registered artifact", "off"),
        (None, None),
    ]


def test_asking_leaves_the_cache_folder_alone(switched: dict[str, Any], unused_cache: Path) -> None:
    assert switched["problem"] is None
    assert not unused_cache.exists()


# --- private names --------------------------------------------------------------------------------


def test_the_installed_torch_has_all_that_we_rely_on(environment: Environment) -> None:
    assert environment.problem is None
    assert environment.notes == ()
    assert len(environment.names) > 30
    assert [check for check in environment.names if not check.found] == []
    assert environment.missing == ()


def test_a_missing_name_tells_where_its_path_ends(switched: dict[str, Any]) -> None:
    renamed, inherited, module, package = switched["names"]
    assert renamed["reason"] == (
        "torch._inductor.scheduler.Scheduler has no fuse_two_node; nearest: fuse_two_nodes"
    )
    # Every class can be called through its own type; that is no method to hook.
    assert inherited["reason"].startswith("torch._inductor.scheduler.Scheduler has no __call__")
    assert "No module named 'torch._inductor.no_such_module'" in module["reason"]
    assert module["absent"] is None
    assert package["absent"] == "no_such_package"


# --- log patterns ---------------------------------------------------------------------------------

SUBMITTED = LogPattern("Submitted precompile for choice: %s", "DEBUG")


def test_the_installed_torch_writes_every_expected_line(environment: Environment) -> None:
    assert environment.torch is not None
    version = environment.torch.version
    expected = [pattern for pattern in PATTERNS if pattern.expected_in(version)]
    found = [check.pattern for check in environment.patterns if check.presence is Presence.FOUND]
    assert found == expected


def test_a_drifted_line_names_the_nearest() -> None:
    source = (
        'log.info("Waiting on futures")\n'
        "log.debug(  # on purpose\n"
        '    "Submitted precompilation of choice %s", c\n'
        ")\n"
    )
    check = check_pattern(SUBMITTED, source, version="2.16.0")
    assert check.presence is Presence.MISSING
    assert check.nearest == "Submitted precompilation of choice %s"
    assert (check.line, check.level) == (3, "DEBUG")


def test_a_line_at_another_level_is_not_the_same_line() -> None:
    check = check_pattern(
        SUBMITTED, 'log.info("Submitted precompile for choice: %s", c)', version="2.13.0"
    )
    assert (check.presence, check.level) == (Presence.LEVEL_CHANGED, "INFO")
    assert not check.ok


def test_a_text_that_only_a_comment_has_is_missing() -> None:
    check = check_pattern(SUBMITTED, f"# {SUBMITTED.text}\n", version="2.13.0")
    assert check.presence is Presence.MISSING
    assert check.nearest is None


@pytest.mark.parametrize(
    ("version", "presence"),
    [("2.13.0+cpu", Presence.NOT_EXPECTED), ("2.14.1", Presence.MISSING)],
)
def test_a_line_is_expected_from_its_first_version_on(version: str, presence: Presence) -> None:
    later = replace(SUBMITTED, first="2.14")
    assert check_pattern(later, "", version=version).presence is presence


# --- where a variable is read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        'os.environ.get("FLAG", "0")',
        "os.getenv(\n    'FLAG'\n)",
        'FLAG_ENV_VAR = "FLAG"',
        'Config(env_name_force=["OTHER", "FLAG"])',
        "text = '''getenv(\"FLAG\")'''",
    ],
)
def test_a_read_is_recognised(tmp_path: Path, source: str) -> None:
    (tmp_path / "_inductor").mkdir()
    (tmp_path / "_inductor" / "config.py").write_text(f"import os\n{source}\n")
    found = find_variables(tmp_path, ["FLAG"])
    assert found["FLAG"].startswith("read in torch/_inductor/config.py:")


@pytest.mark.parametrize(
    "source",
    [
        "# set FLAG=1 in the environment",
        'print("run again with FLAG")',
        'MAPPING = {"FLAG": "OTHER"}',
        'os.environ["FLAG"] = "1"',
        'patch.dict(os.environ, {"FLAG": "1"})',
        'os.environ.get("MY_FLAG")',
    ],
)
def test_a_mention_is_not_a_read(tmp_path: Path, source: str) -> None:
    (tmp_path / "_inductor").mkdir()
    (tmp_path / "_inductor" / "config.py").write_text(source)
    assert find_variables(tmp_path, ["FLAG"]) == {}


def test_a_library_must_hold_the_whole_string(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libc10.so").write_bytes(b"\0WHOLE\0rerun with PART=1\0")
    found = find_variables(tmp_path, ["WHOLE", "PART"])
    assert found == {"WHOLE": "string in libc10.so"}


def test_a_library_that_is_empty_or_gone_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libc10.so").touch()
    (tmp_path / "lib" / "libtorch_cpu.so").symlink_to(tmp_path / "gone")
    assert find_variables(tmp_path, ["WHOLE"]) == {}
