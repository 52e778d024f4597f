"""The doctor's conclusions from calls of AOTInductor packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.hypotheses.packages import note_copies
from inductoscope.doctor.hypotheses.program_itself import refused_nan
from inductoscope.recording.events import (
    NAN_LIKELY,
    Check,
    CompileEnd,
    CompileStart,
    CppLibraryTaken,
    Event,
    ExceptionUncaught,
    GraphCall,
    GraphReturned,
    SizesTried,
)
from inductoscope.recording.events import NAN_REFUSED as REFUSED
from inductoscope.torch_facts.messages import refused_variable
from support.program_cases import ENDS_WELL, FAILS, End, written_case

MADE_HERE = CompileStart(compile="aoti/0", function="Model", flow="AOTInductor")
DEMAND = "input 0 (x): dimension 0 is 100; the package accepts 2 to 64"
HERE = GraphCall(compile="aoti/0", call=1)
KILLED = End(139, "", died=True, signal=11)


def checked(verdict: str, text: str = "", name: str = "aoti/0") -> Check:
    return Check(compile=name, call=1, verdict=verdict, text=text)


OUTSIDE = checked("outside", f"{DEMAND} (called at serve.py:3)")


def served(verdict: str, text: str = "") -> Check:
    return checked(verdict, text, "package model.pt2")


CALLED = GraphCall(compile="package model.pt2", call=1)


@pytest.mark.parametrize(
    ("end", "what"),
    [
        (replace(ENDS_WELL, events=(checked("wrong-outside", "output 0 is 3"),)), "output 0 is 3"),
        (replace(KILLED, events=(HERE,)), "the program then died of SIGSEGV"),
    ],
    ids=["wrong", "dies"],
)
def test_an_input_that_the_package_does_not_accept(tmp_path: Path, end: End, what: str) -> None:
    end = replace(end, events=(MADE_HERE, OUTSIDE, *end.events))
    case, asked = written_case(tmp_path, end)
    found = first_verdict(case)
    assert (found.verdict, found.stage, found.confidence) == ("not-a-bug", "user", "proven")
    assert DEMAND in found.summary
    assert found.culprit.source == "serve.py:3"
    assert what in [item["what"] for item in found.evidence]
    assert asked == []


def test_a_constant_that_was_replaced_by_another_kind_of_tensor(tmp_path: Path) -> None:
    """There is nothing to compare with: eager takes no such constant."""
    text = "constant a.weight: the new one has dtype float64; the package has float32"
    events: tuple[Event, ...] = (
        MADE_HERE,
        checked("outside", text),
        checked("skipped", "replaced"),
    )
    case, asked = written_case(tmp_path, replace(ENDS_WELL, events=events))
    found = first_verdict(case)
    assert found.verdict == "not-a-bug"
    assert text in found.summary
    assert any("torch.empty_like(constant)" in item["what"] for item in found.evidence)
    assert asked == []


@pytest.mark.parametrize(("with_copies", "confidence"), [(True, "proven"), (False, "likely")])
def test_a_constant_that_is_a_view_is_right_in_itself(
    tmp_path: Path,
    with_copies: bool,
    confidence: str,
    snapshot: SnapshotAssertion,
) -> None:
    """Nothing forbids a view: torch copies the wrong memory, and a copy of it is right."""
    text = "constant weight: the new one is a view of 8448 bytes; torch copies all of them"
    events: tuple[Event, ...] = (
        MADE_HERE,
        checked("outside", text),
        checked("wrong-outside", "output 0 is 3"),
        *([checked("right-with-copies")] if with_copies else []),
    )
    case, asked = written_case(tmp_path, replace(ENDS_WELL, events=events))
    found = first_verdict(case)
    assert (found.verdict, found.stage, found.confidence) == ("wrong-result", "runtime", confidence)
    assert found.summary == snapshot
    assert asked == []


@pytest.mark.parametrize(("end", "verdict"), [(FAILS, "not-a-bug"), (ENDS_WELL, "clean")])
def test_a_constant_that_torch_rejects_is_explained(tmp_path: Path, end: End, verdict: str) -> None:
    """Torch says only that an API call failed. A program that goes on is not accused."""
    text = "constant weight: the new one is on meta; the package has it on cpu"
    own = (MADE_HERE, checked("right", "2 values"), checked("outside", text))
    rejected = checked("rejected", "load_constants raised RuntimeError: API call failed")
    case, _ = written_case(tmp_path, replace(end, events=(*own, rejected)), plain=[ENDS_WELL])
    found = first_verdict(case)
    assert found.verdict == verdict
    assert (text in found.summary) == (verdict == "not-a-bug")


def test_a_constant_that_is_a_view_may_end_the_process(tmp_path: Path) -> None:
    text = "constant weight: the new one is a view that begins at element 1024 of its memory"
    events = (MADE_HERE, checked("outside", text), checked("right-with-copies"), HERE)
    case, _ = written_case(tmp_path, replace(KILLED, events=events))
    found = first_verdict(case)
    assert (found.verdict, found.stage, found.confidence) == ("crash", "runtime", "proven")


@pytest.mark.parametrize(
    ("room", "verdict"),
    [("torch copies all of them, and the package has room for 8192", "crash"), ("", "")],
    ids=["past the end", "not past the end"],
)
def test_memory_that_a_view_has_overwritten_may_end_the_process_later(
    tmp_path: Path, room: str, verdict: str
) -> None:
    """No call is under way then, and the call itself was right: that it was this is likely."""
    text = f"constant weight: the new one is a view of 8448 bytes; {room}"
    events = (MADE_HERE, checked("outside", text), checked("right"), checked("right-with-copies"))
    case, _ = written_case(tmp_path, replace(KILLED, events=events))
    found = first_verdict(case)
    assert ("takes a view wrongly" in found.summary) == bool(verdict)
    if verdict:
        assert (found.verdict, found.confidence) == (verdict, "likely")


def test_other_sizes_that_were_tried_are_in_the_evidence(tmp_path: Path) -> None:
    tried = SizesTried(text="graph aoti/0: s77 = 2, s77 = 64")
    events: tuple[Event, ...] = (MADE_HERE, HERE, checked("right", "2 values"), tried)
    case, _ = written_case(tmp_path, replace(ENDS_WELL, events=events), plain=[ENDS_WELL])
    found = first_verdict(case)
    assert found.verdict == "clean"
    assert any("other sizes that the export admits" in item["what"] for item in found.evidence)


def test_what_fails_after_such_a_call_went_right_has_another_cause(tmp_path: Path) -> None:
    events: tuple[Event, ...] = (MADE_HERE, OUTSIDE, checked("right", "2 values"))
    case, _ = written_case(tmp_path, replace(FAILS, events=events))
    assert "was not made for" not in first_verdict(case).summary


def test_an_input_that_is_not_accepted_but_does_no_harm_is_not_blamed(tmp_path: Path) -> None:
    """A size past its range may well be computed rightly."""
    events: tuple[Event, ...] = (MADE_HERE, OUTSIDE, checked("right", "2 values"))
    case, _ = written_case(tmp_path, replace(ENDS_WELL, events=events), plain=[ENDS_WELL])
    found = first_verdict(case)
    assert found.verdict == "clean"
    assert any(DEMAND in text for text in found.not_checked)


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (replace(KILLED, events=(served("skipped"), CALLED)), "died of SIGSEGV"),
        (
            End(1, "ValueError: no", events=(served("skipped"), served("error", "ValueError: no"))),
            "failed",
        ),
    ],
    ids=["dies", "raises"],
)
def test_a_package_from_elsewhere_that_fails_is_not_blamed_on_the_program(
    tmp_path: Path, end: End, how: str
) -> None:
    """Without torch.compile it would fail as well: that says nothing, the package is called too."""
    case, asked = written_case(tmp_path, end, off=[FAILS])
    found = first_verdict(case)
    assert (found.verdict, found.stage) == ("unknown", "runtime")
    assert f"The program {how} in a call of package model.pt2" in found.summary
    assert asked == []


def test_a_package_from_elsewhere_that_is_well_is_not_called_clean(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    returned = GraphReturned(compile="package model.pt2", call=1)
    end = replace(ENDS_WELL, events=(served("skipped"), CALLED, returned))
    case, _ = written_case(tmp_path, end, plain=[ENDS_WELL])
    found = first_verdict(case)
    assert found.verdict == "not-checked"
    assert found.summary == snapshot


def test_a_program_that_fails_beside_a_package_is_not_blamed_for_it(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """The package may compute what it should not; a run in eager would call it as well."""
    end = replace(FAILS, events=(served("skipped"),))
    case, asked = written_case(tmp_path, end, off=[FAILS], plain=[FAILS])
    found = first_verdict(case)
    assert found.verdict == "unknown"
    assert found.summary == snapshot
    assert "off" not in asked


def test_a_program_that_compiles_ahead_of_time_and_never_calls_it(tmp_path: Path) -> None:
    end = CompileEnd(compile="aoti/0", seconds=1.0, outcome="compiled")
    case, _ = written_case(tmp_path, replace(ENDS_WELL, events=(MADE_HERE, end)), plain=[ENDS_WELL])
    found = first_verdict(case)
    assert found.verdict == "not-checked"


def test_a_package_whose_calls_cannot_be_compared_is_tried_against_eager(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """As with a buffer that the package should change and does not."""
    skipped = checked("skipped", "it changes its own buffers, so that no two calls are alike")
    case, asked = written_case(tmp_path, replace(FAILS, events=(MADE_HERE, skipped)))
    case.runs.uses_packages = True  # As the first run shows.
    found = first_verdict(case)
    assert (found.verdict, found.confidence) == ("wrong-result", "likely")
    assert found.summary == snapshot
    assert asked == ["eager"]


# --- a copy of libstdc++ in a package -------------------------------------------------------------

COPY = CppLibraryTaken(package="model.pt2", source="/home/me/serve.py:18")
# Under the tool it ends well: there the library that torch uses comes before the copy.
WITH_COPY = replace(ENDS_WELL, events=(MADE_HERE, COPY, checked("right", "2 values")))

IN_LOADING = """Fatal Python error: Segmentation fault

Thread 0x00007f2b (most recent call first):
  File "/lib/python3.12/threading.py", line 359 in wait

Current thread 0x00007f3c (most recent call first):
  File "/lib/torch/_inductor/package/package.py", line 135 in load_package
  File "/lib/torch/_inductor/__init__.py", line 290 in aoti_load_package
  File "/home/me/serve.py", line 18 in <module>
"""


KILLED_IN_LOADING = replace(KILLED, output=IN_LOADING)
# Without the library loaded first and with it, twice.
IN_TURN = [KILLED, ENDS_WELL, KILLED_IN_LOADING, ENDS_WELL]


def test_a_program_that_a_copy_of_the_cpp_library_kills(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    case, asked = written_case(tmp_path, WITH_COPY, plain=list(IN_TURN))
    found = first_verdict(case)
    assert (found.verdict, found.stage, found.confidence) == ("crash", "cpp-compile", "proven")
    assert found.summary == snapshot
    assert found.culprit.source == "/home/me/serve.py:18"
    assert found.workaround is not None
    assert found.workaround.verified
    assert "LD_PRELOAD=libstdc++.so.6" in found.workaround.text
    assert "libstdc++.so.6" in found.workaround.code
    assert "ctypes" not in found.workaround.code  # That is not how those runs were made.
    assert asked == ["plain"] * 4


@pytest.mark.parametrize(
    "plain",
    [[FAILS, ENDS_WELL, ENDS_WELL], [FAILS, ENDS_WELL, FAILS, FAILS]],
    ids=["without the library", "with it"],
)
def test_a_program_that_fails_now_and_then_is_not_blamed_on_the_copy(
    tmp_path: Path, plain: list[End]
) -> None:
    case, _ = written_case(tmp_path, WITH_COPY, plain=plain)
    assert "libstdc++" not in first_verdict(case).summary


@pytest.mark.parametrize(
    ("line", "blamed", "source"),
    [
        (18, "model.pt2 brings", "/home/me/serve.py:18"),
        (9, "other.pt2 brings", "/home/me/serve.py:9"),
        (30, "model.pt2, other.pt2 each bring", None),
    ],
    ids=["the first", "the second", "elsewhere"],
)
def test_the_package_that_was_being_loaded_is_blamed(
    tmp_path: Path, line: int, blamed: str, source: str | None
) -> None:
    other = CppLibraryTaken(package="other.pt2", source="/home/me/serve.py:9")
    killed = replace(KILLED, output=IN_LOADING.replace("line 18", f"line {line}"))
    first = replace(WITH_COPY, events=(*WITH_COPY.events, other))
    case, _ = written_case(tmp_path, first, plain=[KILLED, ENDS_WELL, killed, ENDS_WELL])
    found = first_verdict(case)
    assert f"because {blamed} a copy of libstdc++" in found.summary
    assert found.culprit.source == source


def test_a_program_that_takes_long_is_not_run_again_for_a_copy(tmp_path: Path) -> None:
    case, asked = written_case(tmp_path, replace(WITH_COPY, seconds=700.0), plain=list(IN_TURN))
    assert first_verdict(case).verdict == "clean"
    assert asked == []


def test_a_copy_in_what_was_only_compiled_is_noted_too(tmp_path: Path) -> None:
    compiled = replace(WITH_COPY, events=(MADE_HERE, CppLibraryTaken(package="", source="")))
    case, _ = written_case(tmp_path, compiled, plain=[ENDS_WELL])
    found = first_verdict(case)
    note_copies(found, case)
    assert "a package that was compiled here brings a copy of libstdc++" in str(found.evidence)


@pytest.mark.parametrize(("first", "sure"), [("create_func_(", "proven"), ("no route", "likely")])
def test_two_errors_are_a_proof_only_if_both_are_raised_while_a_package_is_loaded(
    tmp_path: Path, first: str, sure: str
) -> None:
    raised, again = End(1, f"RuntimeError: {first}"), End(1, "RuntimeError: create_func_(")
    case, _ = written_case(tmp_path, WITH_COPY, plain=[raised, ENDS_WELL, again, ENDS_WELL])
    assert first_verdict(case).confidence == sure


def test_a_program_that_dies_elsewhere_may_have_another_reason(tmp_path: Path) -> None:
    elsewhere = IN_LOADING.replace("torch/", "numpy/")
    plain = [KILLED, ENDS_WELL, replace(KILLED, output=elsewhere), ENDS_WELL]
    case, _ = written_case(tmp_path, WITH_COPY, plain=plain)
    found = first_verdict(case)
    assert (found.verdict, found.confidence) == ("crash", "likely")


def test_what_fails_without_the_copy_too_is_not_blamed_on_it(tmp_path: Path) -> None:
    case, _ = written_case(tmp_path, WITH_COPY, plain=[FAILS, FAILS])
    found = first_verdict(case)
    assert found.verdict == "unknown"
    note_copies(found, case)
    assert "model.pt2 brings a copy of libstdc++, so libstdc++.so.6 was loaded first" in str(
        found.evidence
    )


def test_a_copy_that_does_no_harm_is_only_noted(tmp_path: Path) -> None:
    case, asked = written_case(tmp_path, WITH_COPY, plain=[ENDS_WELL])
    assert first_verdict(case).verdict == "clean"
    assert asked == ["plain"]


def test_a_package_that_cannot_be_loaded_is_not_said_to_compute_wrongly(tmp_path: Path) -> None:
    """In eager it is not loaded at all, and the program ends well."""
    case, _ = written_case(tmp_path, replace(KILLED, events=(MADE_HERE,)))
    case.runs.uses_packages = True
    found = first_verdict(case)
    assert (found.verdict, found.confidence) == ("crash", "likely")


NAN_TEXT = "input 0 (x) holds NaN, first at index [2, 3] (1 of 48 elements)"
NAN_ERROR = ExceptionUncaught(type="RuntimeError", message="At least one NaN in arg0_1")


@pytest.mark.parametrize(
    ("verdict", "confidence"), [(REFUSED, "proven"), (NAN_LIKELY, "likely")], ids=str
)
def test_nan_that_the_program_itself_has_refused(
    tmp_path: Path, verdict: str, confidence: str
) -> None:
    """With nan_asserts, compiled code raises where eager goes on."""
    events = MADE_HERE, checked(verdict, NAN_TEXT), NAN_ERROR
    case, asked = written_case(tmp_path, replace(FAILS, events=events))
    found = first_verdict(case)
    assert (found.verdict, found.stage, found.confidence) == ("not-a-bug", "user", confidence)
    assert f"nan_asserts), and {NAN_TEXT}" in found.summary
    assert asked == []


@pytest.mark.parametrize(
    "end",
    [
        replace(KILLED, events=(HERE,)),
        replace(FAILS, events=(ExceptionUncaught(type="ValueError", message="no such file"),)),
        replace(FAILS, events=(checked("right"), NAN_ERROR)),
        replace(FAILS, died=True, events=(HERE, NAN_ERROR)),
        replace(FAILS, events=(replace(NAN_ERROR, thread="loader"),)),
    ],
    ids=["it dies", "another error", "a later call", "in a call", "only a thread ends"],
)
def test_nan_that_was_refused_excuses_no_later_failure(tmp_path: Path, end: End) -> None:
    """The program caught the error, went on, and failed for another reason."""
    events = MADE_HERE, checked(REFUSED, NAN_TEXT), *end.events
    case, _ = written_case(tmp_path, replace(end, events=events))
    assert refused_nan(case) is None


def test_torchs_check_for_nan_is_told_by_its_line_or_its_message() -> None:
    line = 'cab.py", line 48, in call\n    assert not buf1.isnan().any().item()\n'
    assert refused_variable("AssertionError", "", line) == "buf1"
    assert refused_variable("RuntimeError", "At least one INF in arg0_1", "") == "arg0_1"
    assert refused_variable("AssertionError", "", "    assert not x.any()\n") == ""
    assert refused_variable("ValueError", "At least one INF in arg0_1", line) == ""
