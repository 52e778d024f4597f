"""Start-up hook of the scope: Python imports it in every process of the recorded program.

It gives way to a `sitecustomize` of the user's own, loads the scope from where it is installed
(which may be another environment than the program's) and leaves `sys.path` as it found it.
"""

import os
import sys


def _chain(here):
    """Run the sitecustomize that would have been imported without us."""
    import importlib.util

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    sys.path_importer_cache.pop(here, None)
    # While this import is under way Python wants an entry under this name: ours, or the user's.
    ours = sys.modules.pop("sitecustomize", None)
    try:
        spec = importlib.util.find_spec("sitecustomize")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.loader is None:
        sys.modules["sitecustomize"] = ours
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start(root, folder):
    """Load inductoscope by its place, not through sys.path, and begin to record."""
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
    from inductoscope.capture.inside import start

    start(folder)


_here = os.path.dirname(os.path.abspath(__file__))
try:
    # What the user's own hook raises is the user's, as it would be without us.
    _chain(_here)
finally:
    _folder = os.environ.get("INDUCTOSCOPE_RECORDING")
    if _folder:
        try:  # noqa: SIM105
            _start(os.path.dirname(os.path.dirname(_here)), _folder)
        except Exception:
            pass  # The recording will say that no process reported; the program goes on.
