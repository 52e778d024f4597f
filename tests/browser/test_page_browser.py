"""The page in a real browser: opened from disk with no network, used with mouse and keyboard."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inductoscope.views.page.live import LiveServer
from support import pages
from support.examples import stored
from support.visitor import Visitor

# One worker with all of them would still be at it when the others have nothing left to do.
pytestmark = pytest.mark.spread


def test_findings_come_first_and_the_worst_before_the_others(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic")
    assert guest.all(".finding .badge") == ["error", "warning", "note"]
    (verdict,) = guest.all(".verdict-line")
    assert "sigmoid and mul gives other values" in verdict
    assert guest.page.title() == "train.py: Overview"
    # The graph that the verdict is about, and the tree of modules.
    assert guest.page.evaluate("window.inflated") == 2


def test_verdict_opens_the_code_that_it_is_about(visitor: Callable[..., Visitor]) -> None:
    """Three panes under the sentence, at the operation that the trail ends in."""
    guest = visitor("realistic")
    (row,) = guest.all(".values tbody tr")
    assert row.split("\t") == ["output 0[3, 17]", "0.5", "0.5", "0.7310586", "12 of 32,768"]
    assert guest.all(".place-panes h3") == ["Python", "Loop body", "Kernels"]
    marked = guest.all(".place-panes .cm-line.mark")
    assert "gate = torch.sigmoid(x)" in [line.strip() for line in marked]
    assert "tmp1 = tl.sigmoid(tmp0)" in [line.strip() for line in marked]
    guest.page.get_by_role("link", name="aten.sigmoid.default").first.click()
    guest.page.wait_for_selector("[data-pane=kernel] .cm-line.mark")
    assert guest.parameters()["op"] == ["sigmoid"]


def test_costs_say_what_was_measured_and_what_is_a_model(visitor: Callable[..., Visitor]) -> None:
    """Measured where `profile` has run, else bytes of a model."""
    guest = visitor("realistic")
    assert ", measured; " in guest.page.locator("#compile-cost").inner_text()
    assert guest.all("#run-cost") == ["Running: 12.3 ms in kernels, measured"]
    guest = visitor("unprofiled")
    assert guest.all("#run-cost") == ["Running: at least 384 KiB moved, modelled"]
    assert "modelled" in guest.page.locator(".treemap").get_attribute("aria-label")


def test_reproducer_is_copied_as_it_is(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", permissions=["clipboard-read", "clipboard-write"])
    guest.page.get_by_role("button", name="Copy: Reproducer").click()
    guest.page.get_by_text("Copied").first.wait_for()
    copied = guest.page.evaluate("navigator.clipboard.readText()")
    assert copied == pages.realistic()[0]["verdict"]["repro"]["text"]


def test_every_view_is_accessible_in_both_colours(visitor: Callable[..., Visitor]) -> None:
    """axe looks at each view as a reader meets it, with something chosen where that can be."""
    guest = visitor("realistic", color_scheme="light")
    guest.page.evaluate((pages.STORED / "axe.min.js").read_text(encoding="utf-8"))
    for route in pages.ROUTES:
        guest.visit(route)
        assert _violations(guest, {}) == []
    guest.page.emulate_media(color_scheme="dark")
    guest.page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    for route in pages.ROUTES:
        guest.visit(route)
        assert _violations(guest, {"runOnly": ["color-contrast"]}) == []


def _violations(guest: Visitor, options: dict[str, Any]) -> list[str]:
    options = {"resultTypes": ["violations"], **options}
    found = guest.page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


def test_banner_says_in_every_view_that_nothing_ran_on_a_gpu(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic")
    for view in pages.VIEWS:
        guest.visit(view)
        assert guest.all(".banner") == ["Compiled for cuda:90. Nothing ran on a GPU."]


def test_line_highlights_its_counterparts_in_all_panes(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=python,post-grad,ir,kernel")
    assert guest.marked("kernel") == []
    guest.choose_line("python", 3)
    assert guest.marked("python") == ["gate = torch.sigmoid(x)"]
    assert "aten.sigmoid.default" in guest.marked("post-grad")[0]
    assert guest.marked("ir") == ["tmp4 = ops.sigmoid(tmp3)"]
    assert guest.marked("kernel") == ["tmp1 = tl.sigmoid(tmp0)"]
    guest.choose_line("kernel", 15)
    assert guest.marked("python") == ["return y.relu() + self.bias"]
    assert guest.all(".option[aria-selected=true]") == ["relu\naten.relu.default"]
    guest.choose_line("post-grad", 1)
    assert "No recorded operation belongs to this line" in guest.all(".summary")[0]


def test_gutter_shows_the_line_numbers_of_the_source(visitor: Callable[..., Visitor]) -> None:
    numbers = visitor("realistic", "explorer?panes=python").all(".cm-gutterElement")
    assert [one for one in numbers if one.strip()][-5:] == ["12", "13", "14", "15", "16"]


def test_native_form_is_linked_through_the_lines_of_its_kernel(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic", "explorer?panes=kernel,native&op=relu")
    assert guest.marked("native") == ["max.f32 %f6, %f5, 0f00000000;"]
    guest.choose_line("native", 16)
    assert guest.marked("kernel") == ["tmp4 = tmp3 + tl.load(in_ptr1 + xindex % 512, None)"]
    guest.page.get_by_label("Form", exact=True).select_option("ttir")
    guest.page.get_by_text("tt.return").wait_for()
    guest.page.get_by_label("Kernel", exact=True).select_option(index=0)
    guest.page.get_by_text("Triton is not installed here.").wait_for()


def test_keys_walk_over_the_operations(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=python,kernel")
    keyboard = guest.page.keyboard
    keyboard.press("j")
    keyboard.press("j")
    assert guest.parameters()["op"] == ["sub"]
    keyboard.press("k")
    assert guest.parameters()["op"] == ["var_mean"]
    keyboard.press("Escape")
    assert "op" not in guest.parameters()
    keyboard.press("/")
    keyboard.type("relu")
    assert guest.all(".operations .option") == ["relu\naten.relu.default"]
    keyboard.press("Enter")
    assert guest.parameters()["op"] == ["relu"]
    keyboard.press("Escape")
    keyboard.press("?")
    guest.page.get_by_role("dialog").wait_for()
    keyboard.press("Escape")
    guest.page.get_by_role("dialog").wait_for(state="hidden")


def test_panes_are_remembered_in_the_address(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=python,kernel")
    panes = guest.page.get_by_role("group", name="Panes that are shown")
    panes.get_by_role("button", name="Inductor IR").click()
    guest.page.get_by_role("button", name="Hide Kernels").click()
    assert guest.parameters()["panes"] == ["python,ir"]
    guest.page.reload()
    guest.page.wait_for_selector("[data-pane=ir]")
    assert guest.page.locator("[data-pane]").count() == 2


def test_pane_without_text_says_why(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=aot")
    assert guest.all("[data-pane=aot] .empty") == [
        "The AOT graph was not recorded: it came from the cache."
    ]


def test_back_button_leads_through_the_views(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic")
    navigation = guest.page.get_by_role("navigation", name="Views")
    navigation.get_by_role("link", name="Kernels").click()
    guest.page.get_by_role("button", name="triton_poi_fused").click()
    assert guest.parameters() == {
        "graph": ["0"],
        "kernel": ["triton_poi_fused_add_mul_relu_sigmoid_1"],
    }
    guest.page.wait_for_selector("[data-pane=kernel] .in-kernel")
    guest.page.go_back()
    assert guest.all("h1") == ["Kernels"]
    guest.page.go_back()
    assert guest.all("h1") == ["train.py"]


def test_search_finds_operations_of_graphs_that_were_not_opened(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic")
    guest.page.keyboard.press("Control+k")
    guest.page.keyboard.type("sigmoid")
    kinds = guest.all(".global-search [role=option] .kind")
    assert kinds[0] == "operation"
    assert "kernel" in kinds
    guest.page.keyboard.press("Enter")
    guest.page.wait_for_selector("[data-pane=kernel] .mark")
    assert guest.parameters() == {"graph": ["0"], "op": ["sigmoid"]}


def test_ledger_sorts_and_filters_and_leads_to_both_nodes(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "ledger")
    first = "tbody tr:not(.space) td:first-child"
    assert guest.all(first)[-1] == "op0 + op1"
    assert guest.page.locator("th[aria-sort=descending]").inner_text().startswith("Bytes")
    guest.page.get_by_role("button", name="Never tried 1").click()
    assert guest.all(first) == ["op3 + op4"]
    guest.page.get_by_role("button", name="All 4").click()
    guest.page.get_by_label("Filter").fill("loops differ")
    assert guest.all(first) == ["op0 + op1"]
    guest.page.get_by_role("button", name="op0 + op1").click()
    assert "numel/rnumel mismatch" in guest.all(".details")[0]
    guest.page.get_by_role("link", name="Show in the scheduler graph").click()
    guest.page.wait_for_selector(".node.chosen")
    assert guest.page.locator(".node.chosen").count() == 2


def test_upper_bound_of_the_ledger_reads_at_most(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "ledger")
    rows = [row.split("\t") for row in guest.all("tbody tr:not(.space)")]
    cells = {row[0]: [cell.strip() for cell in row] for row in rows}
    assert "at most 128 KiB" in cells["op3 + op4"]
    assert "likely" in cells["op3 + op4"]
    assert "512 B" in cells["op0 + op1"]
    assert "proven" in cells["op0 + op1"]
    guest.page.get_by_role("button", name="op3 + op4").click()
    details = guest.all(".details")[0]
    assert "at most 128 KiB" in details
    assert "no run showed it" in details
    assert "library call" in details
    guest.page.get_by_role("button", name="op0 + op1").click()
    details = guest.all(".details")[0]
    assert "at most" not in details
    assert "op0 loops over 64 x 512, reducing 512" in details
    assert "triton_per_fused_native_layer_norm_0" in details


def test_ledger_says_what_each_cause_costs(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "ledger")
    causes = guest.page.get_by_label("Cause", exact=True)
    texts = causes.locator("option").all_inner_texts()
    mismatch, library = texts[1:]
    assert mismatch == "numel/rnumel mismatch: 1 pair, 512 B moved again"
    assert library == "library call: 1 pair, at most 128 KiB moved again"
    causes.select_option(label=mismatch)
    assert len(guest.all("tbody tr:not(.space)")) == 1
    assert guest.parameters()["cause"] == ["refused: numel/rnumel mismatch"]


def test_scheduler_picture_before_and_after_fusion(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "scheduler")
    guest.page.wait_for_selector(".node")
    assert guest.page.locator(".group").count() == 1
    assert "128 KiB" in guest.page.locator(".edge.inside text").first.text_content()
    guest.page.get_by_role("button", name="Before fusion").click()
    guest.page.wait_for_function("() => document.querySelectorAll('.group').length === 0")
    assert guest.page.locator(".node").count() == 5
    guest.page.locator("[data-node=op3]").click()
    guest.page.keyboard.press("ArrowUp")
    guest.page.wait_for_selector("[data-node=op2].chosen")
    guest.page.get_by_role("link", name="Show in the linked panes").click()
    guest.page.wait_for_selector("[data-pane=kernel] .mark")
    assert guest.parameters()["op"] == ["mul_1"]


def test_passes_are_shown_as_diffs(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "passes")
    (removed,) = guest.all(".cm-line.diff-removed")
    assert removed.startswith("-")
    assert "aten.clone" in removed
    assert guest.all(".diff-head .muted") == ["1 node removed"]
    guest.page.get_by_role("option", name="reorder_for_locality").click()
    assert "# reordered" in guest.all(".cm-line.diff-added")[-1]


def test_a_pass_that_changes_a_few_nodes_of_many_shows_these(browser: Any, tmp_path: Path) -> None:
    index, chunks = pages.realistic()
    before = [f"%mul_{n} = aten.mul.Tensor(arg0_1, {n})" for n in range(1000)]
    after = [*before[:400], "%new = aten.neg.default(mul_399)", *before[401:]]
    after[600] = "%mul_600 = aten.mul.Tensor(new, 600)"
    chunks["passes-0"]["texts"] = ["\n".join(before), "\n".join(after)]
    chunks["passes-0"]["passes"][0].update(before=0, after=1)
    guest = Visitor(browser, pages.write((index, chunks), tmp_path / "passes.html"))
    guest.visit("passes")
    assert guest.all(".diff-head .muted") == ["1 node removed, 1 node added, 1 node changed"]
    assert [line[:8] for line in guest.all(".cm-line.diff-removed")] == ["- %mul_4", "- %mul_6"]
    assert guest.troubles == []
    guest.context.close()


def test_autotuning_choices_come_with_the_fastest_first(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "autotune")
    rows = guest.all("tbody tr:not(.space)")
    assert "triton_mm_0" in rows[0]
    assert "winner" in rows[0]
    assert "still compiling" in rows[-1]
    assert any("OutOfResources" in row for row in rows)


def test_a_compile_that_raised_is_marked_as_an_error(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "compiles")
    assert guest.all(".badge-error")[0] == "raised"
    assert "raised" not in guest.all(".badge-good")


def test_what_an_operation_led_to_is_outlined(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=scheduler&op=var_mean")
    assert guest.marked("scheduler") == ["op0: SchedulerNode(ComputedBuffer)"]
    assert guest.all(".cm-line.led-to") == ["op1: SchedulerNode"]
    assert "what it led to" in guest.all(".summary")[0]


def test_back_button_retraces_selections(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=python,kernel")
    guest.page.keyboard.press("j")
    guest.page.keyboard.press("j")
    assert guest.parameters()["op"] == ["sub"]
    guest.page.go_back()
    assert guest.parameters()["op"] == ["var_mean"]
    guest.page.go_back()
    assert "op" not in guest.parameters()


def test_native_form_stays_when_something_else_is_chosen(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=kernel,native&op=relu&form=ttir")
    guest.page.get_by_text("tt.return").wait_for()
    guest.choose_line("kernel", 15)
    assert guest.parameters()["form"] == ["ttir"]
    assert guest.page.get_by_label("Form", exact=True).input_value() == "ttir"


def test_escape_in_the_help_keeps_the_selection(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=kernel&op=relu")
    guest.page.keyboard.press("?")
    guest.page.get_by_role("dialog").wait_for()
    guest.page.keyboard.press("Escape")
    guest.page.get_by_role("dialog").wait_for(state="hidden")
    assert guest.parameters()["op"] == ["relu"]


def test_guards_are_inflated_only_when_asked_for(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "compiles?kind=recompiles")
    assert "size mismatch at index 0" in guest.all(".details")[0]
    assert guest.page.evaluate("window.inflated") == 0
    guest.page.get_by_text("12 guards").click()
    guest.page.get_by_text("TENSOR_MATCH").first.wait_for()
    assert guest.page.evaluate("window.inflated") == 1


def test_timeline_is_a_chart_and_a_table(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "timeline")
    guest.page.get_by_role("button", name="lowering").click()
    assert "380 ms" in guest.all(".chosen-span")[0]
    guest.page.locator(".flame").focus()
    before = guest.page.evaluate(_PIXELS)
    guest.page.keyboard.press("+")
    guest.page.wait_for_function(f"() => {_PIXELS} !== {before}")
    guest.page.locator(".flame").hover(position={"x": 300, "y": 50})
    guest.page.wait_for_selector(".tip")


# One number for what is painted, which is never 0 where something is.
_PIXELS = """(() => {
    const canvas = document.querySelector('.flame canvas');
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.reduce((sum, value, place) => (sum * 31 + value * (place % 7)) % 1000003, 1);
})()"""


def test_colours_can_be_chosen(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", color_scheme="light")
    theme = "document.documentElement.dataset.theme"
    assert guest.page.evaluate(theme) == "light"
    button = guest.page.get_by_role("button", name="Colours")
    button.click()
    button.click()
    assert guest.page.evaluate(theme) == "dark"
    guest.page.reload()
    assert guest.page.evaluate(theme) == "dark"


def test_hostile_text_stays_text(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("hostile")
    elements = guest.page.locator(
        "img:not(.cm-widgetBuffer), script:not([type]), iframe, a[href^=javascript]"
    ).count()
    assert elements == 1, "the bundle is the only script"
    assert any("<img src=x" in text for text in guest.all("#root *"))
    for view in pages.VIEWS:
        guest.visit(view)
    everything = "explorer?panes=python,dynamo,post-grad,ir,scheduler,loop-body,kernel,native"
    guest.visit(everything)
    guest.page.get_by_role("button", name=": copy the whole line").wait_for()
    assert guest.page.evaluate("document.querySelector('#root').innerText.length") < 200_000
    assert guest.page.evaluate("window.hostile") is None
    assert "\x07" not in guest.page.locator("#root").inner_text()


@pytest.mark.parametrize("seed", range(4))
def test_damaged_data_harms_only_what_is_damaged(
    visitor: Callable[..., Visitor], seed: int
) -> None:
    guest = visitor(f"damaged-{seed}")
    for view in (
        *pages.VIEWS,
        "explorer?panes=python,kernel,native&op=relu",
        "ledger?row=0",
        "no-view",
    ):
        guest.visit(view)
        assert guest.page.locator(".view").inner_text().strip()


def test_empty_recording_says_so_in_words(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("empty")
    for view in pages.VIEWS:
        guest.visit(view)
        sentences = guest.all(".empty")
        assert sentences
        assert all(sentence.endswith(".") for sentence in sentences)


def test_large_page_draws_only_what_is_in_sight(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("large", "kernels")
    assert guest.all(".count") == ["2,000 rows"]
    assert guest.page.locator("tbody tr").count() < 80
    guest.page.get_by_role("button", name="Kernel", exact=True).click()
    guest.page.get_by_role("button", name="Kernel", exact=True).click()
    assert "triton_fused_39_49" in guest.all("tbody tr:not(.space)")[0]
    assert guest.page.evaluate("window.inflated") == 0
    guest.page.locator(".scroller").evaluate("scroller => scroller.scrollTo(0, 30000)")
    guest.page.wait_for_selector("tr[aria-rowindex='1002']")
    guest.visit("ledger")
    assert guest.page.evaluate("window.inflated") == 1
    assert guest.page.locator("tbody tr").count() < 80
    guest.visit("explorer?graph=39&kernel=triton_fused_39_49")
    guest.page.wait_for_selector("[data-pane=kernel] .mark")
    guest.settle()
    top = guest.page.locator("[data-pane=kernel] .mark").bounding_box()["y"]
    assert 150 < top < 780, "the line is where it can be read"
    assert guest.page.evaluate("window.inflated") == 2
    guest.visit("scheduler?graph=3")
    guest.page.wait_for_selector(".node")


def test_page_of_serve_shows_the_recording(browser: Any) -> None:
    """The server's first answer has no index yet; the page asks for it."""
    with LiveServer(stored("relu_add_sum")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(server.address)
        page.get_by_role("link", name="1 graph").wait_for()
        page.close()
        server.shutdown()


def test_live_page_follows_the_run(browser: Any, tmp_path: Path) -> None:
    """The index is asked for again until the run has finished, then no more."""
    index, chunks = pages.realistic()
    running = {**index, "live": True, "finished": False, "findings": [], "verdict": None}
    finished = {**index, "live": True}
    asked: list[str] = []

    def answer(route: Any) -> None:
        name = route.request.url.partition("/token/")[2]
        asked.append(name)
        if name == "index.json":
            route.fulfill(body=json.dumps(finished), content_type="application/json")
        elif name.startswith("chunk/"):
            body = json.dumps(chunks[name.removeprefix("chunk/")])
            route.fulfill(body=body, content_type="application/json")
        else:
            route.fulfill(
                body=pages.opening(running, live=True), content_type="text/html; charset=utf-8"
            )

    context = browser.new_context()
    context.route("http://page.test/**", answer)
    page = context.new_page()
    page.goto("http://page.test/token/")
    assert page.get_by_text("still running").is_visible()
    page.get_by_text("forward was compiled 3 times").wait_for()
    assert not page.get_by_text("still running").is_visible()
    page.get_by_role("navigation").get_by_role("link", name="Kernels").click()
    page.get_by_role("button", name="triton_poi_fused").click()
    page.wait_for_selector("[data-pane=kernel] .cm-line")
    # The picture of the whole model is made when the program has ended.
    assert next(name for name in asked if name) == "index.json"
    assert {"chunk/modules", "chunk/graph-0"} == set(asked) - {"", "index.json"}
    context.close()
