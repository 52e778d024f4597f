"""The program ended well under the tool: it is clean, or a condition of the tool hides a failure.

The conditions are in one table, `doctor.instructions.CONDITIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import (
    FAILS_IN_EAGER_TOO,
    also_fails_in_eager,
    differing_lines,
    not_always,
    nothing_found,
    other_random_numbers,
    what_was_not_checked,
)
from inductoscope.doctor.finding import Workaround
from inductoscope.doctor.instructions import (
    CACHES,
    CHECKS,
    CONDITIONS,
    CUDA_GRAPHS,
    LAUNCHES,
    RANDOM_NUMBERS,
    THREADS,
    Instructions,
    RunCondition,
)
from inductoscope.doctor.judgement import relative_place, verdict_on
from inductoscope.doctor.lack_of_memory import lack_of_memory, memory_is_full
from inductoscope.doctor.runs import ProgramRun
from inductoscope.doctor.symptom import fails_alike, numbers_that_differ
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.launch import users_cache
from inductoscope.launch.users_cache import EMPTY, USERS
from inductoscope.model.entities import Compile, Recording
from inductoscope.recording.events import CacheLookup
from inductoscope.torch_facts import stages


def clean(case: ProgramCase) -> Verdict | None:
    """Nothing is wrong.

    Applies: The program ended well, and no compiled graph is known to be wrong.
    Runs: The program without the tool, unless it takes long.
    Concludes: Clean, unless the program fails without the tool.
    How sure: Proven if every call could be compared, likely if some could not, unknown if none
    could.
    """
    if not case.ends_well:
        return None
    result = nothing_found(case)
    if case.recording.compiles:
        result.not_checked = list(what_was_not_checked(case))
    if case.takes_long:
        result.not_checked.append(
            f"the program without the tool: the first run took {case.first.ending.seconds:.0f} s"
        )
        return result
    plain = case.runs.without_tool_once()
    if plain.failed:
        return None
    well = "the program also ends well without the tool"
    late = "without the tool the program did not end in time"
    return result.add(well if plain.ending.exit_code == 0 else late, "one run")


def fails_without_the_tool(case: ProgramCase) -> Verdict | None:
    """The program itself fails, or only now and then, or the memory is full by now.

    Applies: The program fails without the tool, and not with it.
    Runs: The program in eager and once more compiled, both without the tool, unless other processes
    have filled the memory.
    Concludes: Not a compiler bug, if it fails in eager in the same way; not checked, if the memory
    is full; unknown, if the program fails intermittently.
    How sure: Proven by that run, or by the figures of the memory.
    """
    if not case.is_hidden:
        return None
    lack = lack_of_memory(case.runs.without_tool_once())
    if lack is not None and lack.is_caused_by_others:
        return memory_is_full(case.runs.without_tool_once(), lack)
    eager = case.runs.in_eager_once("it fails without the tool; running it in eager")
    plain = case.runs.without_tool_once()
    if fails_alike(plain, eager):
        return also_fails_in_eager(case, eager)
    again = case.runs.without_tool_again()
    return not_always(plain, again, "both without the tool") if again.ended_well else None


def cached_results(case: ProgramCase) -> Verdict | None:
    """A cache of torch returns compiled code that was made for something else.

    Applies: The program fails without the tool, and not with it, which switches caches off.
    Runs: The program with its graphs checked and torch's caches on, as the user's run finds them;
    if it fails or a graph is wrong, twice without the tool and with one cache off.
    Concludes: A wrong entry of that cache: who took it, who saved it, what tells the two apart.
    How sure: Proven if the program ends well without the tool once the cache is off.
    """
    if not case.is_hidden:
        return None
    message = "running it with torch's caches on, as they are without the tool"
    # Settings are part of the keys.
    with_random = () if case.random_operations else (RANDOM_NUMBERS,)
    run = case.runs.given_back((CACHES, *with_random), message, calls=case.instructions.calls)
    hits = _suspicious_hits(run)
    if not (run.failed or any(check.verdict in _BAD for check in run.recording.checks)) or not hits:
        return None
    for cache, variable in _CACHES_OFF.items():
        if any(hit.cache == cache for _, hit in hits):
            off = f"running it without the tool and without torch's {cache} cache"
            if _ends_well_twice(partial(case.runs.without_tool_under, {variable: "0"}), off):
                return _verdict_on_cache(case, run, cache, variable)
    return None


def _ends_well_twice(run: Callable[[str], ProgramRun], message: str) -> bool:
    return all(run(text).ended_well for text in (message, f"{message}, once more"))


def _kind_of(failed: ProgramRun) -> str:
    """Return the verdict on a failure whose cause is known."""
    said = failed.last_words
    raised = "Traceback (most recent call last)" in failed.output and "AssertionError" not in said
    return v.CRASH if raised or failed.ending.signal is not None else v.WRONG_RESULT


_BAD = ("wrong", "error")
# By the name of a cache, the variable that switches it off; the inner cache serves the outer one.
_CACHES_OFF = {
    "AOTAutograd": "TORCHINDUCTOR_AUTOGRAD_CACHE",
    "FX graph": "TORCHINDUCTOR_FX_GRAPH_CACHE",
}
_CACHE_STAGES = {"AOTAutograd": stages.AOT, "FX graph": stages.CODEGEN}


def damaged_cache(case: ProgramCase) -> Verdict | None:
    """A file in the user's cache is wrong: compiled for another machine, damaged, or out of date.

    Applies: The program fails without the tool, and not with it, and no cache of graphs that is
    switched off explains it.
    Runs: The program without the tool with empty caches, twice; then without the files of one
    cache at a time, until it ends well twice.
    Concludes: Which cache has files that make it fail, and that deleting them helps.
    How sure: Proven by these runs; likely if torch compiles something else because of the files.
    """
    if not case.is_hidden or not case.runs.users_caches:
        return None
    plain = case.runs.without_tool_once()
    message = "running it without the tool, with empty caches"
    if not fails_alike(plain, case.runs.without_tool_again()) or not _ends_well_twice(
        partial(case.runs.without_tool_finding, EMPTY), message
    ):
        return None
    bad = _cache_with_bad_files(case)
    place = case.runs.users_caches.get(bad, case.runs.users_cache)
    chooses = bad in (users_cache.AUTOTUNING, users_cache.DYNAMO)
    whose = f"torch's {bad} cache" if bad else "torch's caches"
    result = Verdict(
        _kind_of(plain),
        stages.RUNTIME,
        f"The program fails because of the files of {whose} in {place}: without them it ends well. "
        "One of them is damaged, out of date, or compiled for another machine"
        + (", or torch compiles something else because of it, which is wrong." if chooses else "."),
        "likely" if chooses else "proven",
        Culprit(function=whose, config=str(place), source=case.last_compiled),
    )
    result.add(
        f"exit code {plain.ending.exit_code} with a copy of your caches, 0 with empty ones",
        "four runs without the tool, two each",
    )
    if bad:
        result.add(
            f"exit code 0 with a copy of all but torch's {bad} cache", "two runs of this kind"
        )
    result.add(plain.last_words, "what the program printed without the tool")
    also = " and *.best_config beside generated code" if bad == users_cache.AUTOTUNING else ""
    is_torchs = place.is_relative_to(case.runs.users_cache)
    variable = users_cache.VARIABLE if is_torchs else users_cache.TRITONS
    code = f'import os\nos.environ["{variable}"] = "new-cache"  # before torch'
    text = f"delete {place}{also}, or have torch use another folder: {variable}"
    result.workaround = Workaround(text, True, None, code)
    return result


def _cache_with_bad_files(case: ProgramCase) -> str:
    """Return the first cache without whose files the program ends well; "" if there is none."""
    for cache in case.runs.users_caches:
        run = partial(case.runs.without_tool_finding, USERS, without=cache)
        if _ends_well_twice(run, f"running it without the tool and its {cache} cache"):
            return cache
    return ""


def _suspicious_hits(run: ProgramRun) -> list[tuple[Compile, CacheLookup]]:
    """Return the compiles that came from a cache; if some of them are wrong, only those."""
    hits = [
        (compile_, lookup)
        for compile_ in run.recording.compiles
        for lookup in compile_.caches
        if lookup.outcome == "hit" and lookup.cache in _CACHES_OFF
    ]
    bad = {check.compile for check in run.recording.checks if check.verdict in _BAD}
    return [hit for hit in hits if hit[0].id in bad] or hits


def _verdict_on_cache(case: ProgramCase, run: ProgramRun, cache: str, variable: str) -> Verdict:
    taker, hit = next(each for each in _suspicious_hits(run) if each[1].cache == cache)
    saver = _saver_of(run.recording, taker, hit)
    plain = case.runs.without_tool_once()
    bad = [c for c in run.recording.checks if c.compile == taker.id and c.verdict in _BAD]
    whose = f"compile {saver.id} saved" if saver is not None else "an earlier run saved"
    result = Verdict(
        v.WRONG_RESULT if bad else _kind_of(plain),
        _CACHE_STAGES[cache],
        f"The program fails because of torch's {cache} cache: compile {taker.id} of "
        f"{taker.function} takes the entry that {whose}, which is not right for it. With the cache "
        "off, the program ends well.",
        "proven",
        Culprit(function=f"{cache} cache", config=f"{variable}=1", source=taker.place),
    )
    for check in bad[:1]:
        result.add(check.text, f"call {check.call} of compile {taker.id}, compared with eager")
    result.add(f"the key of the entry is {hit.key[:16]}…", f"looked up in compile {taker.id}")
    if saver is None:
        entries = case.runs.users_cache / users_cache.FOLDERS[cache]
        result.add(f"the entries of that cache lie in {entries}; deleting them mends this, too")
    if saver is not None:
        guard, lines = _told_apart(taker, saver), differing_lines(run.recording, saver, taker)
        if guard:
            text = f"the key leaves out what tells the two apart: {guard}"
            result.add(text, f"the guard of compile {saver.id} that failed")
        elif lines:
            text = f"the key leaves out what tells the two apart: {' and '.join(lines)}"
            result.add(text, f"the captured graphs of compiles {saver.id} and {taker.id}")
    result.add(
        f"{variable}=0: ends well; without it: exit code {plain.ending.exit_code}",
        "four runs without the tool, two each",
    )
    result.add(plain.last_words, "what the program printed without the tool")
    code = f'import os\nos.environ["{variable}"] = "0"  # before torch is imported'
    result.workaround = Workaround(f"switch the cache off: {variable}=0", True, None, code)
    return result


def _saver_of(recording: Recording, taker: Compile, hit: CacheLookup) -> Compile | None:
    """Return the compile of this run that missed the key and so saved the entry."""
    for compile_ in recording.compiles:
        for lookup in compile_.caches:
            if (lookup.cache, lookup.key, lookup.outcome) == (hit.cache, hit.key, "miss"):
                return compile_ if compile_.id != taker.id else None
    return None


def _told_apart(taker: Compile, saver: Compile) -> str:
    """Return the guard of one compile whose failure led to the other, as Dynamo said."""
    for reason in taker.recompile.reasons if taker.recompile is not None else ():
        number, _, guard = reason.partition(": ")
        if number == saver.id:
            return " ".join(guard.partition("#")[0].split())
    return ""


def inductor_random_numbers(case: ProgramCase) -> Verdict | None:
    """The program fails only with the random numbers that Inductor draws.

    Applies: The program fails without the tool, which makes compiled code draw random numbers as
    eager does, and not with it; and its graphs draw random numbers.
    Runs: The program with every graph compiled with Inductor's own random numbers, too; then
    without checks with these, with eager's, and in eager with those of another seed. If it ends
    well with all but Inductor's: with four other seeds, of Inductor and of eager in turns.
    Concludes: What is wrong with such a graph, if something is. Not a bug, if the program fails in
    eager with other random numbers. A wrong result, if it failed with Inductor's random numbers
    only, whatever the seed.
    How sure: Proven that it is not a bug, if it fails in the same way in eager. Otherwise likely: a
    program may fail by chance, and other seeds were not tried on packages.
    """
    if not case.is_hidden or not case.random_operations:
        return None
    return _in_whole_graphs(case) or _in_the_program(case)


def _in_whole_graphs(case: ProgramCase) -> Verdict | None:
    """Compile large graphs whole: the first run checked only their single nodes."""
    instructions = replace(case.instructions, random_in_whole_graphs=True)
    again = case.runs.again(instructions, "compiling every graph with Inductor's random numbers")
    case.finding = again.finding
    case.prove_and_help()
    if case.finding is not None and case.proof.is_verified:
        return verdict_on(case.finding)
    case.proof.forget()
    case.finding = None
    return None


def _in_the_program(case: ProgramCase) -> Verdict | None:
    if not _fails_with_inductors(case):
        return None
    eagers = Instructions(
        calls=0, investigate=False, workaround=_FALLBACK, given_back=(RANDOM_NUMBERS.name,)
    )
    if not case.runs.again(eagers, "running it with fallback_random = True").ended_well:
        return None
    if case.runs.uses_packages:
        return other_random_numbers(case, is_shown=False)
    other = case.runs.with_other_random_numbers()
    if other.was_ended:
        return None
    if other.ended_well:
        is_chance = not _fails_with_inductors_only(case)
        return other_random_numbers(case, is_shown=False) if is_chance else _wrong_numbers(case)
    is_alike = fails_alike(case.runs.without_tool_once(), other, case.runs.in_eager_once())
    result = other_random_numbers(case, is_shown=is_alike)
    return result.add(FAILS_IN_EAGER_TOO, "one run") if is_alike else result


def _fails_with_inductors(case: ProgramCase, seed: int = 0) -> bool:
    instructions = Instructions(
        calls=0, investigate=False, given_back=(RANDOM_NUMBERS.name,), reseeded=seed
    )
    which = "other random numbers of Inductor" if seed else "Inductor's random numbers"
    run = case.runs.again(instructions, f"running it without checks, with {which}")
    return fails_alike(case.runs.without_tool_once(), run, case.runs.in_eager_once())


def _fails_with_inductors_only(case: ProgramCase) -> bool:
    """Try further seeds, as a program may fail with some random numbers of any generator."""
    others = case.runs.with_other_random_numbers
    return all(_fails_with_inductors(case, seed) and others(seed + 1).ended_well for seed in (2, 4))


def _wrong_numbers(case: ProgramCase) -> Verdict:
    plain = case.runs.without_tool_once()
    operations = [name for name in case.random_operations if name.startswith(("aten.", "prims."))]
    result = Verdict(
        _kind_of(plain),
        stages.INDUCTOR,
        "The program fails because of the random numbers that Inductor draws for "
        f"{', '.join(operations[:4])}: with those of three seeds it fails, with those that eager "
        "draws from three others it ends well.",
        "likely",
        Culprit(op=operations[-1], config="fallback_random", source=case.last_compiled),
    )
    result.add("fails with Inductor's random numbers, of three seeds", "runs without checks")
    result.add("ends well with each graph in eager, of three other seeds", "runs of the program")
    result.add(plain.last_words, "what the program printed without the tool")
    text = "draw random numbers as eager does: torch._inductor.config.fallback_random = True"
    result.workaround = Workaround(text, True, None, _FALLBACK)
    return result


_FALLBACK = "import torch._inductor.config\ntorch._inductor.config.fallback_random = True"


def cuda_graphs(case: ProgramCase) -> Verdict | None:
    """CUDA graphs reuse memory that the program still reads.

    Applies: The program fails on its own, ends well while its graphs are checked, which is done
    without CUDA graphs, and has Triton kernels.
    Runs: The program without checks, as it is and with CUDA graphs off; if that helps, with the
    outputs of every compiled function cloned.
    Concludes: That CUDA graphs make it fail, with the line whose result was overwritten if torch
    says so, and whether clones help.
    How sure: Proven by two runs that differ in nothing else.
    """
    if not case.is_hidden or not case.uses_gpu:
        return None
    failing = _run(case, "", "running it without checks")
    if not failing.failed:
        return None
    if _run(case, _OFF, "running it without CUDA graphs").ending.exit_code != 0:
        return None
    is_said = _OVERWRITTEN in failing.output
    what = "memory that they reuse is read or written at the wrong time"
    if is_said:
        what = "it reads the output of a compiled function after a later call has overwritten it"
    # The line of the program that computed the overwritten result.
    frames = _FRAME.findall(failing.output.partition(f"{_OVERWRITTEN}.")[2])
    place = relative_place(":".join(frames[0])) if frames else None
    at = f" (result of {place})" if place else ""
    result = Verdict(
        v.CRASH if "Traceback" in failing.output and is_said else v.WRONG_RESULT,
        stages.RUNTIME,
        f"The program fails because of CUDA graphs: {what}{at}.",
        "proven",
        Culprit(function="cudagraph_trees", config="triton.cudagraphs", source=place),
    )
    result.add("fails with CUDA graphs, ends well without them", "two runs without checks")
    result.add(failing.last_words, "what the program printed")
    result.workaround = _workaround(case)
    return result


_OVERWRITTEN = "overwritten by a subsequent run"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_WRAPPED = """\
import functools
import torch._inductor
plain_compile = torch.compile
def compile_{name}(model=None, *, mode=None, options=None, **kwargs):
    if model is None:
        return functools.partial(compile_{name}, mode=mode, options=options, **kwargs)
{body}
torch.compile = compile_{name}"""


_OFF = _WRAPPED.format(
    name="without_cuda_graphs",
    body="""\
    settings = {**torch._inductor.list_mode_options(mode or "default"), **(options or {})}
    settings["triton.cudagraphs"] = False
    return plain_compile(model, options=settings, **kwargs)""",
)


_CLONED = _WRAPPED.format(
    name="and_clone",
    body="""\
    compiled = plain_compile(model, mode=mode, options=options, **kwargs)
    def call(*args, **inputs):
        found = compiled(*args, **inputs)
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, found)
    return call""",
)


def _workaround(case: ProgramCase) -> Workaround:
    helps = _run(case, _CLONED, "trying on the program: clone what compiled functions return")
    if helps.ending.exit_code == 0:
        text = "clone what the compiled function returns before it is called again"
        return Workaround(text, True, None, _CLONED)
    return Workaround('compile without CUDA graphs: {"triton.cudagraphs": False}', True, None, _OFF)


def _run(case: ProgramCase, workaround: str, message: str) -> ProgramRun:
    given_back = (CUDA_GRAPHS.name, RANDOM_NUMBERS.name)
    return case.runs.again(
        Instructions(calls=0, investigate=False, workaround=workaround, given_back=given_back),
        message,
    )


def given_back(case: ProgramCase) -> Verdict | None:
    """One of the other conditions of a checked run hides the failure.

    Applies: The program fails without the tool, and not with it.
    Runs: The program under the tool without checks; if it does not fail in the same way then, with
    one further condition at a time as in the user's run, and twice without the tool under the
    tool's condition.
    Concludes: Which condition the program needs to fail; what it is in the compiled code that does
    not bear it stays unknown.
    How sure: Proven by runs that differ in nothing else; unknown where the checks themselves hide
    the failure.
    """
    if not case.is_hidden or case.runs.in_eager_once().failed:
        return None
    plain = case.runs.without_tool_once()
    if fails_alike(plain, case.runs.given_back((CHECKS,), "running it without checks")):
        return _needs(case, CHECKS, "unknown")
    for condition in (THREADS, LAUNCHES):
        if condition is LAUNCHES and not case.uses_gpu:
            continue
        run = case.runs.given_back((condition,), f"running it with {condition.name}")
        if fails_alike(plain, run):
            return _needed_and_avoided(case, condition)
    return None


def _needed_and_avoided(case: ProgramCase, condition: RunCondition) -> Verdict:
    """Try on the program, without the tool, what the tool does."""
    settings = " ".join(f"{name}={value}" for name, value in condition.variables.items())
    helps = _ends_well_twice(
        partial(case.runs.without_tool_under, condition.variables),
        f"running it without the tool, with {settings}",
    )
    result = _needs(case, condition, "proven" if helps else "likely")
    if helps:
        result.add(f"{settings}: ends well", "two runs without the tool")
        code = "import os\n" + "\n".join(
            f'os.environ["{name}"] = "{value}"' for name, value in condition.variables.items()
        )
        result.workaround = Workaround(f"set {settings}", True, None, code)
    return result


def _needs(case: ProgramCase, condition: RunCondition, confidence: v.Confidence) -> Verdict:
    plain = case.runs.without_tool_once()
    kind = v.CRASH if plain.ending.signal is not None else v.UNKNOWN
    again = case.runs.without_tool_again()
    if kind == v.UNKNOWN and numbers_that_differ(plain, case.runs.in_eager_once(), again):
        kind = v.WRONG_RESULT
    result = Verdict(
        kind,
        stages.RUNTIME,
        f"The program fails compiled, and not in eager, but only with {condition.name}, which a "
        "checked run does not have. While it is checked, every compiled graph matches eager.",
        confidence,
        Culprit(config=condition.name, source=case.last_compiled),
    )
    result.add(
        f"with {condition.name}: exit code {plain.ending.exit_code}, as without the tool",
        "one run under the tool, without checks",
    )
    return result.add(plain.last_words, "what the program printed without the tool")


def hidden_by_the_tool(case: ProgramCase) -> Verdict | None:
    """The tool keeps the program from failing.

    Applies: The program fails without the tool and not with it, and no condition of a checked run
    explains that.
    Runs: Nothing more.
    Concludes: That it fails, and that the cause is unknown.
    How sure: Unknown.
    """
    if not case.is_hidden:
        return None
    plain = case.runs.without_tool_once()
    result = Verdict(
        v.UNKNOWN,
        stages.NO_STAGE,
        "The program fails on its own but not under inductoscope; the cause is unknown. It does "
        f"not fail under it either with {_given_back(case)}.",
    )
    result.add(f"exit code {plain.ending.exit_code} without the tool, 0 with it", "two runs")
    result.add(plain.last_words, "what the program printed without the tool")
    result.evidence += nothing_found(case).evidence
    return result


def _given_back(case: ProgramCase) -> str:
    """List the conditions that were given back."""
    not_tried = [] if case.random_operations else [RANDOM_NUMBERS]
    not_tried += [] if case.uses_gpu else [CUDA_GRAPHS, LAUNCHES]
    names = [condition.name for condition in CONDITIONS if condition not in not_tried]
    return f"{', '.join(names[:-1])} or {names[-1]}"
