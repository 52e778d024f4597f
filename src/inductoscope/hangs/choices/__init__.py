"""Compiles that never end: what separates stuck configurations from finished ones, and workarounds.

Works on configurations alone; nothing here imports torch or inspects processes.
"""
