"""Repro."""
