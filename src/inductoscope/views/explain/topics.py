"""Verdicts of the doctor, and views of the page."""

from __future__ import annotations

from inductoscope.views.explain.entities import Topic

VERDICTS = (
    Topic("clean", "Nothing was found to be wrong.", "The evidence says what was checked."),
    Topic(
        "wrong-result",
        "Compiled code gives another result than eager, far beyond rounding as float64 shows it.",
        "Use the workaround that was tried, and report the bug with the reproducer.",
    ),
    Topic(
        "nan",
        "Compiled code gives NaN or infinity where eager does not.",
        "Look at the operation that is named; the reproducer has the values that it was given.",
    ),
    Topic(
        "crash",
        "The process died of a signal in compiled code or in the compiler.",
        "Use the workaround; the reproducer shows it without the rest of the program.",
    ),
    Topic(
        "compile-error",
        "The compiler raised an exception for a program that runs in eager.",
        "Use the workaround, or rewrite the operation that is named.",
    ),
    Topic(
        "hang",
        "Nothing moved for longer than the stage should take.",
        "The kind of the stall says who waits for whom: 'inductoscope explain KIND'.",
    ),
    Topic(
        "slow",
        "The compiled program, or its compile, takes longer than it should.",
        "Look at graph breaks and recompiles first, then at kernels and fusion.",
    ),
    Topic(
        "not-a-bug",
        "It fails in eager too, is not seeded, reads uninitialised memory, or differs by rounding.",
        "Look at the program: the compiler did what it was asked.",
    ),
    Topic(
        "not-inductor",
        "Dynamo or AOTAutograd did it, before Inductor got the graph.",
        "Report it for the stage that is named, not for Inductor.",
    ),
    Topic(
        "unknown",
        "Something is wrong, and no run proved where.",
        "The evidence says how far it got. Run it again with a longer time limit.",
    ),
)

# The views of the HTML page, besides those that are called like a stage.
VIEWS = (
    Topic(
        "overview",
        "Findings first, then the program, its compiles and where the time went.",
        "Begin with the first finding; each names its stage.",
    ),
    Topic(
        "timeline",
        "When each process, worker and compiler was in which stage, nested as they ran.",
        "Look for the longest span that has no inner one. A span that never ended is marked.",
    ),
    Topic(
        "panes",
        "Python, FX, IR, scheduler, loop body, kernel and machine code side by side.",
        "Choose a line in one pane: the operations in it are marked in all others.",
    ),
    Topic(
        "schedule",
        "Scheduler nodes as a picture: edges are buffers, boxes are fused groups.",
        "A thick edge between two boxes is a fusion that may be missing: see the ledger.",
    ),
    Topic(
        "pairs",
        "The fusion ledger: every pair that could share a kernel, fused or not, with the reason.",
        "Sort by bytes: the first refused pair is the one that costs most.",
    ),
)
