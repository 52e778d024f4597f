"""The source of the program's functions, with dependencies: imports, values, functions."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import platform
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from inductoscope.errors import ToolFailure
from inductoscope.inside.search.input_recipes import recipes_for
from inductoscope.inside.search.user_kernels import function_of
from inductoscope.torch_facts.frames import is_users


class SourceParts:
    """The imports, values and functions that a function of the program needs in a script."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.values: list[str] = []
        self.functions: list[str] = []
        self._other_names: list[str] = []
        self._named: dict[str, Any] = {}

    def add_function(self, function: Any, name: str = "") -> str:
        """Add a function and its dependencies; raises `ToolFailure` if it cannot be copied.

        A lambda is renamed to `name`, if given. So is a function whose name is taken, such as `_`.
        Returns the function's name in the script.
        """
        if not isinstance(function, FunctionType) or function.__closure__:
            raise ToolFailure("the function is a method or a closure")
        known = next((name for name, each in self._named.items() if each is function), "")
        if known:
            return known
        own = function.__code__.co_name
        if own == "<lambda>":
            name = name or self._free_name("lambda", function)
        else:
            name = self._free_name(own, function) if own in self._named else own
        self._take_name(name, function)
        text = definition_text(function, name)
        self.functions.append(text)
        self._add_globals(function, names_in_defaults(text))
        return name

    def _free_name(self, like: str, function: FunctionType) -> str:
        names = (f"{like}_{number}" for number in count())
        return next(n for n in names if n not in self._named and n not in function.__globals__)

    def _take_name(self, name: str, item: Any) -> None:
        """Reserve a name; raises `ToolFailure` if it stands for another object already."""
        if self._named.setdefault(name, item) is not item:
            raise ToolFailure(f"the program has two definitions of {name}")

    def add_kernel(self, function: FunctionType) -> None:
        """Add the function of a Triton kernel, with its decorators."""
        if self._named.get(function.__name__) is function:
            return
        self._take_name(function.__name__, function)
        source = source_of(function)
        self.functions.append(source)
        for name in sorted(_names_in(ast.parse(source)) & function.__globals__.keys()):
            self._add(name, function.__globals__[name])

    def add_class(self, kind: type) -> None:
        """Add a class with its methods."""
        if self._named.get(kind.__name__) is kind:
            return
        self._take_name(kind.__name__, kind)
        self.functions.append(source_of(kind))
        methods = [item for item in vars(kind).values() if isinstance(item, FunctionType)]
        for method in methods:
            self._add_globals(method)
        known = methods[0].__globals__ if methods else {}
        for base in kind.__bases__:
            # The base is referenced as in the program: by a global name, or through its module.
            names = [name for name, value in known.items() if value is base]
            if names:
                self._add(names[0], base)
            else:
                self.imports.add(f"import {base.__module__}")

    @property
    def text(self) -> str:
        """The whole source except `import torch`, which every script has."""
        head = "\n".join([*sorted(self.imports - {"import torch"}), *self.values])
        return "\n\n\n".join(filter(None, [head, self.definitions]))

    @property
    def definitions(self) -> str:
        """All functions and classes, in reverse order, because dependencies are added last."""
        return "\n\n".join([*reversed(self.functions), *self._other_names]).rstrip()

    def _add_globals(self, function: FunctionType, more: Iterable[str] = ()) -> None:
        for name in sorted({*_names(function.__code__), *more}):
            if name in function.__globals__ and not name.startswith("__"):
                self._add(name, function.__globals__[name])

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, torch._ops._OpNamespace):
            self._add_value(f"{name} = torch.ops.{value.name}")
        elif isinstance(value, ModuleType):
            same = value.__name__ == name
            self.imports.add(f"import {name}" if same else f"import {value.__name__} as {name}")
        elif isinstance(value, PLAIN):
            self._add_value(f"{name} = {literal(value)}")
        elif isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            self._add_value(f"{name} = torch.ops.{value}")
        elif there := _place_in_library(value):
            module, own = there
            as_named = "" if own == name else f" as {name}"
            self.imports.add(f"from {module} import {own}{as_named}")
        elif isinstance(value, type):
            self.add_class(value)
        elif type(value).__module__.startswith("triton.runtime"):
            self.add_kernel(function_of(value))
        elif type(value).__module__.startswith("triton.language"):
            if not isinstance(getattr(value, "value", None), PLAIN):
                raise ToolFailure(f"the kernel uses {name}, which cannot be written down")
            self.imports.add("import triton.language")
            self._add_value(f"{name} = triton.language.constexpr({value.value!r})")
        else:
            self._add_named_function(name, value)

    def _add_named_function(self, name: str, function: Any) -> None:
        """Add a function under the name of a global variable, which may be an alias."""
        own = self.add_function(function, name)
        if own != name and self._named.get(name) is not function:
            self._take_name(name, function)
            self._other_names.append(f"{name} = {own}\n")

    def _add_value(self, line: str) -> None:
        if line not in self.values:
            self.values.append(line)


def _place_in_library(value: Any) -> tuple[str, str] | None:
    """Find the module of an installed package that has an object, and its name there.

    The object may be a function, a class, or a singleton such as the operations that a lowering
    calls.
    """
    # The class comes first, because torch's op namespaces have every attribute.
    for module_name in (type(value).__module__, getattr(value, "__module__", None) or ""):
        module = sys.modules.get(module_name)
        if module is not None and not is_users(getattr(module, "__file__", None) or ""):
            for name, other in vars(module).items():
                if other is value:
                    return module_name, name
    return None


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


# --- definitions ----------------------------------------------------------------------------------

# Types of values that a script can hold as literals.
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def source_of(item: Any) -> str:
    """Return the source of a function or a class; raises `ToolFailure` if it cannot be read."""
    try:
        # The code object is used, since inspect follows __wrapped__ to another function.
        return textwrap.dedent(inspect.getsource(getattr(item, "__code__", item)))
    except (OSError, TypeError) as error:
        raise ToolFailure("the source of the function cannot be read") from error


def definition_text(function: FunctionType, name: str) -> str:
    """Return the definition of a function or lambda under this name, without decorators.

    Annotations are removed, because they may refer to names of the function's file. A default is
    written as its value, since the names in its expression may be gone.
    """
    if function.__code__.co_name == "<lambda>":
        return _lambda_text(function, name)
    try:
        node = ast.parse(source_of(function)).body[0]
    except SyntaxError:
        node = None
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise ToolFailure("the source of the function cannot be told apart")
    if node.name != name and node.name in function.__code__.co_names:
        raise ToolFailure(f"the program has two definitions of {node.name}")
    node.name, node.decorator_list = name, []
    _write_defaults(function, node.args)
    return ast.unparse(_WithoutAnnotations().visit(node)) + "\n"


class _WithoutAnnotations(ast.NodeTransformer):
    """Removes annotations, also from nested functions, whose definitions are executed."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef


def _write_defaults(function: FunctionType, arguments: ast.arguments) -> None:
    """Replace the expressions of defaults by their values, where these are plain."""
    values = function.__defaults__ or ()
    by_name: Mapping[str, Any] = function.__kwdefaults__ or {}
    names = [each.arg for each in arguments.kwonlyargs]
    named = {n: node for n, node in zip(names, arguments.kw_defaults, strict=True) if node}
    if len(values) != len(arguments.defaults) or by_name.keys() != named.keys():
        raise ToolFailure("the function has other defaults than its source")

    def written(node: ast.expr, value: Any) -> ast.expr:
        if isinstance(value, PLAIN):
            return ast.parse(literal(value), mode="eval").body
        if not _names_in(node) <= {*function.__globals__, *dir(builtins)}:
            raise ToolFailure(f"the function has a default of type {type(value).__name__}")
        return node

    arguments.defaults = list(map(written, arguments.defaults, values))
    arguments.kw_defaults = [
        node and written(node, by_name[name])
        for name, node in zip(names, arguments.kw_defaults, strict=True)
    ]


def names_in_defaults(text: str) -> set[str]:
    """Return the names that a definition evaluates at once, in its defaults."""
    node: Any = ast.parse(text).body[0]
    given = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    return set().union(*map(_names_in, given))


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _lambda_text(function: FunctionType, name: str) -> str:
    """Return a lambda as a function; several lambdas may share its source line."""
    code = function.__code__
    try:
        file = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        file = ast.Module([], [])
    lambdas = [node for node in ast.walk(file) if isinstance(node, ast.Lambda)]
    at_line = [node for node in lambdas if node.lineno == code.co_firstlineno]
    alike = [node for node in at_line if _parts_of(_code_of(node)) == _parts_of(code)]
    # The bytecode of a call depends on the rest of the file, so instructions may differ.
    exact = [node for node in alike if _code_of(node).co_code == code.co_code]
    found = set()
    for node in exact or alike:
        _write_defaults(function, node.args)
        found.add(f"def {name}({ast.unparse(node.args)}):\n    return {ast.unparse(node.body)}\n")
    if len(found) != 1:
        raise ToolFailure("the function is a lambda whose source cannot be told apart")
    return found.pop()


def _code_of(node: ast.Lambda) -> CodeType:
    whole = compile(ast.Expression(node), "<lambda>", "eval")
    # A default may be a lambda too; its code comes before.
    return [part for part in whole.co_consts if isinstance(part, CodeType)][-1]


def _parts_of(code: CodeType) -> list[Any]:
    """Return the names and constants of a code object; constants as text, since 1 equals True."""
    inner = [_parts_of(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return [code.co_names, code.co_varnames, code.co_argcount, code.co_kwonlyargcount, inner]


# --- Writes constants as Python code --------------------------------------------------------------


def literal(value: Any) -> str:
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float('{value}')"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.nn.attention.SDPBackend):
        return f"torch.nn.attention.{value}"
    text = repr(value)
    if text.startswith("<"):
        raise ToolFailure(f"the graph holds {text}, which cannot be written as Python code")
    return text


# --- Writes a function of the user as a script, for failures before there is any graph ------------
#
# The source of the function is copied with what it uses: modules, plain values, other functions of
# the same file. What cannot be copied (closures, methods) is refused.


def function_script(
    function: Callable[..., Any], arguments: Sequence[Any], *, fullgraph: bool, title: str
) -> str:
    """Return a script of the function, inputs of the same form, and a failing compiled call."""
    parts = SourceParts()
    name = parts.add_function(function)
    recipes = [_recipe(value) for value in arguments]
    packed = ["base64", "zlib"] if any("zlib." in recipe for recipe in recipes) else []
    imports = [f"import {name}" for name in packed] + sorted({*parts.imports, "import torch"})
    head = " ".join(title.split()).replace('"""', "'''").replace("\\", "/")
    return _FUNCTION_SCRIPT.format(
        head=head,
        versions=f"torch {torch.__version__}, Python {platform.python_version()}",
        system=platform.system(),
        imports="\n".join([*imports, *parts.values]),
        definitions=parts.definitions,
        inputs="\n".join(f"        {recipe}," for recipe in recipes),
        name=name,
        options=", fullgraph=True" if fullgraph else "",
    )


_FUNCTION_SCRIPT = '''\
"""{head}

{versions}, {system}. Exits with 1 if it fails.
"""

{imports}


{definitions}


def inputs():
    torch.manual_seed(0)
    return [
{inputs}
    ]


if __name__ == "__main__":
    {name}(*inputs())
    print("eager: ok")
    torch.compile({name}{options})(*inputs())
    print("compiled: ok")
'''


def _recipe(value: Any) -> str:
    if not isinstance(value, (*PLAIN, torch.Tensor, list, tuple)):
        raise ToolFailure(f"an argument is a {type(value).__name__}")
    every = list(recipes_for(value))
    # Values hardly ever matter to Dynamo, and a run of the script makes sure.
    text = next((text for text in every if "randn" in text), every[-1])
    if not text:
        raise ToolFailure("an argument is too large to be written into a script")
    return text
