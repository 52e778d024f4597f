"""The data model of a recording: frozen dataclasses, built by a pure fold over its events.

The joins between stages live here and nowhere else. Nothing here imports torch.
"""
