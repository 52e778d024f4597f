"""The wording of a verdict: its summary and evidence, made from claims."""

from __future__ import annotations

import contextlib
import platform
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from inductoscope import verdicts as v
from inductoscope.doctor import failure as f
from inductoscope.doctor.finding import (
    ALSO_FAILS,
    RIGHT,
    SMALLEST_GRAPH,
    CheckedAccess,
    FailureFinding,
    Flow,
    Mistake,
    NeededLayout,
    Noticed,
    NotShownAgain,
    ReplacedParts,
    Repro,
    Script,
    SearchProgress,
    SeenInMemory,
    SlowInProgram,
    SlowStage,
    Workaround,
    output_of_repro,
)
from inductoscope.doctor.judgement import place_in_program, relative_place, short
from inductoscope.doctor.verdict import FailingGraph, Verdict
from inductoscope.profiling.compile_growth import Explosion, StageGrowth
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.stages import PLAIN
from inductoscope.wording import count_of

# A statement, and where or how it was observed.
Statement = tuple[str, str]

_ASPECTS = {"stride": "strides", "sharing": "shared memory"}


def worded(verdict: Verdict) -> Verdict:
    """Add the wording of the finding to a verdict, unless it is already worded."""
    finding = verdict.finding
    if finding is None:
        return verdict
    text, where = finding.failure.text, f"compile {finding.compile}"
    backend = finding.fact(Noticed).backend
    if finding.advice:
        first = " ".join(text.split())[:300]
        summary = "This machine cannot compile, which is not a bug in torch: "
        summary, evidence = f"{summary}{first} {finding.advice}", [(text[:1500], where)]
    elif backend:
        first_line = text.partition("\n")[0]
        summary = (
            f"The program uses the backend {backend}, not Inductor, and that backend does not "
            f"match eager: {first_line[:300]}"
        )
        evidence = [(text[:1500], f"{where}, compared with eager")]
    elif finding.latest(SlowInProgram) is not None:
        summary, evidence = _slow_summary(finding), list(_slow_evidence(finding))
    else:
        summary, evidence = _summary(verdict, finding), list(_evidence(verdict, finding))
    items = [{"what": what, "where": where} for what, where in evidence if what]
    return replace(verdict, summary=summary, evidence=[*items, *verdict.evidence], finding=None)


# --- the summary ----------------------------------------------------------------------------------

# The only mistake in the program itself that an investigation finds.
_BROKEN_DECLARATION = "A custom operator of the program does not do what it declares"
# A lost check is a wrong result without values.
_RAISES_OTHERWISE = "The compiled program raises another error than eager"
_RETURNS = "The compiled program returns where eager raises an error"


def _summary(verdict: Verdict, finding: FailureFinding) -> str:
    assert verdict.program is not None
    text = _first_line(verdict.program.text)
    is_own = verdict.verdict == v.NOT_A_BUG
    what = _BROKEN_DECLARATION if is_own else v.headline(verdict.verdict)
    if finding.kind == f.LOST_CHECK and verdict.verdict == v.WRONG_RESULT:
        what = _RAISES_OTHERWISE if finding.failure.aspect else _RETURNS
    noticed = finding.fact(Noticed)
    when = noticed.condition or (f"at {noticed.other_size}" if noticed.other_size else "")
    needed = ", and the program needs it as in eager" if finding.latest(NeededLayout) else ""
    rank = f" on {noticed.process}" if noticed.process.startswith("rank ") else ""
    where = f"{_at(verdict)}{rank}{_who(verdict, finding)}{_stage_and_kernel(verdict, text)}"
    return f"{what}{where}: {f'{when}: ' if when else ''}{text}{needed}{_reduced(verdict)}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300].rstrip(" .:")


def _at(verdict: Verdict) -> str:
    """Return the line of the program, and the compile with the function that was compiled."""
    source, program = verdict.culprit.source, verdict.program
    at = f" at {source}" if source else ""
    if program is None or not program.function:
        return at
    return f"{at} in compile {program.compile} ({program.function})"


def _stage_and_kernel(verdict: Verdict, text: str) -> str:
    """Return stage and kernel in brackets, but no kernel that the text names anyway."""
    stage, kernel = verdict.stage, verdict.culprit.kernel
    parts = [f"stage {stage}"] if stage != stages.NO_STAGE else []
    if kernel and kernel not in text:
        parts.append(f"kernel {kernel}")
    return f" ({', '.join(parts)})" if parts else ""


def _reduced(verdict: Verdict) -> str:
    """Return a sentence on the smallest graph, if it shows anything else than the program's."""
    program, left = verdict.program, verdict.reduction
    if program is None or left is None:
        return ""
    is_smaller = left.nodes < program.nodes
    is_other = (left.text, left.kernel) != (program.text, program.kernel)
    if not (is_smaller or is_other):
        return ""
    of = f"{left.nodes} of {count_of(program.nodes, 'graph node')}"
    where = f"Reduced to {of}" if is_smaller else "In the reproducer"
    text = f": {_seen_in(left)}" if left.text != program.text else ""
    is_named = left.kernel in (None, program.kernel) or str(left.kernel) in text
    kernel = "" if is_named else f" (kernel {left.kernel})"
    return f". {where}{kernel}{text}."


def _seen_in(graph: FailingGraph) -> str:
    """Describe a failure briefly: a wrong result by the value beside eager's."""
    value = next((v for v in graph.values if graph.text.startswith(f"{v.where} ")), None)
    if value is None:
        return _first_line(graph.text)
    index = f" at index {list(value.index)}" if value.index else ""
    return f"{value.where} is {value.actual}{index}, in eager {value.expected}"


def _who(verdict: Verdict, finding: FailureFinding) -> str:
    culprit = verdict.culprit
    if finding.location.own_pass:
        return f", because of the pass {_own_pass(finding)}, which is not torch's"
    if culprit.pass_:
        return f", because of the pass {culprit.pass_.partition(',')[0]}"
    if verdict.verdict == v.HANG and culprit.function:
        return f", in {culprit.function}, which loops or blocks"
    if culprit.op:
        names = verdict.headline.names or [culprit.op.partition(",")[0]]
        return f", because of {' in '.join(names)}{_own_part(finding, *names)}"
    return f", in {culprit.function}" if culprit.function else ""


def _own_pass(finding: FailureFinding) -> str:
    return _name_and_line(finding.location.own_pass)


def _own_part(finding: FailureFinding, *operations: str) -> str:
    """Return a clause on an operation's lowering or decomposition if it is not torch's."""
    names = {short(operation) for operation in operations}
    parts = finding.fact(ReplacedParts).parts
    part = next((part for part in parts if short(part.operation) in names), None)
    if part is None:
        return ""
    return f", whose {part.kind} is the program's own, {_name_and_line(part.function)}"


def _name_and_line(function: str) -> str:
    """Reword 'name (file:line)' for a sentence."""
    name, _, place = function.rstrip(")").partition(" (")
    return f"{name} at {relative_place(place)}"


_IN_SMALLEST = "in the smallest graph: "

# --- the evidence ---------------------------------------------------------------------------------


def _evidence(verdict: Verdict, finding: FailureFinding) -> Iterator[Statement]:
    yield from _of_failure(verdict, finding)
    yield from _of_place(verdict, finding)
    yield from _of_replaced(finding)
    yield from _of_stack(finding)
    for text in finding.fact(SeenInMemory).texts:
        yield text, "the smallest graph, in a process of its own"
    detail = finding.in_program.detail or finding.failure.detail
    if detail:
        what = "eager raises in" if finding.failure.eager_error else "while processing"
        yield f"{what} {detail}", finding.failure.stage
    for each in finding.suppressing_axes:
        only = f" (the one that matters: {each.application})" if each.application else ""
        yield f"the failure disappears without {each.title}{only}", "the smallest graph"
    yield from _of_search(finding)
    yield from _of_proof(finding)


def _of_failure(verdict: Verdict, finding: FailureFinding) -> Iterator[Statement]:
    failure, noticed = finding.in_program, finding.fact(Noticed)
    where = f"compile {noticed.compile}" + (f" in {noticed.process}" if noticed.process else "")
    where += f", {noticed.condition}" if noticed.condition else ""
    for text in dict.fromkeys([failure.text[:1500], *failure.texts[:4]]):
        yield text, where
    left = verdict.reduction
    if left is not None and left.text != failure.text:
        yield f"{_IN_SMALLEST}{left.text}"[:1500], "a fork of the program"
    if noticed.other_size:
        text = f"it is wrong at {noticed.other_size}; at the program's own sizes it is right"
        yield text, "the package was called at other sizes that its export admits"


def _of_place(verdict: Verdict, finding: FailureFinding) -> Iterator[Statement]:
    location, in_program = finding.location, place_in_program(finding)
    said = {"", finding.in_program.text, verdict.reduction and verdict.reduction.text}
    kernel = verdict.culprit.kernel
    if in_program is not None and in_program.text not in said:
        is_named = not kernel or kernel in in_program.text
        it_is = "in the program: " if is_named else f"in the program it is kernel {kernel}: "
        yield f"{it_is}{in_program.text}"[:1500], in_program.how
    if location.text not in said and location != in_program:
        is_smallest = location == finding.latest(f.Location, SMALLEST_GRAPH)
        yield f"{_IN_SMALLEST if is_smallest else ''}{location.text}"[:1500], location.how
    yield from _of_votes(verdict, finding)
    if location.added:
        removed, added = ", ".join(location.removed) or "nothing", ", ".join(location.added)
        yield f"the pass removed {removed[:300]} and added {added}", location.stage
    if location.own_pass:
        yield f"the pass is {_own_pass(finding)}, which is not torch's code", location.stage


def _of_votes(verdict: Verdict, finding: FailureFinding) -> Iterator[Statement]:
    """Yield why the headline names its operation, and the alternatives."""
    headline, ends = verdict.headline, finding.location.operation
    if headline.operation and short(headline.operation) != short(ends):
        why = "; ".join(vote.why for vote in headline.votes)
        last = f", though it ends with {ends}" if ends else ""
        yield f"{headline.operation} is to blame in the kernel{last}: {why}", "all evidence"
    if headline.rivals:
        others = ", ".join(headline.rivals)
        yield f"the evidence does not agree: it may as well be {others}", "all evidence"


def _of_replaced(finding: FailureFinding) -> Iterator[Statement]:
    """Yield the lowerings and decompositions in use that are not torch's."""
    replaced = finding.fact(ReplacedParts)
    where = "torch's tables in the program's process"
    for part in replaced.parts:
        yield f"the {part.kind} of {part.operation} in use is {part.function}, not torch's", where
    yield replaced.not_held, where


def _of_stack(finding: FailureFinding) -> Iterator[Statement]:
    failure = finding.failure
    shown = 12 if failure.kind == f.HANG else 4
    first = "it was in" if failure.kind in (f.HANG, f.SIGNAL) else "raised in"
    functions = finding.in_program.functions or failure.functions
    for number, name in enumerate(functions[:shown]):
        yield f"{'called from' if number else first} {name}", ""
    for message in failure.messages[:1]:
        lines = message.splitlines()
        begin = next((number for number, line in enumerate(lines) if "error:" in line), 0)
        of = " of the smallest graph" if finding.reduction.is_smaller else ""
        yield "\n".join(lines[begin : begin + 4]), f"what the native compiler said{of}"


def _of_search(finding: FailureFinding) -> Iterator[Statement]:
    left, flow = finding.reduction, finding.fact(Flow)
    if left.nodes:
        calls = f": {', '.join(left.calls[:12])}" if left.calls else ""
        operations = f" (in eager {', '.join(left.operations[:8])})" if left.operations else ""
        are = "is" if left.nodes == 1 else "are"
        text = f"{left.nodes} of {left.of} graph nodes {are} enough to show it{calls}{operations}"
        yield text, f"{count_of(finding.fact(SearchProgress).candidates, 'candidate')} tried"
    plain = PLAIN.get(flow.name, "")
    if flow.with_torch_compile == ALSO_FAILS:
        text = f"{plain} fails in the same way, so it is not peculiar to {flow.name}"
        yield text, "tried in a fork"
    elif flow.with_torch_compile == RIGHT:
        text = f"the same graph is right with {plain}, so it is peculiar to {flow.name}"
        yield text, "tried in a fork"
    alone = finding.latest(NotShownAgain)  # Nothing is known of what was not tried yet.
    if alone is not None and not finding.reproduces:
        said = f": {alone.instead}" if alone.instead else ""
        yield f"the graph alone did not fail again, so it was not reduced{said}", ""
    yield from _of_mistakes(finding)


def _of_mistakes(finding: FailureFinding) -> Iterator[Statement]:
    for mistake in finding.every(Mistake)[:2]:
        advice = f.why_no_trial(mistake.text)
        if advice:
            yield advice, "a fork of the program's copy was refused"
            return
        names = r"^[\w.]+(?:Error|Exception|Fails|Failure)\b.*"
        raised = re.findall(names, mistake.text, re.MULTILINE)
        yield raised[-1] if raised else mistake.text.strip()[-200:], "an error in inductoscope"


def _of_proof(finding: FailureFinding) -> Iterator[Statement]:
    repro, script = finding.latest(Repro), finding.fact(Script)
    if repro is None and script.why_not:
        yield f"no script could be written: {script.why_not}", ""
    if repro is not None and not repro.verified:
        yield (
            f"the reproducer failed in {repro.failed} of {repro.of} fresh processes: it may fail "
            "now and then, or need something that is not in the script",
            "so the verdict is at most likely",
        )
    access = finding.fact(CheckedAccess).text
    if access:
        yield access, "compute-sanitizer, on the reproducer"
    notes = finding.fact(NeededLayout).notes
    if notes:
        words = " and ".join(sorted({_ASPECTS[note.aspect] for note in notes}))
        places = ", ".join(f"{note.where} of compile {note.compile}" for note in notes[:4])
        get = "gets" if len(notes) == 1 else "get"
        yield f"the program ends well if {places} {get} eager's {words}", "a run of the program"


# --- a compile that takes too long ----------------------------------------------------------------


def _slow_summary(finding: FailureFinding) -> str:
    explosion, location = finding.fact(SlowStage).explosion, finding.location
    assert explosion is not None
    where = stages.WORDS.get(explosion.stage, explosion.stage)
    parts = [
        f"Compiling takes far too long, in {where}: {_at_least(explosion)}"
        f"{explosion.seconds:.1f} s for {count_of(explosion.nodes, 'node')}, "
        f"{explosion.times:.1f} times what is expected for the whole compile of as many pointwise "
        "nodes."
    ]
    if location.pass_name:
        parts.append(f"The pass {location.pass_name} takes most of it.")
    elif location.operation:
        own = _own_part(finding, location.operation)
        parts.append(f"Lowering {location.operation}{f'{own},' if own else ''} takes most of it.")
    if location.function:
        parts.append(f"The time is spent in {location.function}.")
    if explosion.growth is not None and explosion.growth.low > 1.2:
        parts.append(f"It {_grows(explosion.growth)}.")
    repeated = finding.fact(SlowInProgram).repeated
    return " ".join([*parts, f"{repeated}."] if repeated else parts)


def _slow_evidence(finding: FailureFinding) -> Iterator[Statement]:
    slow, seen = finding.fact(SlowStage), finding.fact(SlowInProgram)
    assert slow.explosion is not None
    took = f"compile {finding.compile} took {seen.whole:.1f} s in the program, "
    yield f"{took}{seen.seconds:.1f} s of it in {seen.stage}", "the first run, under the tool"
    how = "compiled alone in forks, several times in turns with plain graphs"
    yield _against_plain(slow.explosion), how
    for text in seen.repeated_evidence:
        yield text, "the loop bodies that were recorded"
    growth = slow.explosion.growth
    if growth is not None:
        sizes = ", ".join(f"{p.nodes} nodes {p.seconds:.2f} s" for p in growth.points)
        yield f"{slow.explosion.stage} {_grows(growth)}: {sizes}", f"sizes: {slow.sizes_by}"
    if slow.functions:
        share = f"{100 * slow.share:.0f} % of {slow.samples} stacks"
        yield f"{share} that were sampled in the stage are in {slow.functions[0]}", ""
    for function in slow.functions[1:6]:
        yield f"called from {function}", ""
    yield from _of_replaced(finding)
    for part in (*slow.passes, *slow.lowered):
        yield f"{part.name}: {part.seconds:.2f} s", ""
    if slow.smallest is not None:
        nodes = count_of(finding.reduction.nodes, "node")
        yield _against_plain(slow.smallest), f"the smallest graph, {nodes}"
    yield _with_workaround(finding, seen), "the workaround, on the program"
    if seen.exit_code:
        text = f"the program ended with exit code {seen.exit_code}; in eager it ends well"
        yield text, "whether compile time is why is not known"
        yield seen.output, "what the program printed"


def _with_workaround(finding: FailureFinding, seen: SlowInProgram) -> str:
    workaround = finding.latest(Workaround)
    if workaround is None:
        return ""
    text = f"compile {finding.compile} spent {seen.seconds:.1f} s in {seen.stage}; predicted with "
    text += f"it: {seen.seconds - (workaround.predicted or 0.0):.1f} s, measured: "
    if seen.left is None or seen.whole_left is None:
        return f"{text}it did not compile"
    whole = f"the whole compile took {seen.whole:.1f} s, with it {seen.whole_left:.1f} s"
    return f"{text}{seen.left:.1f} s (one run); {whole}"


def _grows(growth: StageGrowth) -> str:
    power = f"n^{growth.exponent:.1f} (±{growth.half_width:.1f})"
    return f"grows with {power}, where n is the number of nodes"


def _at_least(explosion: Explosion) -> str:
    return "more than " if explosion.is_at_least else ""


def _against_plain(explosion: Explosion) -> str:
    return (
        f"{explosion.stage} takes {_at_least(explosion)}{explosion.seconds:.2f} s for "
        f"{count_of(explosion.nodes, 'node')}; the whole compile of as many pointwise nodes is "
        f"expected to take {explosion.plain_seconds:.2f} s, from the slowest that were measured"
    )


# --- a bug report for the PyTorch tracker ---------------------------------------------------------

_LONGEST_OUTPUT = 3000
_COMPONENT = {stages.DYNAMO: "dynamo", stages.AOT: "aot autograd"}


def issue_text(verdict: Verdict) -> str:
    """Format a bug report in Markdown: title, description, reproducer, output, versions."""
    assert verdict.repro is not None
    script, output = (
        _text_of(path) for path in (verdict.repro.path, output_of_repro(verdict.repro.path))
    )
    title = script.partition('"""')[2].partition("\n")[0] or verdict.summary
    parts = [
        f"# [{_COMPONENT.get(verdict.stage, 'inductor')}] {title}",
        "## Describe the bug",
        verdict.summary,
        "\n".join(f"- {item['what']}".replace("\n", "\n  ") for item in verdict.evidence),
        "## Reproducer",
        f"```python\n{script}```",
        "## What it prints",
        f"```\n{output[-_LONGEST_OUTPUT:].strip()}\n```",
    ]
    if verdict.workaround is not None and verdict.workaround.verified:
        parts += ["## Workaround", f"```python\n{verdict.workaround.code}\n```"]
    parts += ["## Versions", _versions(script)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _text_of(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text("utf-8", "replace")
    return ""


def _versions(script: str) -> str:
    line = next((line for line in script.splitlines() if line.startswith("torch ")), "")
    return line.partition(". Exits")[0] or f"Python {platform.python_version()}"
