"""Start-up hook of the scope: Python imports it in every process of the recorded program.

It gives way to a `sitecustomize` of the user's own, leaves `sys.path` as it found it, and waits for
torch to be imported. A process that never does pays for these few lines alone, unless an exception
ends it. It is written so that an older Python, which the program may start as well, reads it too.
"""

import atexit
import os
import sys


def _chain(here):
    """Import the sitecustomize that would have been imported without us."""
    sys.path[:] = [entry for entry in sys.path if not _is(entry, here)]
    sys.path_importer_cache.pop(here, None)
    # While this import is under way Python wants an entry under this name: ours, or the user's.
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


def _is(entry, here):
    try:
        return os.path.abspath(entry or ".") == here
    except OSError:  # A relative entry in a folder that is gone.
        return False


class _WaitForTorch:
    """A finder that starts the scope when torch is asked for, and then is gone."""

    def __init__(self, root, folder):
        self._root = root
        self._folder = folder

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        try:
            return _start(self._root, self._folder).find_spec(name, path, target)
        except Exception:
            return None  # The recording will say that no process reported; the program goes on.


def _start(root, folder):
    """Begin to record."""
    return _load(root, "inside.start").start(folder)


def _start_late(root, folder):
    """Begin to record though the user's own hook has imported torch: nothing is compiled yet."""
    try:
        _start(root, folder)
    except Exception:
        return  # The recording will say that no process reported; the program goes on.


def _record_early_failure(waiting, root, folder):
    """An exception that ended the program before it asked for torch."""
    if getattr(sys, "last_value", None) is not None and waiting in sys.meta_path:
        try:
            _load(root, "inside.uncaught").record_early_failure(folder)
        except Exception:
            return  # What the program printed says it too.


def _load(root, name):
    """A module of inductoscope, which is loaded by its place, not through sys.path."""
    import importlib
    import importlib.util

    if "inductoscope" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "inductoscope",
            os.path.join(root, "__init__.py"),
            submodule_search_locations=[root],
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules["inductoscope"] = module
        spec.loader.exec_module(module)
    return importlib.import_module("inductoscope." + name)


_here = os.path.dirname(os.path.abspath(__file__))
try:
    # What the user's own hook raises is the user's, as it would be without us.
    _chain(_here)
finally:
    _folder = os.environ.get("INDUCTOSCOPE_RECORDING")
    _root = os.path.dirname(os.path.dirname(_here))
    if _folder and "torch" in sys.modules:
        _start_late(_root, _folder)
    elif _folder:
        _waiting = _WaitForTorch(_root, _folder)
        sys.meta_path.insert(0, _waiting)
        if not os.environ.get("INDUCTOSCOPE_INSIDE"):
            atexit.register(_record_early_failure, _waiting, _root, _folder)
