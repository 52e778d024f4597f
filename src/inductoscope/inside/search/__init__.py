"""From a failure to its cause: candidates, an oracle that judges them, and searches."""
