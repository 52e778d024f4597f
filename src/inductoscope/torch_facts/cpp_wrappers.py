"""The C++ wrapper of a compiled graph, rewritten so that it reports what it does.

AOTInductor and `cpp_wrapper=True` generate C++ that calls the kernels. The source is changed before
it is compiled, to announce every kernel call, to report every buffer of the call, and to allocate
buffers through us. `cpp_reports` is the receiving end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

# The receiver: a capsule with this name, in the module of this name.
CAPSULE = "inductoscope.inside.compare.cpp_reports.CALLS"

# No Python, or no inductoscope in it: then the wrapper does what it always did.
_PREAMBLE = r"""
// --- added by inductoscope ---
#include <dlfcn.h>
#include <initializer_list>
#include <stdexcept>
#include <type_traits>
#include <vector>
namespace inductoscope {
struct Calls {
  int (*begin)(const char*, int64_t, AtenTensorHandle*, int64_t, const char**, AtenTensorHandle*);
  int (*before)(const char*, const char*);
  int (*after)(const char*, const char*, int64_t, const char**, AtenTensorHandle*);
  int (*allocate)(const char*, const char*, int64_t, const int64_t*, const int64_t*,
                  AtenTensorHandle, AtenTensorHandle*);
};
inline void check(int code) {
  if (code != 0) throw std::runtime_error("inductoscope ended this run");
}
inline const Calls* find_calls() {
  auto ensure = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  auto release = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
  auto load = (void* (*)(const char*, int))dlsym(RTLD_DEFAULT, "PyCapsule_Import");
  auto clear = (void (*)())dlsym(RTLD_DEFAULT, "PyErr_Clear");
  auto is_ready = (int (*)())dlsym(RTLD_DEFAULT, "Py_IsInitialized");
  if (!ensure || !release || !load || !clear || !is_ready || !is_ready()) return nullptr;
  int state = ensure();
  void* found = load("CAPSULE", 0);
  if (!found) clear();
  release(state);
  return (const Calls*)found;
}
inline const Calls* calls() {
  static const Calls* found = find_calls();
  return found;
}
inline AtenTensorHandle shared(AtenTensorHandle handle) {
  AtenTensorHandle made = nullptr;
  if (handle) AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(handle, &made));
  return made;
}
struct Buffer {
  const char* name;
  AtenTensorHandle handle;
  template <class T>
  Buffer(const char* name, const T& value) : name(name) {
    if constexpr (std::is_convertible_v<const T&, AtenTensorHandle>) {
      handle = shared(value);
    } else {
      handle = value.borrowAsTensor();  // A buffer on the stack.
    }
  }
};
struct Named {
  std::vector<const char*> names;
  std::vector<AtenTensorHandle> handles;
  Named(std::initializer_list<Buffer> buffers) {
    for (const auto& buffer : buffers) {
      names.push_back(buffer.name);
      handles.push_back(buffer.handle);
    }
  }
  void drop() { for (auto handle : handles) aoti_torch_delete_tensor_object(handle); }
};
inline void begin(const char* wrapper, AtenTensorHandle* inputs, int64_t count,
    std::initializer_list<Buffer> constants) {
  Named held(constants);
  if (!calls()) return held.drop();
  std::vector<AtenTensorHandle> handles;
  for (int64_t i = 0; i < count; ++i) handles.push_back(shared(inputs[i]));
  check(calls()->begin(wrapper, count, handles.data(), held.names.size(), held.names.data(),
                       held.handles.data()));
}
inline void before(const char* wrapper, const char* kernel) {
  if (calls()) check(calls()->before(wrapper, kernel));
}
inline void after(const char* wrapper, const char* kernel, std::initializer_list<Buffer> buffers) {
  Named got(buffers);
  if (!calls()) return got.drop();
  check(calls()->after(wrapper, kernel, got.names.size(), got.names.data(), got.handles.data()));
}
inline AOTITorchError empty_strided(const char* wrapper, const char* name, int64_t ndim,
    const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device_type,
    int32_t device_index, AtenTensorHandle* made) {
  if (calls()) {
    static const int64_t none[] = {0}, one[] = {1};
    AtenTensorHandle like = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_empty_strided(1, none, one, dtype, device_type, device_index, &like));
    *made = nullptr;
    check(calls()->allocate(wrapper, name, ndim, sizes, strides, like, made));
    if (*made) return 0;
  }
  return aoti_torch_empty_strided(ndim, sizes, strides, dtype, device_type, device_index, made);
}
}  // namespace inductoscope
// --- end of what inductoscope added ---
""".replace("CAPSULE", CAPSULE)

_INCLUDE = re.compile(r"^#include <torch/csrc/inductor/(?:aoti_include|cpp_wrapper)/.*>$", re.M)
_ENTRY = re.compile(
    r"^void (?:\w+::run_impl|inductor_entry_impl)\($.*?^\) \{$(?P<body>.*?)"
    r"^\} // (?:\w+::run_impl|inductor_entry_impl)$",
    re.M | re.S,
)
_INPUTS = re.compile(r"steal_from_raw_handles_to_raii_handles\(input_handles, (\d+)\)")
_CONSTANT = re.compile(r"\bauto&? (\w+) = (constants_->at\(\d+\));")
_ALLOCATION = re.compile(r"\baoti_torch_empty_strided\((.*, &(\w+?)_handle)\)")

_CHECKED = re.compile(r"^(?:AOTI_TORCH_ERROR_CODE_CHECK\()?((?:\w+::|\w+\.)*\w+)\(.*\);")
# An operator that is called by its name, in a block of its own.
_CALL_BY_NAME = re.compile(
    r"aoti_torch_call_dispatcher\(|\.callBoxed\(|PyObject_CallObject\(custom_op_wrapper"
)
_NAME_IN_CALL = re.compile(
    r"(?:aoti_torch_call_dispatcher|findSchemaOrThrow|PyUnicode_FromString)\(\s*\"([\w:.]+)\""
)
_PROXY = re.compile(r"aoti_torch_proxy_executor_call_function\(proxy_executor, (\d+),")
_BUFFER = re.compile(r"\b(buf\d+)(_handle|_as_strided)?\b")
_ALIAS = re.compile(r"^(?:const )?auto[*&]? (\w+) = (.*);")
_RAW_STRING = re.compile(r'R"\((?!.*\)")')

# Functions of torch's C interface that are no operators.
_NO_OPERATORS = re.compile(
    r"aoti_torch_(?:empty_strided|get_|item_|new_|delete_|create_|assign_|scalar_to_tensor_|"
    r"as_strided|_reinterpret_tensor|_alloc_from_pool|check|print_|save_|is_|device_|dtype|"
    r"\w+_guard|tensor_to_ivalue|\w+_caching_allocator|grad_mode)"
)


@dataclass(frozen=True)
class ReportingWrapper:
    text: str
    # Distinguishes its reports from those of other wrappers.
    name: str
    # The buffers of each report.
    reports: list[list[str]] = field(default_factory=list)


def with_reports(
    text: str, written: Sequence[str] = (), by_proxy: Sequence[str] = ()
) -> ReportingWrapper | None:
    """Instrument a wrapper to report every kernel; None if its text has another form.

    Inputs that are `written` are reported like buffers. `by_proxy` names the operators that an
    AOTInductor model calls through its executor.
    """
    entry = _ENTRY.search(text)
    inputs = _INPUTS.search(text, entry.start()) if entry else None
    if entry is None or inputs is None:
        return None
    name = _name(text)
    body = _Body(name, tuple(written), tuple(by_proxy))
    body.read(entry["body"].split("\n"))
    held = ", ".join(f'{{"{key}", {value}}}' for key, value in _CONSTANT.findall(entry["body"]))
    begin = f'\n    inductoscope::begin("{name}", input_handles, {inputs[1]}, {{{held}}});'
    whole = text[: entry.start("body")] + begin + "\n".join(body.lines) + text[entry.end("body") :]
    changed = _with_preamble(whole)
    return None if changed is None else ReportingWrapper(changed, name, body.reports)


def with_allocator(text: str) -> ReportingWrapper | None:
    """Make a wrapper allocate buffers through us; None if its text has another form."""
    entry = _ENTRY.search(text)
    if entry is None:
        return None
    name = _name(text)
    body = _ALLOCATION.sub(rf'inductoscope::empty_strided("{name}", "\2", \1)', entry["body"])
    changed = _with_preamble(text[: entry.start("body")] + body + text[entry.end("body") :])
    return None if changed is None else ReportingWrapper(changed, name)


def _name(text: str) -> str:
    # The same text gives the same name, so that what was built of it is found again.
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _with_preamble(text: str) -> str | None:
    if "namespace inductoscope {" in text:
        return text
    include = _INCLUDE.search(text)
    if include is None:
        return None
    return text[: include.end()] + "\n" + _PREAMBLE + text[include.end() :]


class _Body:
    """The statements of a wrapper, one by one, with report calls inserted between them."""

    def __init__(self, wrapper: str, written: Sequence[str], by_proxy: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.reports: list[list[str]] = []
        self._wrapper = wrapper
        self._written = written
        self._by_proxy = by_proxy
        # Variables that stand for (views of) buffers.
        self._aliases: dict[str, list[str]] = {}

    def read(self, lines: Sequence[str]) -> None:
        number = 0
        while number < len(lines):
            end = _end_of_statement(lines, number)
            self._add(lines[number:end])
            number = end

    def _add(self, lines: Sequence[str]) -> None:
        statement = "\n".join(lines)
        kernel = self._kernel(statement.strip(), is_block=len(lines) > 1)
        alias = _ALIAS.match(statement.strip())
        if alias and not _BUFFER.fullmatch(alias[1]):
            self._aliases[alias[1]] = list(self._buffers(alias[2]))
        if not kernel:
            self.lines += lines
            return
        buffers = self._buffers(statement)
        given = ", ".join(f'{{"{name}", {handle}}}' for name, handle in buffers.items())
        self.lines.append(f'    inductoscope::before("{self._wrapper}", "{kernel}");')
        self.lines += lines
        self.lines.append(f'    inductoscope::after("{self._wrapper}", "{kernel}", {{{given}}});')
        self.reports.append(list(buffers))

    def _kernel(self, statement: str, *, is_block: bool) -> str:
        if is_block:
            named = _NAME_IN_CALL.search(statement) if _CALL_BY_NAME.search(statement) else None
            return named[1] if named else ""
        proxy = _PROXY.search(statement)
        if proxy:
            number = int(proxy[1])
            return self._by_proxy[number] if number < len(self._by_proxy) else f"operator {number}"
        call = _CHECKED.match(statement)
        if call is None:
            return ""
        name = call[1]
        if name.startswith("aoti_torch_"):
            return "" if _NO_OPERATORS.match(name) else name
        if name.startswith(("cpp_", "call_", "kernels.")) or ".data_ptr()" in statement:
            return name.removeprefix("kernels.").removeprefix("call_")
        return ""

    def _buffers(self, statement: str) -> dict[str, str]:
        """Return the buffers that a statement mentions, each with an expression for its handle."""
        found: dict[str, str] = {}
        for match in _BUFFER.finditer(statement):
            handle = match[0] if match[2] == "_handle" else match[1]
            found.setdefault(match[1], handle)
        for word in re.findall(r"\w+", statement):
            known = [word] if word in self._written else self._aliases.get(word, [])
            found.update((name, name) for name in known if name not in found)
        return found


def _end_of_statement(lines: Sequence[str], start: int) -> int:
    """Return the index of the line after a statement: one line, a block that calls an operator by
    name, or a multi-line expression.
    """
    line = lines[start]
    if _RAW_STRING.search(line):
        ends = (number for number in range(start + 1, len(lines)) if ')"' in lines[number])
        return next(ends, start) + 1
    if line.strip() != "{":
        return start + 1
    closing = line.replace("{", "}")
    ends = (number for number in range(start + 1, len(lines)) if lines[number] == closing)
    end = next(ends, start) + 1
    return end if _CALL_BY_NAME.search("\n".join(lines[start:end])) else start + 1
