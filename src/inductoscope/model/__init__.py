"""What a recording says, as frozen dataclasses: a pure fold over its events.

The joins between stages live here and nowhere else. Nothing here imports torch.
"""
