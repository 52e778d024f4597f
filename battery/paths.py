"""Texts without the folders of the machine that they were written on."""

from __future__ import annotations

import re

_PACKAGES = ("transformers", "timm", "diffusers", "torchvision", "torch", "battery")
_FOLDER = re.compile(rf"/\S*?/(?=(?:{'|'.join(_PACKAGES)})/)")


def without_folders(text: str) -> str:
    """File names begin with their package."""
    return _FOLDER.sub("", text)
