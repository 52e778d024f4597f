"""Memory over time, advice and the cost of compiling, as a reader of the page meets them."""

from __future__ import annotations

from collections.abc import Callable

from support.visitor import Visitor


def test_memory_shows_both_peaks_and_what_is_alive_at_each(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "memory")
    marks = guest.page.locator(".memory-curve .peak text").all_text_contents()
    assert marks == ["eager: 10.8 MiB", "compiled: 9.75 MiB"]
    assert "14 rows" in guest.all(".count")
    kinds = guest.page.get_by_text("saved for backward", exact=True)
    assert kinds.count() >= 6
    guest.page.get_by_role("radio", name="In eager").or_(
        guest.page.get_by_role("button", name="In eager")
    ).click()
    guest.page.get_by_role("heading", name="Alive at the peak of 10.8 MiB").wait_for()
    assert guest.page.get_by_text("saved for backward", exact=True).count() == 0
    left_out = "The smallest blocks of the step, 1,250, were not kept: 40 KiB of the peak"
    assert left_out in " ".join(guest.page.locator(".view").inner_text().split())


def test_the_curve_is_as_high_as_its_peak(visitor: Callable[..., Visitor]) -> None:
    """The highest point of the line, and the mark, are at the same height."""
    guest = visitor("realistic", "memory")
    for name in ("compiled", "eager"):
        line = guest.page.locator(f".memory-curve path.{name}").get_attribute("d") or ""
        heights = [float(part.partition("H")[0]) for part in line.split("V")[1:]]
        mark = guest.page.locator(f".memory-curve .peak.{name} circle").get_attribute("cy")
        assert abs(min(heights) - float(mark or 0)) < 0.1, name


def test_advice_says_what_was_predicted_and_what_was_measured(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic", "advice")
    text = " ".join(guest.page.locator(".view").inner_text().split())
    assert "Time is saved by 1 of 2 changes that were tried. 1 change was not tried." in text
    assert (
        "Measured: saves 1.25 s per run; 0.62 of the time is left. Predicted: saves 1.4 s" in text
    )
    assert "Measured: costs 269 ms more per run; it takes 1.08 times as long." in text
    assert "12 pairs of calls in turns, 5 runs: 0.60 to 0.65 of the time" in text
    assert "It changes the results, so it was not tried." in text
    # Only what helps is there to be copied.
    assert guest.page.get_by_role("button", name="Copy").count() == 1


def test_compile_time_is_shown_by_stage_cold_and_from_the_cache(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic", "compiletime")
    text = " ".join(guest.page.locator(".view").inner_text().split())
    assert "12.5 s with an empty cache, 1.2 s with a full one" in text
    assert (
        text.index("cpp-compile 8.1 s") < text.index("dynamo 2 s") < text.index("scheduler 1.4 s")
    )


def test_without_a_measurement_the_command_that_makes_one_is_named(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("empty", "memory")
    for view, command in (
        ("memory", "inductoscope profile --memory SCRIPT"),
        ("advice", "inductoscope profile --advise SCRIPT"),
        ("compiletime", "inductoscope profile --compile SCRIPT"),
    ):
        guest.visit(view)
        assert command in guest.page.locator(".view").inner_text()


def test_headers_of_measured_kernels_are_not_cut(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "runtime")
    heads = guest.page.locator(".measured-kernels th")
    assert heads.count() > 8
    cut = heads.evaluate_all(
        """heads => heads.flatMap(head => [head, ...head.querySelectorAll('*')])
            .filter(one => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1)
            .map(one => one.textContent)"""
    )
    assert cut == []
