"""The assembly of a recorded C++ kernel, made on demand, linked to the kernel's lines.

A recording is untrusted. Its source is given to the machine's own C++ compiler and never linked or
run; of its compile command only flags that choose code are taken, headers come from the installed
torch, Python and compiler alone, and the compiler runs under limits in an empty folder. objdump
says of every instruction which line it was written for, also where a header's code was inlined.
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
from inductoscope.model.entities import NativeCompile, Recording
from inductoscope.model.kernels import compile_of_kernel
from inductoscope.processes.children import ChildLimits, run_program
from inductoscope.recording.events import Kernel

_SOURCE, _TEXT, _OBJECT = "kernel.cpp", "kernel.s", "kernel.o"
_OBJDUMP = ("objdump", "-d", "-l", "--inlines", "--no-show-raw-insn")
# Directives that read files, and those that can define other directives.
_DIRECTIVE = re.compile(r"\.(?:incbin|include|macro|altmacro|irpc?|rept)\b")
_COMPILERS = ("g++", "c++", "clang++")

# Flags that only affect code generation. None of them names a file, a plugin or a program.
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
# Flags whose value is the next word.
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
_READING = ChildLimits(seconds=10, memory_gib=1, file_bytes=64 << 20)


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
        """The text with the kernel's line before each instruction, where known."""
        lines = {asm: str(line) for line, found in self.links.items() for asm in found}
        width = max(map(len, lines.values()), default=0)
        return "\n".join(
            f"{lines.get(number, ''):>{width}}  {text.expandtabs()}".rstrip()
            for number, text in enumerate(self.text.splitlines(), start=1)
        )


def kernel_assembly(recording: Recording, kernel: Kernel, limits: ChildLimits = LIMITS) -> Assembly:
    """Compile a recorded kernel to assembly with its recorded code generation flags."""
    native = _compiled(recording, kernel)
    whole, own = recording.payload(native.payload), recording.payload(kernel.payload)
    first = _first_line(whole, own)
    flags, left_out = safe_flags(native.command)
    _refuse_unsafe(whole)
    compiler = _find_compiler(native.command)
    version = _version(compiler)
    includes = [f"-I{folder}" for folder in _include_folders()]
    made = _compiled_and_read([compiler, *flags, *includes], whole, limits)
    found = listing(made, _SOURCE, range(first, first + len(own.splitlines())))
    return Assembly(
        kernel=kernel.name,
        text=found.text,
        links={line - first + 1: numbers for line, numbers in found.links.items()},
        inlined=found.inlined,
        compiler=version,
        flags=flags,
        left_out=left_out,
        notes=tuple(_notes(native, found)),
    )


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
    natives = [n for n in compile_of_kernel(recording, kernel) if n.tool == "c++" and n.payload]
    if not natives:
        raise UsageError(
            f"The recording does not say how {kernel.name} was compiled: it came from a cache, "
            "or the run ended before. Record again with 'inductoscope run --fresh SCRIPT'."
        )
    return natives[-1]


def _first_line(whole: str, own: str) -> int:
    """Return the line of the compiled file that corresponds to the kernel's first line.

    Both texts agree from the signature on; only what precedes it differs.
    """
    start = own.find("void ")
    place = whole.find(own[start:].strip()) if start >= 0 else -1
    if place < 0:
        raise UsageError("The compiled file does not contain the kernel's source.")
    return whole.count("\n", 0, place) - own.count("\n", 0, start) + 1


# --- what is taken from the recorded command ------------------------------------------------------


def safe_flags(command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags that are kept, and the words that are not."""
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
    """Return a compiler on this machine, preferably the one with the recorded name."""
    names = (os.environ.get("CXX", ""), *_COMPILERS)
    found = [place for place in map(shutil.which, filter(None, names)) if place]
    if not found:
        raise ToolFailure("No C++ compiler was found: install g++ or clang++ to see assembly.")
    recorded = os.path.basename(next(iter(command.split()), ""))
    return next((place for place in found if os.path.basename(place) == recorded), found[0])


def _refuse_unsafe(source: str) -> None:
    """Refuse includes other than headers of torch and the compiler, given by name."""
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
    """Return the include directories of Python and of torch, which is not imported."""
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


# --- the compiler's process -----------------------------------------------------------------------


def _compiled_and_read(compiler: list[str], source: str, limits: ChildLimits) -> str:
    """Compile a source and return its disassembly by objdump, with line numbers."""
    with tempfile.TemporaryDirectory(prefix="inductoscope-assembly-") as name:
        folder = Path(name)
        (folder / _SOURCE).write_text(source, "utf-8", errors="replace")
        _run([*compiler, "-w", "-Wfatal-errors", "-g1", "-S", _SOURCE, "-o", _TEXT], folder, limits)
        _refuse_directives((folder / _TEXT).read_text("utf-8", errors="replace"))
        _run([compiler[0], "-c", "-x", "assembler", _TEXT, "-o", _OBJECT], folder, limits)
        try:
            _run([*_OBJDUMP, "-C", _OBJECT], folder, _READING)
        except ToolFailure:  # Names that refer to each other grow without bounds when written out.
            _run([*_OBJDUMP, _OBJECT], folder, _READING)
        return (folder / "stdout").read_text("utf-8", errors="replace")


def _refuse_directives(text: str) -> None:
    """Refuse assembler directives, which names in the source may smuggle in."""
    if found := _DIRECTIVE.search(text):
        raise UsageError(f"The kernel's assembly contains {found[0]}, which is not assembled.")


def _run(command: list[str], folder: Path, limits: ChildLimits) -> None:
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TMPDIR": str(folder)}
    code = run_program(command, limits, folder, environment=environment)
    tool = Path(command[0]).name
    if code is None:
        raise ToolFailure(f"{tool} did not finish within {limits.seconds:g} s.")
    if code != 0:
        said = (folder / "stderr").read_text("utf-8", errors="replace").strip().splitlines()
        first = next((line for line in said if "error" in line), said[0] if said else "")
        raise ToolFailure(f"{tool} exited with code {code}: {first[:300] or 'no output'}")


def _version(compiler: str) -> str:
    try:
        done = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return compiler
    return (done.stdout.splitlines() or [compiler])[0]


# --- what objdump writes --------------------------------------------------------------------------

_FUNCTION = re.compile(r"(?:[0-9a-f]+ )?<.*>:")
_PLACE = re.compile(r"(inlined by )?([^:]+):(\d{1,9})(?: \(.*\))?")
_INSTRUCTION = re.compile(r"\s+[0-9a-f]+:\t")


@dataclass(frozen=True)
class Listing:
    """Functions and instructions; `links` map source lines to lines of `text`."""

    text: str
    links: Mapping[int, tuple[int, ...]]
    # Lines of `text` whose own line is a header's, called from the line that links to them.
    inlined: frozenset[int]


# The lines of one function, each with its line of the source, and whether it was inlined.
_Function = list[tuple[str, int, bool]]


def listing(disassembly: str, source: str, wanted: range) -> Listing:
    """Return the functions compiled from the lines `wanted` of the file `source`."""
    kept = [
        line
        for function in _functions(disassembly, source)
        if any(number in wanted for _, number, _ in function)
        for line in function
    ]
    links: dict[int, list[int]] = defaultdict(list)
    inlined = set()
    for place, (_, number, is_inlined) in enumerate(kept, start=1):
        if number in wanted:
            links[number].append(place)
            inlined.update([place] if is_inlined else [])
    return Listing(
        text="".join(f"{text}\n" for text, _, _ in kept),
        links={line: tuple(places) for line, places in sorted(links.items())},
        inlined=frozenset(inlined),
    )


def _functions(disassembly: str, source: str) -> Iterator[_Function]:
    """Yield each function with a source line per instruction: its own, or the innermost line of the
    source that inlined it. objdump prints a location before the instructions it applies to.
    """
    function: _Function | None = None
    own = called = 0
    has_begun = False
    for text in disassembly.splitlines():
        if _FUNCTION.fullmatch(text):
            if function is not None:
                yield function
            function, own, called = [(text, 0, False)], 0, 0
        elif function is not None and _INSTRUCTION.match(text):
            function.append((text.rstrip(), own or called, bool(called and not own)))
            has_begun = True
        elif place := _PLACE.fullmatch(text):
            line = int(place[3]) if os.path.basename(place[2]) == source else 0
            # Other calls may have inlined the same line of a header.
            called = 0 if has_begun else called
            has_begun = False
            if place[1]:
                called = called or line
            else:
                own, called = line, 0
    if function is not None:
        yield function
