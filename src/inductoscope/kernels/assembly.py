"""The assembly of a recorded C++ kernel, made on demand, linked to the kernel's lines.

A recording is untrusted. Its source is given to the machine's own C++ compiler and never linked or
run; of its compile command only flags that choose code are taken, headers come from the installed
torch, Python and compiler alone, and the compiler runs under limits in an empty folder.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.model.entities import Kernel, NativeCompile, Recording
from inductoscope.model.kernels import compile_of_kernel
from inductoscope.processes.children import ChildLimits, run_program

_SOURCE = "kernel.cpp"
_COMPILERS = ("g++", "c++", "clang++")

# Flags that only choose how code is made. None of them names a file, a plugin or a program.
_SAFE_FLAG = re.compile(
    r"-O(?:[0-3sgz]|fast)?"
    r"|-std=(?:c|gnu)\+\+(?:17|1z|20|2a|23|2b|26)"
    r"|-m(?:arch|cpu|tune|abi)=[A-Za-z0-9_.+-]+"
    r"|-m(?:no-)?(?:avx|sse|ssse|amx|fma|f16c|bmi|popcnt|vsx|altivec|zvector|sve)[A-Za-z0-9.-]*"
    r"|-mprefer-vector-width=\d+"
    r"|-D[A-Za-z_]\w*(?:=(?:[A-Za-z_]\w*|-?[0-9][\w.]*))?"
    r"|-f(?:no-)?(?:fast-math|finite-math-only|unsafe-math-optimizations|trapping-math|math-errno"
    r"|signed-zeros|associative-math|reciprocal-math|rounding-math|omit-frame-pointer|openmp"
    r"|tree-loop-vectorize|tree-vectorize|tree-slp-vectorize|unroll-loops|strict-aliasing|wrapv"
    r"|inline-functions|exceptions|plt)"
    r"|-f(?:fp-contract|excess-precision)=[a-z-]+"
    r"|-f(?:PIC|pic|PIE|pie)"
)
# Flags that have the next word as their value.
_WITH_VALUE = ("-o", "-I", "-L", "-l", "-include", "-isystem", "-iquote", "-idirafter", "-x")

_SPLICE = re.compile(r"\\[ \t]*\r?\n")
# A comment before a directive's name: where it ends depends on the strings around it.
_INCLUDE = re.compile(
    r"(?:\#|%:|\?\?=)[ \t]*(?:/\*|(?:include_next|include|import|embed)\b"
    r"[ \t]*(<[^>\n]*>|\"[^\"\n]*\"|[^\n]*))"
)
# What compilers take for a space or for nothing, so that a word is not seen here; what asks for
# files or builds such words (as ## and trigraphs do); assembly. Inductor writes none of these.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\?\?[/=]|##|%:%:"
    r"|__has_\w*|\bpch_preprocess\b|\bGCC\s+dependency\b|\b_*asm_*\b"
)
_HEADER = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_+.-]*(?:/[A-Za-z0-9_+-][A-Za-z0-9_+.-]*)*")

LIMITS = ChildLimits(seconds=60, memory_gib=4, file_bytes=64 << 20)
# Names that refer to each other grow without bounds when they are written out.
_DEMANGLING = ChildLimits(seconds=10, memory_gib=1, file_bytes=16 << 20)


@dataclass(frozen=True)
class Assembly:
    """Assembly of one kernel. `links`: line of the kernel's source → lines of `text`, from 1."""

    kernel: str
    text: str
    links: Mapping[int, tuple[int, ...]]
    # Lines of `text` that a header's code became, called from the line that links to them.
    inlined: frozenset[int]
    compiler: str
    flags: tuple[str, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def numbered(self) -> str:
        """The text with the kernel's line before each instruction, where it is known."""
        lines = {asm: str(line) for line, found in self.links.items() for asm in found}
        width = max(map(len, lines.values()), default=0)
        return "\n".join(
            f"{lines.get(number, ''):>{width}}  {text.expandtabs()}".rstrip()
            for number, text in enumerate(self.text.splitlines(), start=1)
        )


def kernel_assembly(recording: Recording, kernel: Kernel, limits: ChildLimits = LIMITS) -> Assembly:
    """Compile a recorded kernel as it was compiled then, up to assembly."""
    native = _compiled(recording, kernel)
    whole, own = recording.payload(native.digest), recording.payload(kernel.digest)
    first = _first_line(whole, own)
    flags, left_out = safe_flags(native.command)
    _refuse_unsafe(whole)
    compiler = _find_compiler(native.command)
    version = _version(compiler)
    command = [compiler, *flags, *_torch_includes(), *_own_flags(version), "-S", "-o", "-"]
    made = _run([*command, _SOURCE], whole, limits)
    found = listing(made, _SOURCE, range(first, first + len(own.splitlines())))
    return Assembly(
        kernel=kernel.name,
        text=_demangled(found.text),
        links={line - first + 1: numbers for line, numbers in found.links.items()},
        inlined=found.inlined,
        compiler=version,
        flags=flags,
        left_out=left_out,
        notes=tuple(_notes(native, found)),
    )


def _own_flags(version: str) -> list[str]:
    """Lines, and with GCC in words which call was inlined where.

    Clang's own assembler would read files that assembly names, also where only text is asked for.
    """
    own = "-fno-integrated-as" if "clang" in version else "-dA"
    return ["-w", "-Wfatal-errors", "-g1", own]


def _notes(native: NativeCompile, found: Listing) -> Iterator[str]:
    yield "Compiled now, on this machine: another compiler or CPU generates different code."
    if not found.links:
        yield "The assembly contains no line of the kernel."
    if native.exit_code:
        yield f"In the recorded run the compiler exited with code {native.exit_code}."


def _compiled(recording: Recording, kernel: Kernel) -> NativeCompile:
    if kernel.language != "C++":
        raise UsageError(
            f"{kernel.name} is a {kernel.language} kernel. Only C++ kernels have assembly."
        )
    natives = [n for n in compile_of_kernel(recording, kernel) if n.tool == "c++" and n.digest]
    if not natives:
        raise UsageError(
            f"The recording does not say how {kernel.name} was compiled: it came from a cache, "
            "or the run ended before. Record again with 'inductoscope run --fresh SCRIPT'."
        )
    return natives[-1]


def _first_line(whole: str, own: str) -> int:
    """The line of the compiled file that the kernel's first line would be.

    The two agree from the signature on: the file has another head.
    """
    start = own.find("void ")
    place = whole.find(own[start:].strip()) if start >= 0 else -1
    if place < 0:
        raise UsageError("The compiled file does not contain the kernel's source.")
    return whole.count("\n", 0, place) - own.count("\n", 0, start) + 1


# --- what is taken from the recorded command ------------------------------------------------------


def safe_flags(command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags that are taken over, and words that are not."""
    try:
        words = shlex.split(command)[1:]
    except ValueError as error:
        raise UsageError(f"The recorded compile command cannot be read: {error}.") from error
    taken, left_out = [], []
    rest = iter(words)
    for word in rest:
        if word == "-D":
            word += next(rest, "")
        if _SAFE_FLAG.fullmatch(word) and not _UNSAFE.search(word):
            taken.append(word)
        else:
            value = next(rest, "") if word in _WITH_VALUE else ""
            left_out.append(f"{word} {value}".strip())
    return tuple(taken), tuple(left_out)


def _find_compiler(command: str) -> str:
    """A compiler on this machine, preferably the one with the recorded name."""
    names = (os.environ.get("CXX", ""), *_COMPILERS)
    found = [place for place in map(shutil.which, filter(None, names)) if place]
    if not found:
        raise ToolFailure("No C++ compiler was found: install g++ or clang++ to see assembly.")
    recorded = os.path.basename(next(iter(command.split()), ""))
    return next((place for place in found if os.path.basename(place) == recorded), found[0])


def _refuse_unsafe(source: str) -> None:
    """Only headers of torch and those that a compiler brings: nothing by path, nothing computed."""
    folders = _include_folders()
    spliced = _SPLICE.sub("", source)
    if unsafe := _UNSAFE.search(spliced):
        raise UsageError(f"The recorded source contains {unsafe[0]!a:.80}, which is not compiled.")
    for match in _INCLUDE.finditer(spliced):
        quoted = (match[1] or "something unreadable").strip()
        name = quoted[1:-1] if quoted[:1] in '<"' and len(quoted) > 2 else ""
        if not _HEADER.fullmatch(name):
            raise UsageError(f"The recorded source includes {quoted[:80]}, which is not compiled.")
        if "/" in name and not any((folder / name).is_file() for folder in folders):
            raise UsageError(
                f"The recorded source includes {name}, which the installed torch does not have."
            )


def _include_folders() -> list[Path]:
    """Headers of the installed torch, found without importing it, and of Python."""
    spec = importlib.util.find_spec("torch")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise ToolFailure("torch's headers are needed: install torch to see assembly.")
    include = Path(places[0]) / "include"
    return [
        include,
        include / "torch" / "csrc" / "api" / "include",
        Path(sysconfig.get_paths()["include"]),
    ]


def _torch_includes() -> list[str]:
    return [f"-I{folder}" for folder in _include_folders()]


# --- the compiler's process -----------------------------------------------------------------------


def _run(command: list[str], source: str, limits: ChildLimits) -> str:
    with tempfile.TemporaryDirectory(prefix="inductoscope-assembly-") as name:
        folder = Path(name)
        (folder / _SOURCE).write_text(source, "utf-8", errors="replace")
        code = _limited(command, folder, limits)
        if code is None:
            raise ToolFailure(f"The compiler did not finish within {limits.seconds:g} s.")
        if code != 0:
            raise ToolFailure(_failure(command[0], code, folder))
        return (folder / "stdout").read_text("utf-8", errors="replace")


def _limited(
    command: list[str], folder: Path, limits: ChildLimits, given: str = os.devnull
) -> int | None:
    """The exit code; None if its time was up. `given`: the file that it reads."""
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TMPDIR": str(folder)}
    return run_program(command, limits, folder, environment=environment, given=given)


def _failure(compiler: str, code: int, folder: Path) -> str:
    said = (folder / "stderr").read_text("utf-8", errors="replace").strip().splitlines()
    first = next((line for line in said if "error" in line), said[0] if said else "")
    return f"{Path(compiler).name} exited with code {code}: {first[:300] or 'no output'}"


def _demangled(text: str) -> str:
    """The text with demangled C++ names, if the tool for that works."""
    tool = shutil.which("c++filt")
    if tool is None:
        return text
    with tempfile.TemporaryDirectory(prefix="inductoscope-assembly-") as name:
        folder = Path(name)
        (folder / "names").write_text(text, "utf-8", errors="replace")
        if _limited([tool], folder, _DEMANGLING, given="names") != 0:
            return text
        return (folder / "stdout").read_text("utf-8", errors="replace")


def _version(compiler: str) -> str:
    try:
        done = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return compiler
    return (done.stdout.splitlines() or [compiler])[0]


# --------------------------------------------------------------------------------------------------
# Reads what a compiler wrote with -S: the functions of a kernel, and the lines they come from.
#
# An instruction's own line is that of the `.loc` before it. Most of a kernel is made of calls of
# torch's headers that were inlined, whose line is the header's: the debug information says from
# which line of the kernel each was called (`DW_TAG_inlined_subroutine`, readable with GCC's -dA).
# An instruction for which neither says a line of the kernel has none.

_FILE = re.compile(r'^\s*\.file\s+(\d{1,9})\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOCATION = re.compile(r"^\s*\.loc\s+(\d{1,9})\s+(\d{1,9})\b")
_LABEL = re.compile(r"^([^\s#/\"][^\n]*?):\s*(?:[#/@].*)?$")
_LOCAL = re.compile(r"\.?L[\w.$]+")
_COMMENT = re.compile(r"^\s*(?:#|//|@)")
_TAG = re.compile(r"\(DIE \(0x[0-9a-f]+\) (DW_TAG_\w+)\)")
_VALUE = re.compile(r"^\s*\.\w+\s+(\S+)")
_RANGE = re.compile(r"^\s*\.\w+\s+(\.L\w+)\b.*Range (begin|end) address \(\*(\.L\w+)\)")

# Debug information is made of short lines, of calls that nest a few times: what goes far beyond was
# written by hand, to keep its reader busy.
_LONGEST_LINE = 500
_MOST_STEPS = 5_000_000


@dataclass(frozen=True)
class Listing:
    """Labels and instructions alone; `links` lead from source lines to lines of `text`."""

    text: str
    links: Mapping[int, tuple[int, ...]]
    # Lines of `text` whose own line is a header's, called from the line that links to them.
    inlined: frozenset[int]


@dataclass(frozen=True)
class _Line:
    text: str
    source: int = 0  # line of the kernel's file
    is_inlined: bool = False


def listing(assembly: str, source: str, wanted: range) -> Listing:
    """The functions that lines `wanted` of the file `source` became."""
    code = _read_code(assembly, source)
    callers = _callers(assembly, source, code.labels)
    links: dict[int, list[int]] = defaultdict(list)
    kept: list[_Line] = []
    for function in code.functions(wanted):
        kept += _without_idle_labels([code.line(number, callers) for number in function])
    for number, line in enumerate(kept, start=1):
        if line.source in wanted:
            links[line.source].append(number)
    return Listing(
        text="\n".join(line.text for line in kept) + ("\n" if kept else ""),
        links={line: tuple(numbers) for line, numbers in sorted(links.items())},
        inlined=frozenset(
            n for n, line in enumerate(kept, start=1) if line.is_inlined and line.source in wanted
        ),
    )


# --- code -----------------------------------------------------------------------------------------


@dataclass
class _Code:
    """Labels and instructions in order, and the line of the kernel's file that `.loc` says."""

    texts: list[str] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)

    def add(self, text: str, source: int) -> None:
        self.texts.append(text)
        self.sources.append(source)

    def functions(self, wanted: range) -> Iterator[range]:
        """Those that hold at least one instruction of the wanted lines."""
        for start, end in zip(self.starts, [*self.starts[1:], len(self.texts)], strict=True):
            if any(source in wanted for source in self.sources[start:end]):
                yield range(start, end)

    def line(self, number: int, callers: Mapping[int, int]) -> _Line:
        own, text = self.sources[number], self.texts[number]
        if own or _LABEL.match(text):
            return _Line(text, own)
        return _Line(text, callers.get(number, 0), is_inlined=True)


def _read_code(assembly: str, source: str) -> _Code:
    """Functions begin with a label that is not local."""
    code = _Code()
    own: set[int] = set()
    line = 0
    for text in assembly.splitlines():
        if match := _FILE.match(text):
            own.update([int(match[1])] if match[2] == source else [])
        elif match := _LOCATION.match(text):
            line = int(match[2]) if int(match[1]) in own else 0
        elif label := _LABEL.match(text):
            code.labels[label[1]] = len(code.texts)
            if not _LOCAL.fullmatch(label[1]):
                code.starts.append(len(code.texts))
                line = 0
            code.add(text, 0)
        elif _is_instruction(text) and code.starts:
            code.add(text.rstrip(), line)
    return code


def _is_instruction(text: str) -> bool:
    bare = text.strip()
    return bool(bare) and not bare.startswith(".") and not _COMMENT.match(text)


def _without_idle_labels(lines: list[_Line]) -> Iterator[_Line]:
    """Labels that nothing jumps to are for debuggers, not for readers."""
    used = {
        word for line in lines if not _LABEL.match(line.text) for word in _LOCAL.findall(line.text)
    }
    for line in lines:
        label = _LABEL.match(line.text)
        if label is None or not _LOCAL.fullmatch(label[1]) or label[1] in used:
            yield line


# --- debug information ----------------------------------------------------------------------------


@dataclass
class _Inlined:
    """A call that was inlined: where it was called from, and the labels around its code."""

    file: str = ""
    line: int = 0
    low: str = ""
    high: str = ""
    ranges: str = ""


def _callers(assembly: str, source: str, labels: Mapping[str, int]) -> dict[int, int]:
    """Instruction → line of the kernel that it was inlined into; the innermost call wins."""
    lines = [text for text in assembly.splitlines() if len(text) <= _LONGEST_LINE]
    ranges = _range_lists(lines)
    extents: list[tuple[int, int, list[tuple[int, int]]]] = []
    steps = 0
    for call in _inlined_calls(lines):
        if call.file != source or not call.line:
            continue
        pairs = ranges.get(call.ranges, []) if call.ranges else [(call.low, call.high)]
        placed = [(labels[a], labels[b]) for a, b in pairs if a in labels and b in labels]
        width = sum(max(b - a, 0) for a, b in placed)
        steps += len(pairs) + width
        if steps > _MOST_STEPS:
            return {}
        extents.append((width, call.line, placed))
    found: dict[int, int] = {}
    # The widest first, so that narrower ones overwrite it.
    for _, line, placed in sorted(extents, key=lambda extent: -extent[0]):
        for start, end in placed:
            found.update(dict.fromkeys(range(start, end), line))
    return found


def _inlined_calls(lines: list[str]) -> Iterator[_Inlined]:
    call: _Inlined | None = None
    for text in lines:
        tag = _TAG.search(text)
        if tag or "end of children" in text:
            if call is not None:
                yield call
            is_call = tag is not None and tag[1] == "DW_TAG_inlined_subroutine"
            call = _Inlined() if is_call else None
        elif call is not None:
            _take_attribute(call, text)
    if call is not None:
        yield call


def _take_attribute(call: _Inlined, text: str) -> None:
    value = _VALUE.match(text)
    if value is None:
        return
    if "DW_AT_call_file" in text:
        call.file = text.rpartition("(")[2].rstrip(") ")
    elif "DW_AT_call_line" in text:
        call.line = _number(value[1])
    elif "DW_AT_ranges" in text:
        call.ranges = value[1]
    elif "DW_AT_low_pc" in text:
        call.low = value[1]
    elif "DW_AT_high_pc" in text:
        call.high = value[1].partition("-")[0]


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def _range_lists(lines: list[str]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    begin = ""
    for text in lines:
        match = _RANGE.match(text)
        if match is None:
            continue
        if match[2] == "begin":
            begin = match[1]
        else:
            found[match[3]].append((begin, match[1]))
    return found
