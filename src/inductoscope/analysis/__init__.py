"""Conclusions drawn from a recording: rules, the fusion ledger, differences between two runs."""
