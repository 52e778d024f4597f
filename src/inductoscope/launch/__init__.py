"""Starts the user's program with the recorder inside, and tidies up after it."""
