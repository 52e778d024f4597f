"""A package of a stranger may hold any text: reading it ends soon, with a sentence if need be."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path

import pytest

from inductoscope.errors import UnreadablePackage
from inductoscope.packages.package import read_package
from inductoscope.torch_facts.package_wrappers import InputFacts, WrapperText, broken, read_wrapper
from support.examples import inductoscope

SMALL = Path(__file__).parents[1] / "data" / "packages" / "small.pt2"
LENGTH = 200_000
BODY = "void AOTInductorModel::run_impl(\n"

# Pieces of text that a careless pattern would begin a search at, over and over.
PIECES = {
    "blank lines": "\n",
    "blanks": " ",
    "tabs": "\t",
    "symbols without an end": "int64_t a = b\n",
    "symbols in one line": "int64_t a = ",
    "constants in one line": "constants_info_[0].a = ",
    "constants": "constants_info_[0].a = ;;;;\n",
    "base class": ": AOTInductorModelBase(",
    "base class, then blanks": ": AOTInductorModelBase(std::move(cubin_dir), \n",
    "operators": "Original ATen: [",
    "written": "cpp_a(a:",
    "written in one line": "a:a*)(a.",
    "in_spec": 'in_spec_ = R"(',
    "names": 'inputs_info_[1].name = "',
    "dtypes": "int32_t a_expected",
    "sizes": "if (1 != a_size[",
    "asserted": "assert_size_stride(a, {",
    "aligned": "reinterpret_cast<std::uintptr_t>(a",
    "functions": "aoti_torch_cpu_a ",
    "command": "// Compile cmd\n// -a -a -a\n",
    "letters": "a",
    "digits": "1",
    "underscores": "_size_stride",
}


def seconds_for(text: str) -> tuple[float, WrapperText]:
    start = time.process_time()
    found = read_wrapper(text)
    assert isinstance(found.compile_flags, tuple)
    return time.process_time() - start, found


@pytest.mark.parametrize("name", ["²", "٣", "12"])
def test_an_operator_may_have_any_name(name: str) -> None:
    """A number in the place of a name is no place in a list."""
    (call,) = read_wrapper(f'{BODY}    aoti_torch_call_dispatcher("{name}", "", x);\n').calls
    assert (call.name, call.operator) == (name, None)
    text = f"{BODY}    aoti_torch_proxy_executor_call_function(proxy_executor, {name}, 0);\n"
    assert [call.operator for call in read_wrapper(text).calls] == [12] * (name == "12")


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES.keys())
def test_no_text_takes_long(piece: str) -> None:
    repeated = piece * (LENGTH // len(piece))
    for text in (repeated, BODY + repeated, f"{BODY}    cpp_kernel({repeated}", f"if ({repeated}"):
        assert seconds_for(text)[0] < 1


def test_a_long_command_is_split_soon() -> None:
    taken, _ = seconds_for(f"// Compile cmd\n// {'a' * LENGTH}\n")
    assert taken < 1


def test_numbers_of_thousands_of_digits_are_passed_over() -> None:
    number = "9" * 5000
    text = (
        f'inputs_info_[{number}].name = "x";\ninputs_info_[0].name = "y";\n'
        f"if ({number} != y_size[0])\nif (y_size[{number}] < 3)\nif (y_size[999999999] < 3)\n"
        f"constants_info_[{number}].name = 1;\nconstants_info_[0].data_size = {number};\n"
        f"{BODY}aoti_torch_proxy_executor_call_function(proxy_executor, {number}\n"
    )
    found = read_wrapper(text)
    assert [guard.name for guard in found.guards.inputs] == ["y"]
    assert found.guards.inputs[0].sizes == {}


def test_a_symbol_that_means_itself() -> None:
    text = (
        'inputs_info_[0].name = "x";\ninputs_info_[1].name = "y";\n' + BODY + "    "
        "int64_t s0 = s1;\n    int64_t s1 = s0;\n    int64_t y_size_0 = y_size_0;\n"
        'assert_size_stride(x, {y_size_0}, {1L}, "input");\n'
    )
    one, two = (InputFacts("float32", (size,), (1,), "cpu") for size in (3, 4))
    (wrong,) = broken(read_wrapper(text).guards, (one, two))
    assert wrong.text.endswith("the package accepts 4 here, which is y_size_0")


def test_a_comparison_inside_a_call_is_no_bracket() -> None:
    text = (
        'inputs_info_[0].name = "x";\n' + BODY + "    "
        'assert_size_stride(x, {std::max(s0 > 1L, s1), 4L}, {4L, 1L}, "input");\n'
    )
    (guard,) = read_wrapper(text).guards.inputs
    assert guard.size_expressions == ("std::max(s0 > 1L, s1)", "4L")


def with_text(target: Path, end: str, text: str) -> Path:
    """The stored package, with another text in the member of this name."""
    with zipfile.ZipFile(SMALL) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, text if name.endswith(end) else old.read(name))
        if not any(name.endswith(end) for name in old.namelist()):
            new.writestr(f"small/data/aotinductor/model/{end}", text)
    return target


@pytest.mark.parametrize("weights", ['{"a": []}', '{"a": 1}', "[]", "{", "[" * 100_000])
def test_a_list_of_weights_of_another_shape_is_passed_over(weights: str, tmp_path: Path) -> None:
    package = read_package(with_text(tmp_path / "m.pt2", "weights_config.json", weights))
    assert package.models[0].weights_files == {}


def test_a_wrapper_of_32_megabytes_is_refused(tmp_path: Path) -> None:
    target = with_text(tmp_path / "large.pt2", "wrapper.cpp", " " * ((32 << 20) + 1))
    answer = inductoscope("aoti", target)
    assert answer.exit_code == 2
    assert "too many for a text" in answer.stderr


@pytest.mark.parametrize("error", [ValueError, IndexError, KeyError, TypeError, RecursionError])
def test_whatever_the_reader_trips_over_is_an_unreadable_package(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def trip(text: str) -> WrapperText:
        raise error("planted")

    monkeypatch.setattr("inductoscope.packages.package.read_wrapper", trip)
    with pytest.raises(UnreadablePackage, match="is damaged: something in it is not as torch"):
        read_package(SMALL)


def test_many_folders_are_read_as_fast_as_few(tmp_path: Path) -> None:
    """Each of them names a model, and none is looked for among all members."""
    path = tmp_path / "many.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("many/archive_format", "pt2")
        for number in range(20_000):
            archive.writestr(f"many/data/aotinductor/m{number}/weights_config.json", "{}")
    start = time.process_time()
    assert len(read_package(path).models) == 20_000
    assert time.process_time() - start < 10
