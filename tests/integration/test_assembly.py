"""Assembly of recorded C++ kernels: linked to their lines, and made of nothing that is not safe."""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.kernels.assembly import (
    LIMITS,
    _find_compiler,
    _refuse_unsafe,
    kernel_assembly,
    listing,
    safe_flags,
)
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.recording.events import Kernel
from support.examples import stored

# The stored recordings were made on ARM, and their flags and vectors are those of ARM.
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or platform.machine() not in ("aarch64", "arm64"),
    reason="there is no g++ for ARM here",
)


def chain() -> tuple[Recording, Kernel]:
    """relu, add and sum in one kernel, and the recording that holds it."""
    recording = load(stored("relu_add_sum"))
    return recording, recording.graphs[0].kernels[0]


class Planted:
    """Payloads of which one was replaced by somebody."""

    def __init__(self, recording: Recording, **texts: str) -> None:
        self._real, self._texts = recording.payloads, texts

    def payload(self, digest: str) -> str | None:
        return self._texts.get(f"d{digest}") or self._real.payload(digest)

    def json_payload(self, digest: str) -> object:
        return self._real.json_payload(digest)

    def size(self, digest: str) -> int:
        return self._real.size(digest)


def with_source(change: str) -> tuple[Recording, Kernel]:
    """The same kernel, in a compiled file that begins with `change`."""
    recording, kernel = chain()
    native = recording.natives[-1]
    text = f"{change}\n{recording.payload(native.payload)}"
    payloads = Planted(recording, **{f"d{native.payload}": text})
    return replace(recording, payloads=payloads), kernel


# --- links ----------------------------------------------------------------------------------------


@needs_compiler
def test_every_instruction_is_linked_to_the_line_that_it_was_written_for() -> None:
    recording, kernel = chain()
    found = kernel_assembly(recording, kernel)
    source = recording.payload(kernel.payload).splitlines()
    lines = found.text.splitlines()
    assert lines[0].endswith("<kernel>:")
    assert not any(line.strip().startswith((".loc", ".cfi")) for line in lines)
    assert set(found.links) <= set(range(1, len(source) + 1))

    def instructions(part: str) -> str:
        number = next(n for n, line in enumerate(source, start=1) if part in line)
        return "\n".join(lines[line - 1] for line in found.links[number])

    # Names of instructions differ between processors; on all of them relu is a maximum.
    assert "max" in instructions("clamp_min")
    assert "add" in instructions("tmp_acc0_vec + tmp4")
    relu = next(n for n, line in enumerate(source, start=1) if "clamp_min" in line)
    assert any(
        line.startswith(f"{relu} ") and "max" in line for line in found.numbered.splitlines()
    )
    # Those two are code of torch's headers, inlined into the kernel.
    assert found.inlined
    assert all(1 <= line <= len(lines) for line in found.inlined)
    assert "-O3" in found.flags
    assert "-march=native" in found.flags
    assert any(word.startswith("-include ") for word in found.left_out)
    assert "Compiled now, on this machine" in found.notes[0]


def test_a_line_that_neither_its_own_place_nor_a_call_names_has_no_link() -> None:
    text = """
kernel.o:     file format elf64-littleaarch64

Disassembly of section .text:

0000000000000000 <main>:
main():
/tmp/x/kernel.cpp:3
   0:\tmov\tx0, #0x1
/usr/include/header.h:77
   4:\tmov\tx1, #0x2
square(float):
/usr/include/header.h:12 (discriminator 3)
inlined by /usr/include/other.h:9 (wrap)
inlined by /tmp/x/kernel.cpp:5 (main)
   8:\tmov\tx2, #0x3

000000000000000c <other>:
other():
/usr/include/header.h:1
   c:\tnop
"""
    found = listing(text, "kernel.cpp", range(1, 10))
    assert [line.split() for line in found.text.splitlines()] == [
        ["0000000000000000", "<main>:"],
        ["0:", "mov", "x0,", "#0x1"],
        ["4:", "mov", "x1,", "#0x2"],
        ["8:", "mov", "x2,", "#0x3"],
    ]
    assert found.links == {3: (2,), 5: (4,)}
    assert found.inlined == {4}


def test_text_that_says_nothing_of_the_kernel_is_empty() -> None:
    assert listing("garbage\n<>:\n\x00:::\n", "kernel.cpp", range(1, 10)).text == ""


# --- an untrusted command -------------------------------------------------------------------------


def test_only_flags_that_choose_code_are_taken() -> None:
    command = (
        "g++ in.cpp -D NDEBUG -DN=4 -O3 -march=armv8-a+sve -mavx512f -ffast-math -fopenmp "
        "-std=c++20 -fPIC -o out.so"
    )
    taken, left_out = safe_flags(command)
    assert taken == (
        "-DNDEBUG", "-DN=4", "-O3", "-march=armv8-a+sve", "-mavx512f", "-ffast-math", "-fopenmp",
        "-std=c++20", "-fPIC",
    )  # fmt: skip
    assert left_out == ("in.cpp", "-o out.so")


@pytest.mark.parametrize(
    "word",
    [
        "-fplugin=/tmp/evil.so",
        "-B/tmp/evil",
        "-wrapper sh,-c",
        "-specs=/tmp/evil",
        "-Wl,-rpath,/tmp",
        "-Wp,-include,/etc/passwd",
        "-include /etc/passwd",
        "-I/home/user",
        "-isystem /home",
        "-x assembler",
        "@/tmp/options",
        "-mllvm -load=/tmp/evil.so",
        "-o /etc/cron.d/evil",
        "-D X='\"/etc/passwd\"'",
        "-fdump-tree-all=/tmp/x",
        "-save-temps=obj",
        "-std=c++11",
        "-DX=__has_include",
        "-DX=__asm__",
    ],
)
def test_no_flag_that_names_a_file_or_a_program_is_taken(word: str) -> None:
    taken, left_out = safe_flags(f"g++ -O2 {word} x.cpp")
    assert taken == ("-O2",)
    assert left_out


def test_a_command_that_is_no_command_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        safe_flags("g++ 'unfinished")


@pytest.mark.parametrize(
    "line",
    [
        '#include "/etc/passwd"',
        "#include </etc/passwd>",
        '#include "../../secret.h"',
        "#include <torch/../../../secret.h>",
        "#include <torch/no_such_header.h>",
        "#define F </etc/passwd>\n#include F",
        '#inc\\\nlude "/etc/passwd"',
        '# /* a */ include /* b */ "/etc/passwd"',
        '%:include "/etc/passwd"',
        'const char *a = "/*";\n#include "/etc/passwd"\nconst char *b = "*/";',
        "#embed </etc/passwd>",
        '#include_next "/etc/passwd"',
        '#import "/etc/passwd"',
        "#include",
        'const char *a = "#/*";\n#include </etc/passwd>\nconst char *b = "*/include <vector>";',
        "#" + "/**/" * 1000 + "x",
    ],
)
def test_headers_that_are_not_torchs_are_refused(line: str) -> None:
    with pytest.raises(UsageError, match="The recorded source includes"):
        kernel_assembly(*with_source(line))


@pytest.mark.parametrize(
    "text",
    [
        *(f'#{space}include "/etc/passwd"' for space in "\0\v\f\r"),
        *(f'#incl\\{space}\nude "/etc/passwd"' for space in "\0\v\f"),
        '#incl\\\rude "/etc/passwd"',
        '#incl??/\nude "/etc/passwd"',
        '#if __has_include("/etc/passwd")',
        "#if __has_embed(</etc/passwd>)",
        '#if __has_\\\ninclude("/etc/passwd")',
        '#define JOIN(a, b) a##b\n#if JOIN(__ha, s_include)("/etc/passwd")',
        '#define JOIN(a, b) a%:%:b\nJOIN(as, m)(".incbin");',
        '#pragma GCC dependency "/etc/passwd"',
        '_Pragma("GCC pch_preprocess \\"/etc/passwd\\"")',
        'asm(".inc" "bin \\"/etc/passwd\\"");',
        '__asm__ volatile(".include \\"/etc/passwd\\"");',
    ],
)
def test_nothing_asks_for_files_in_another_way(text: str) -> None:
    with pytest.raises(UsageError, match=r"The recorded source contains .*, which is not compiled"):
        kernel_assembly(*with_source(text))


def test_what_inductor_writes_is_not_refused() -> None:
    recording, _ = chain()
    texts = [recording.payload(native.payload) for native in recording.natives]
    assert any("#include <torch/" in text for text in texts)
    for text in texts:
        _refuse_unsafe(text)
        _refuse_unsafe(text.replace("\n", "\r\n"))


def test_the_compiler_is_one_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("clang++", "g++", "clang++-99", "mine"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    def chosen(command: str) -> str:
        return Path(_find_compiler(command)).name

    assert chosen("/elsewhere/clang++ -O2") == "clang++"
    # Not one that only the recording names.
    assert chosen("clang++-99 -O2") == chosen("/elsewhere/mine") == chosen("") == "g++"
    monkeypatch.setenv("CXX", str(tmp_path / "mine"))
    assert chosen("clang++-99 -O2") == chosen("mine") == "mine"
    assert chosen("g++ -O2") == "g++"
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CXX", "")
    with pytest.raises(ToolFailure, match="No C\\+\\+ compiler was found"):
        chosen("g++")


@needs_compiler
@pytest.mark.parametrize("directive", [".incbin", ".include", ".macro"])
def test_assembly_that_reads_a_file_is_not_assembled(directive: str) -> None:
    planted = f'__attribute__((section(".x\\n{directive} \\"/etc/passwd\\"#"))) int planted = 1;'
    with pytest.raises(UsageError, match=f"contains {directive}, which is not assembled"):
        kernel_assembly(*with_source(planted))


@needs_compiler
def test_a_name_that_is_endless_when_written_out_stays_as_it_is() -> None:
    recording, kernel = with_source(
        "template<class A, class B> struct P {};\n"
        + "".join(f"typedef P<T{n}, T{n}> T{n + 1};\n" for n in range(25)).replace("T0", "int")
        + "void endless(T25) {}"
    )
    assert kernel_assembly(recording, kernel).links


def test_a_compiler_that_does_not_end_is_stopped() -> None:
    # Twice as many types at every level: 2 to the power of 60 in all.
    endless = (
        "template<unsigned N, unsigned long M> struct F { static const int v = "
        "F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };\n"
        "template<unsigned long M> struct F<0, M> { static const int v = 1; };\n"
        "int planted = F<60, 1>::v;"
    )
    with pytest.raises(ToolFailure, match=r"did not finish within 1 s|CPU time limit"):
        kernel_assembly(*with_source(endless), replace(LIMITS, seconds=1))


def test_source_that_does_not_compile_says_why_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(
        ToolFailure, match=r"exited with code 1: kernel\.cpp:1:2: error: #error planted"
    ):
        kernel_assembly(*with_source("#error planted"))
    assert list(tmp_path.iterdir()) == []


def test_other_kernels_have_no_assembly() -> None:
    recording = load(stored("h200_seed"))
    with pytest.raises(UsageError, match="Only C\\+\\+ kernels have assembly"):
        kernel_assembly(recording, recording.graphs[0].kernels[0])
    chained, kernel = chain()
    with pytest.raises(UsageError, match=r"does not say how .* was compiled"):
        kernel_assembly(replace(chained, natives=()), kernel)
