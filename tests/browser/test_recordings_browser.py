"""Recordings that are not whole, on the page: what is missing is said, and the rest works."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inductoscope.views.page.live import LiveServer
from support import pages
from support.examples import inductoscope, stored
from support.visitor import Visitor
from support.waiting import wait_until


def _visit_every_view(browser: Any, recording: Path, page: Path) -> Visitor:
    """The page that the command makes, seen in all of its views and back on the first."""
    answer = inductoscope("report", recording, "-o", page)
    assert answer.exit_code == 0, answer.stderr
    guest = Visitor(browser, page)
    for view in (*pages.VIEWS[1:], pages.VIEWS[0]):
        guest.visit(view)
        assert guest.page.locator(".view").inner_text().strip()
    assert guest.troubles == []
    return guest


def test_a_program_that_was_killed_has_the_graph_that_it_was_at(
    browser: Any, tmp_path: Path
) -> None:
    recording = stored("killed_while_lowering")
    guest = _visit_every_view(browser, recording, tmp_path / "killed.html")
    assert "killed by SIGKILL" in guest.page.locator("main").inner_text()
    missing = guest.page.get_by_role("region", name="What is missing, and why").inner_text()
    assert "0/0 inference: the compile did not get to its end" in missing
    guest.visit("explorer?panes=post-grad,kernel")
    guest.page.wait_for_selector("[data-pane=post-grad] .cm-line")
    assert guest.all("[data-pane=kernel] .empty")[0].endswith(".")
    guest.context.close()


def test_damaged_files_are_named_and_the_rest_is_shown(browser: Any, tmp_path: Path) -> None:
    """Half of the texts are gone, a stream has a line that is no JSON and ends inside of one."""
    folder = tmp_path / "damaged"
    shutil.copytree(stored("recompiles"), folder)
    texts = sorted(path for path in (folder / "payloads").rglob("*") if path.is_file())
    for path in texts[::2]:
        path.unlink()
    for path in (folder / "streams").iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        lines[len(lines) // 2] = b'{"kind": "ke\xff\n'
        path.write_bytes(b"".join(lines)[:-20])
    guest = _visit_every_view(browser, folder, tmp_path / "damaged.html")
    missing = guest.page.get_by_role("region", name="What is missing, and why").inner_text()
    assert ".jsonl" in missing
    assert guest.page.get_by_role("link", name="graph").count() >= 1
    guest.context.close()


def test_what_a_later_version_adds_does_not_hide_what_is_known(
    browser: Any, tmp_path: Path
) -> None:
    """Kinds of events and keys that this version does not know, in the same format."""
    folder = tmp_path / "later"
    shutil.copytree(stored("relu_add_sum"), folder)
    stream = next((folder / "streams").iterdir())
    events = [json.loads(line) for line in stream.read_text().splitlines()]
    for event in events:
        event["not_known_yet"] = {"a": 1}
    unknown = {**events[-1], "n": len(events), "kind": "invented_later"}
    stream.write_text("".join(f"{json.dumps(event)}\n" for event in [*events, unknown]))
    guest = _visit_every_view(browser, folder, tmp_path / "later.html")
    assert "invented_later" in guest.page.locator("main").inner_text()
    guest.visit("explorer")
    guest.page.wait_for_selector("[data-pane=kernel] .cm-line")
    guest.context.close()


def test_a_format_of_a_later_version_is_refused_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "newer"
    shutil.copytree(stored("relu_add_sum"), folder)
    manifest = json.loads((folder / "recording.json").read_text())
    (folder / "recording.json").write_text(json.dumps({**manifest, "schema": 99}))
    answer = inductoscope("report", folder, "-o", tmp_path / "newer.html")
    assert answer.exit_code == 2
    assert "was written in format 99" in answer.stderr
    assert not (tmp_path / "newer.html").exists()


# --- counts say what they count -------------------------------------------------------------------


def test_a_graph_from_a_cache_has_kernels_that_are_not_recorded(
    browser: Any, tmp_path: Path
) -> None:
    guest = _visit_every_view(browser, stored("cache_hit"), tmp_path / "cached.html")
    (lead,) = guest.all(".lead")
    assert lead.startswith("1 compile took 1 graph from a cache, whose kernels were not generated ")
    guest.visit("kernels")
    assert guest.all("h1 + p")[0].endswith("; none generated for 1 graph from a cache")
    guest.context.close()


def test_a_training_step_has_call_sites_no_searches_and_boxes_of_fused_nodes(
    browser: Any, tmp_path: Path
) -> None:
    """One C++ function of the backward graph holds a fused node of two parts, and another node."""
    guest = _visit_every_view(browser, stored("training_step"), tmp_path / "training.html")
    guest.visit("kernels")
    assert guest.all("h1 + p")[0].startswith("6 generated kernels at 6 call sites; ")
    guest.visit("autotune")
    assert guest.all(".view .empty")[0].startswith("No autotuning was recorded")
    guest.visit("scheduler?graph=1")
    guest.page.wait_for_selector(".group")
    box = guest.page.locator(".group title").first.text_content()
    assert box.endswith(" op0_op1: 2 of 3 nodes of cpp_fused__softmax_backward_data_sum_0")
    assert guest.page.locator(".group-name").all_text_contents()[0].startswith("2 of 3 nodes of ")
    guest.context.close()


def test_a_choice_that_was_not_timed_is_no_winner(browser: Any, tmp_path: Path) -> None:
    index, chunks = pages.realistic()
    search = chunks["autotune"][0]
    search["winner"] = ""
    guest = Visitor(browser, pages.write((index, chunks), tmp_path / "untimed.html"))
    guest.visit("autotune")
    said = guest.page.locator("main").inner_text()
    assert f"torch took {search['taken']} without a time of it." in said
    assert "winner" not in said
    guest.context.close()


# --- a recording that is served -------------------------------------------------------------------


def test_a_recording_that_is_deleted_while_it_is_served_is_gone(
    browser: Any, tmp_path: Path
) -> None:
    """And nothing else is said: neither that the program runs, nor that nothing was compiled."""
    folder = tmp_path / "recording"
    shutil.copytree(stored("relu_add_sum"), folder)
    for path in (folder / "streams").iterdir():
        lines = [line for line in path.read_text().splitlines(True) if '"exited"' not in line]
        path.write_text("".join(lines))
    with LiveServer(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(server.address)
        page.get_by_text("this page updates by itself").wait_for()
        shutil.rmtree(folder)
        gone = f"The recording {folder} was deleted or moved."
        page.get_by_text(f"{gone} This is the last state that the server sent.").wait_for()
        assert page.locator(".banner").count() == 1
        page.reload()
        page.get_by_text(gone, exact=True).wait_for()
        assert page.locator("main").inner_text().strip() == gone
        page.close()
        server.shutdown()


# --- a program that runs --------------------------------------------------------------------------

PROGRAM = """
import pathlib, sys, time, torch

def early(x):
    return x.relu() + 1

def late(x):
    return x.sigmoid() * 2

torch.compile(early)(torch.ones(8))
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
torch.compile(late)(torch.ones(8))
"""


@contextlib.contextmanager
def _started(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "inductoscope", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def test_a_page_follows_a_program_until_it_ends(browser: Any, tmp_path: Path) -> None:
    """Compiled, served and looked at, each in a process of its own, at the same time."""
    program, recording, go_on = tmp_path / "p.py", tmp_path / "recording", tmp_path / "go on"
    program.write_text(PROGRAM)
    run = ("run", "--quiet", "--fresh", "--output", recording, program, go_on)
    with _started(*run) as running:
        assert wait_until((recording / "recording.json").exists)
        with _started("serve", recording) as server:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            page = browser.new_page()
            page.set_default_timeout(240_000)
            troubles: list[str] = []
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.goto(f"{address}#/compiles")
            page.get_by_text("this page updates by itself").wait_for()
            rows = page.locator("tbody tr[aria-rowindex]")
            rows.filter(has_text="early").wait_for()
            assert rows.filter(has_text="late").count() == 0
            go_on.touch()
            rows.filter(has_text="late").wait_for()
            page.get_by_text("this page updates by itself").wait_for(state="detached")
            page.goto(f"{address}#/explorer?graph=1&panes=python,kernel&op=sigmoid")
            page.locator("[data-pane=kernel] .cm-line.mark").first.wait_for()
            assert troubles == []
            page.close()
        assert running.wait(60) == 0
