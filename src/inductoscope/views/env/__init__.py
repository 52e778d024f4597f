"""The machine, the installed torch, and whether everything inductoscope relies on exists."""
