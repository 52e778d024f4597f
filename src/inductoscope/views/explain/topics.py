"""The doctor's verdicts, its confidence levels, and the views of the page."""

from __future__ import annotations

from inductoscope.views.explain.entities import Topic
from inductoscope.vocabulary import verdicts

VERDICTS = tuple(Topic(one.name, one.meaning, one.what_to_do) for one in verdicts.VERDICTS)
CONFIDENCES = tuple(Topic(one.name, one.meaning, one.what_to_do) for one in verdicts.CONFIDENCES)

# The views of the HTML page that are not named after a stage.
VIEWS = (
    Topic(
        "overview",
        "Findings first, then the program, its compiles and the time they took.",
        "Start with the first finding; each names its stage.",
    ),
    Topic(
        "timeline",
        "When each process, worker and compiler was in which stage; spans are nested.",
        "Look for the longest span without inner spans. Spans that never ended are marked.",
    ),
    Topic(
        "panes",
        "Python, FX, IR, scheduler, loop body, kernel and machine code side by side.",
        "Select a line in one pane: all other panes highlight its operations.",
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
