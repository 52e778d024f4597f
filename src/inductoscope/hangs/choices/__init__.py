"""Compiles that never end: what separates stuck configurations from finished ones, and workarounds.

Pure work on configurations; nothing here imports torch or looks at processes.
"""
