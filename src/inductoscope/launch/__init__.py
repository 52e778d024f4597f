"""Start of the user's program with the recorder inside, and cleanup after it."""
