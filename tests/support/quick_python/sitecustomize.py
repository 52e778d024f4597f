"""Python that collects garbage less often, and does not do again what another process has done.

Programs under test have this folder on their PYTHONPATH. Of a program that compiles something
small, going through all the objects of torch for garbage takes a fifth of the time, and a fourth
is for things that come out the same in every process: digests of all files of Triton and of all
sources of torch, the code of the compiler's templates, and which vector instructions the C++
compiler can use. These are kept, where the tests name a folder for it. Garbage is still collected,
and everything that runs at exit runs.
"""

import atexit
import functools
import gc
import hashlib
import importlib.abc
import importlib.util
import marshal
import os
import sys

gc.set_threshold(500_000, 5, 100)


def _end():
    gc.freeze()
    # Modules go in another order than usual, and finalizers complain of missing ones.
    sys.unraisablehook = lambda _: None


def _kept(subject, compute):
    """The bytes that `compute` gave to the first process that asked for this subject."""
    name = hashlib.sha256(repr(subject).encode()).hexdigest()
    path = os.path.join(os.environ["QUICK_PYTHON_KEPT"], name)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        content = compute()
    try:
        with open(f"{path}.{os.getpid()}", "wb") as file:
            file.write(content)
        os.replace(file.name, path)  # In one step: others may be looking.
    except OSError:
        pass  # The program has a folder of its own, or no disk to write to.
    return content


def _version(path):
    """Tells an installed file from others of its name."""
    return path, os.stat(path).st_mtime_ns


def _freeze(_module):
    """Objects that an import of torch creates stay: half a million objects."""
    gc.freeze()


def _trust(vec_isa):
    """TORCHINDUCTOR_VEC_ISA_OK holds for every instruction set.

    For some of those that only new processors have, torch starts the compiler all the same.
    """
    vec_isa.VecISA.check_build = lambda self, code: True


class _RefusedError(Exception):
    """The compiler cannot build for an instruction set."""


def _keep_instruction_sets(vec_isa):
    check_build = vec_isa.VecISA.check_build

    def check_once(self, code):
        def compute():
            if not check_build(self, code):
                raise _RefusedError  # It is asked again.
            return b"builds"

        compiler = (os.environ.get("CXX"), os.environ.get("PATH"), vec_isa.config.cpp.cxx)
        subject = (_version(vec_isa.__file__), str(self), self.build_arch_flags(), code, compiler)
        try:
            return bool(_kept(subject, compute))
        except _RefusedError:
            return False

    vec_isa.VecISA.check_build = check_once


def _keep_key_of_triton(cache):
    compute = cache.triton_key

    @functools.lru_cache
    def triton_key():
        return _kept(_version(cache.__file__), lambda: compute().encode()).decode()

    cache.triton_key = triton_key


def _keep_key_of_torch(codecache):
    compute = codecache.torch_key
    codecache.torch_key = codecache.torch_key_cache(
        lambda: _kept(_version(codecache.__file__), compute)
    )


def _keep_templates(environment):
    compile_template = environment.Environment.compile

    def compile_or_remember(self, source, *more, **named):
        # torch's own templates have no name, and an environment without anything special.
        if more or named or not isinstance(source, str) or self.extensions:
            return compile_template(self, source, *more, **named)
        settings = [self.autoescape, self.optimized, self.is_async, *sorted(self.filters)]
        for setting in ("block", "variable", "comment"):
            settings += [getattr(self, f"{setting}_{end}_string") for end in ("start", "end")]
        settings += [self.line_statement_prefix, self.line_comment_prefix, self.trim_blocks]
        settings += [self.lstrip_blocks, self.newline_sequence, self.keep_trailing_newline]
        compute = functools.partial(compile_template, self, source)
        subject = (_version(environment.__file__), sys.version, source, *settings)
        return marshal.loads(_kept(subject, lambda: marshal.dumps(compute())))

    environment.Environment.compile = compile_or_remember


class _Changes(importlib.abc.MetaPathFinder):
    """Changes modules when they are imported."""

    def __init__(self, changes):
        self._left = changes

    def find_spec(self, name, path, target=None):
        change = self._left.pop(name, None)
        spec = importlib.util.find_spec(name) if change else None
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            change(module)

        spec.loader.exec_module = execute_and_change
        return spec


_changes = {"torch": _freeze, "torch._dynamo": _freeze, "torch._inductor.compile_fx": _freeze}
if "QUICK_PYTHON_KEPT" in os.environ:
    _changes["torch._inductor.cpu_vec_isa"] = _keep_instruction_sets
    _changes["triton.runtime.cache"] = _keep_key_of_triton
    _changes["torch._inductor.codecache"] = _keep_key_of_torch
    _changes["jinja2.environment"] = _keep_templates
if os.environ.get("TORCHINDUCTOR_VEC_ISA_OK") == "1":
    _changes["torch._inductor.cpu_vec_isa"] = _trust
sys.meta_path.insert(0, _Changes(_changes))
atexit.register(_end)  # The first one is called last.
