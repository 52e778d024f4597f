"""Checks of the machine and the installed torch for all that inductoscope relies on."""
