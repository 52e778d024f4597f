"""The sentinel for long training: shadows random calls and tests their signed error for bias."""
