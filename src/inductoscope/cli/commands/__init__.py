"""One file per command; its `command` is imported when it is asked for."""
