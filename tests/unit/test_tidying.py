"""The rest of a recording once the program, or the examination, has ended. No torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from inductoscope.launch.tidying import remove_headers, tidy_examination, tidy_run
from inductoscope.model.stored_recordings import size_on_disk
from support.examples import write_recording
from support.kept_recordings import LAUNCHER, NOBODY, rename_stream


def put(path: Path, text: str = "x" * 5000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def cache_of(recording: Path) -> set[str]:
    """The files that the private cache still has."""
    found = (recording / "cache").rglob("*")
    return {path.name for path in found if not path.is_dir()}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A program compiled one graph in a private cache, and tried other things there."""
    folder = tmp_path / "recording"
    inductor = folder / "cache" / "inductor"
    named = {"kind": "native", "tool": "c++", "source": f"{inductor}/rj/kernel.cpp"}
    named["command"] = f"g++ {inductor}/rj/kernel.cpp -o {inductor}/rj/kernel.so"
    loaded = {"kind": "wrapper-loaded", "graph": "0/0", "path": f"{inductor}/tn/wrapper.py"}
    write_recording(folder, LAUNCHER, named, loaded)
    rename_stream(folder, NOBODY)
    for name in ("rj/kernel.cpp", "rj/kernel.so", "tn/wrapper.py", "zz/candidate.py", "fx/graph"):
        put(inductor / name)
    put(folder / "cache" / "precompiled_headers" / "all.h.gch")
    put(folder / "cache" / "triton" / "kernel.cubin")
    return folder


def test_of_a_private_cache_the_sources_stay_that_the_recording_names(recording: Path) -> None:
    tidy_run(recording)
    assert cache_of(recording) == {"kernel.cpp", "wrapper.py"}
    assert not (recording / "cache" / "triton").exists()
    assert (recording / "streams").exists()


@pytest.mark.parametrize("made", ["model.wrapper.pt2", "model.wrapper.so"])
def test_what_aotinductor_made_stays_whole(recording: Path, made: str) -> None:
    """`aoti_compile_and_package(exported)` returns the path of a package in the cache."""
    place = recording / "cache" / "inductor" / "c2dlcazuhrs"
    for name in ("model.wrapper.cpp", made, "kernel.cubin", "weights.bin"):
        put(place / name)
    put(recording / "cache" / "inductor" / "tried" / made)
    native = {"n": 9, "t": 9.0, "kind": "native", "source": f"{place}/model.wrapper.cpp"}
    with (recording / "streams" / f"{NOBODY}-1.jsonl").open("a") as stream:
        stream.write(json.dumps(native) + "\n")
    tidy_run(recording)
    kept = {"model.wrapper.cpp", made, "kernel.cubin", "weights.bin"}
    assert cache_of(recording) == {"kernel.cpp", "wrapper.py", *kept}
    assert not (recording / "cache" / "inductor" / "tried").exists()


def test_a_program_that_goes_on_in_the_background_keeps_its_cache(recording: Path) -> None:
    (recording / "streams" / f"{os.getppid()}-1.jsonl").write_text("")
    tidy_run(recording)
    assert {"kernel.so", "candidate.py", "kernel.cubin"} <= cache_of(recording)


def test_space_reserved_by_the_dead_is_freed(recording: Path) -> None:
    dead = put(recording / "streams" / f"{NOBODY}-1.reserve")
    alive = put(recording / "streams" / f"{os.getppid()}-1.reserve")
    tidy_run(recording)
    assert (dead.exists(), alive.exists()) == (False, True)


def test_an_interrupted_examination_loses_only_what_can_be_made_again(recording: Path) -> None:
    for name in ("repro.py", "stdin", "output.txt"):
        put(recording / "doctor" / name)
    remove_headers(recording)
    assert {"kernel.so", "candidate.py"} <= cache_of(recording)
    assert "all.h.gch" not in cache_of(recording)
    assert len(list((recording / "doctor").iterdir())) == 3


def test_a_finished_examination_keeps_what_it_hands_over(recording: Path) -> None:
    doctor = recording / "doctor"
    kept = ["repro.py", "issue.md", "output.txt", "inputs.pt"]
    for name in (*kept, "stdin", ".eager-7-1f.pt", "run-1/doctor/.candidate-7.pt"):
        put(doctor / name)
    put(doctor / "kept-1" / "inputs.pt")
    put(
        recording / "verdict.json",
        json.dumps({"why": f"{recording}/cache/inductor/zz/candidate.py:3"}),
    )
    tidy_examination(recording)
    assert cache_of(recording) == {"kernel.cpp", "wrapper.py", "candidate.py"}
    assert {path.name for path in doctor.iterdir() if path.is_file()} == set(kept)
    assert (doctor / "kept-1" / "inputs.pt").exists()
    assert list(doctor.rglob(".*")) == []


def test_texts_that_two_runs_share_take_their_space_once(recording: Path) -> None:
    texts = ("x" * 100_000, "y" * 100_000)
    first = put(recording / "payloads" / "ab" / "1", texts[0])
    again = put(recording / "doctor" / "run-1" / "payloads" / "ab" / "1", texts[0])
    other = put(recording / "doctor" / "run-1" / "payloads" / "ab" / "2", texts[1])
    before = size_on_disk(recording)
    tidy_examination(recording)
    assert before - size_on_disk(recording) > 100_000
    assert [path.read_text() for path in (first, again, other)] == [texts[0], texts[0], texts[1]]


def test_nothing_is_removed_through_a_link(recording: Path, tmp_path: Path) -> None:
    (recording / "cache").rename(tmp_path / "cache")
    (recording / "cache").symlink_to(tmp_path / "cache")
    tidy_examination(recording)
    remove_headers(recording)
    assert len(cache_of(tmp_path)) == 7


def test_a_recording_without_a_private_cache_is_left_as_it_is(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "recording", LAUNCHER)
    before = sorted(folder.rglob("*"))
    tidy_run(folder)
    tidy_examination(folder)
    assert sorted(folder.rglob("*")) == before
