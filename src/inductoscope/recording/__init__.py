"""The record on disk: append-only event streams beside content-addressed payload files.

The format is described in docs/recording-format.md. Nothing here imports torch, and the writing
half imports only the standard library, because it runs inside the user's process.
"""
