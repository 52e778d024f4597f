"""inductoscope: a debugger for Inductor, the default compiler behind torch.compile."""

from inductoscope.version import __version__

__all__ = ["__version__"]
