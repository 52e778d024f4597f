"""Four real ranks with gloo, one of which compiles another graph: its traces and its recording."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.programs import TOOL, Workplace
from support.rank_jobs import JOB


def test_the_rank_with_another_graph_is_named_from_traces_and_from_the_recording(
    workplace: Workplace,
) -> None:
    workplace.write("job.py", JOB)
    traces = workplace.folder / "traces"
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    outcome = workplace.run(
        *(torchrun, "--standalone", "--nproc-per-node", "4", "job.py", "branch", "aot_eager"),
        options=("--json", "summary.json"),
        TORCH_TRACE=str(traces),
        GLOO_SOCKET_IFNAME="lo",
    )
    assert outcome.exit_code == 0, outcome.stderr

    done = workplace.call([*TOOL, "logs", str(traces), "--json", "ranks.json"])
    assert done.returncode == 0, done.stdout + done.stderr
    from_traces = json.loads((workplace.folder / "ranks.json").read_text())["ranks"]
    summary = json.loads((workplace.folder / "summary.json").read_text())
    for ranks in (from_traces, summary["ranks"]):
        assert (ranks["count"], ranks["missing"]) == (4, [])
        odd = ranks["odd"][0]
        assert (odd["ranks"], odd["kind"], odd["majority"]) == ([3], "graph", 3)
        assert "tanh" in odd["first_line"]["here"]
        assert not ranks["problem"]  # Their collectives agree: the job has ended well.
    (note,) = [one for one in summary["findings"] if one["rule"] == "ranks_differ"]
    assert note["title"].startswith("Rank 3 left the others at 0/0")
    assert not note["is_problem"]
