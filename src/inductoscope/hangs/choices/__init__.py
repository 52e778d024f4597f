"""Compiles that never end: what tells stuck configurations from finished ones, and a way past.

Pure work on configurations; nothing here imports torch or looks at processes.
"""
