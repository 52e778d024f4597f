"""Time of every kernel, and the least that the machine needs for it."""
