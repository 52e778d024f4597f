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
        "Start with the first finding; each names its stage.",
    ),
    Topic(
        "timeline",
        "Which stage each process, worker and compiler was in, and when; nested as they ran.",
        "Look for the longest span without an inner one. A span that never ended is marked.",
    ),
    Topic(
        "panes",
        "Python, FX, IR, scheduler, loop body, kernel and machine code side by side.",
        "Select a line in one pane: its operations are highlighted in all the others.",
    ),
    Topic(
        "schedule",
        "The scheduler graph: edges are buffers, boxes are fused groups.",
        "A thick edge between two boxes is a fusion that may be missing: see the ledger.",
    ),
    Topic(
        "pairs",
        "The fusion ledger: every pair that could share a kernel, fused or not, and why.",
        "Sort by bytes: the first refused pair costs the most. 'At most' marks an upper bound.",
    ),
)
