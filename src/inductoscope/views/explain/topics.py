"""Verdicts of the doctor, how sure they are, and views of the page."""

from __future__ import annotations

from inductoscope.views.explain.entities import Topic
from inductoscope.vocabulary import verdicts

VERDICTS = tuple(Topic(one.name, one.meaning, one.what_to_do) for one in verdicts.VERDICTS)
CONFIDENCES = tuple(Topic(one.name, one.meaning, one.what_to_do) for one in verdicts.CONFIDENCES)

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
