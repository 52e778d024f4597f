"""What an agent does about a job of many ranks, hung or not yet started."""

from __future__ import annotations

from inductoscope.agents.procedure import JsonField, Procedure

RANKS_THAT_DIFFER = Procedure(
    "A job of many ranks that hangs",
    (
        "a distributed job is stuck, or a collective times out",
        "one rank of many is stuck, slow, or does something else than the others",
    ),
    (
        ("inductoscope logs traces", "a TORCH_TRACE folder, or text logs, of all ranks"),
        ("inductoscope logs traces --world 8", "names ranks without a log, too"),
        ("inductoscope run torchrun --nproc-per-node 2 train.py", "records and compares them"),
    ),
    (
        JsonField("ranks", "null if there is one rank only"),
        JsonField("ranks.headline", "one sentence to quote"),
        JsonField("ranks.problem", "whether a difference is one that makes ranks wait"),
        JsonField("ranks.odd[].ranks", "who left the majority; `decision` says since when"),
        JsonField("ranks.odd[].first_line", "the first line that differs, `here` and `there`"),
        JsonField("ranks.odd[].confidence", "pass it on; `effect` says what follows"),
        JsonField("ranks.splits[].sides", "no majority: nobody is to blame alone"),
        JsonField("ranks.places[].title", "where ranks are; `problem` if they are stuck there"),
        JsonField("ranks.behind[].ranks", "have not come as far; `inside_a_compile` or not"),
        JsonField("ranks.stragglers[].stage", "slow ranks, with their `seconds` and the `median`"),
        JsonField("ranks.missing", "ranks without a log: say that nothing is known of them"),
    ),
    (
        "No log: ask for one run with TORCH_TRACE=FOLDER on all ranks, or look at a rank that "
        "hangs with `inductoscope attach PID`.",
        "Ranks that differ without `problem` need not hang: say what differs, accuse nobody.",
        "A rank that is stuck in a compile: go on with A log of a program that hung or failed.",
        "To see whether a change cures it, without the job: A job that is not yet started.",
    ),
    "which ranks, since which decision, what they did and what the others did, with `confidence`, "
    "and which ranks have no log.",
)

JOB_BEFORE_IT_STARTS = Procedure(
    "A job that is not yet started",
    (
        "will this distributed program hang on many ranks?",
        "a rank calls other collectives, sizes or types than the rest",
    ),
    (
        ("inductoscope preflight --world 8 train.py --steps 1", "runs it here, once as each rank"),
        ("inductoscope preflight --world 512 --ranks 0,1,511 train.py", "as some ranks only"),
    ),
    (
        JsonField("verdict", "`clean`, `hang predicted`, `mismatch predicted`, `ranks differ`, …"),
        JsonField("headline", "one sentence to quote"),
        JsonField("predictions[].decision", "the first call that differs"),
        JsonField("predictions[].sides[].call", "what its `ranks` call there, with the line"),
        JsonField("predictions[].confidence", "always `likely`: nothing was sent"),
        JsonField("ranks.odd[].what", "what a rank compiles that others do not"),
        JsonField("runs[].exit_code", "of each rank; `output` has what it printed"),
        JsonField("distributed", "false: the program made no process group"),
        JsonField("limits[]", "what cannot be told in this way: pass it on"),
    ),
    (
        "It executes the program once for each rank: give it one step, and ask first if that may "
        "cost or change something.",
        "Results of collectives are not real: a branch that depends on one may go another way.",
        "`clean` says that these ranks agree, not that the job ends.",
    ),
    "the verdict, the call, which ranks call what and from which line, how many ranks were run, "
    "and `limits`.",
)
