"""Filters that keep secrets in environment variables and command lines out of recordings.

People attach recordings to public bug reports, so only variables on this list are stored: the
variables that change what the compiler does, and where its tools and caches are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

ALLOWED_PREFIXES = (
    "AOTI_",
    "AOT_INDUCTOR_",
    "INDUCTOR_",
    "PYTORCH_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TORCH_",
    "TRITON_",
)

ALLOWED_NAMES = frozenset(
    {
        "CC",
        "CUDA_HOME",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_PATH",
        "CUDA_VISIBLE_DEVICES",
        "CXX",
        "GROUP_RANK",
        "HIP_VISIBLE_DEVICES",
        "KMP_AFFINITY",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "RANK",
        "ROCM_HOME",
        "WORLD_SIZE",
    }
)

# A name that looks like a secret is left out even if its prefix is allowed.
FORBIDDEN_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY")


SECRET_OPTION_WORDS = frozenset(
    {"token", "secret", "password", "passwd", "credential", "credentials", "apikey"}
)

# Replaces a secret.
HIDDEN = "(hidden)"

# URL schemes are short; without a limit, matching a long word takes quadratic time.
_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31}://)[^/@\s]+@")


def may_be_stored(name: str) -> bool:
    if any(word in name.upper() for word in FORBIDDEN_WORDS):
        return False
    return name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)


def storable(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: _without_credentials(environment[name])
        for name in sorted(environment)
        if may_be_stored(name)
    }


def without_secrets(words: Sequence[str]) -> list[str]:
    """Return a command line with the values of secret options removed."""
    kept: list[str] = []
    hide_next = False
    for word in map(str, words):
        name, equals, _ = word.partition("=")
        secret = name.startswith("-") and _is_secret(name)
        if hide_next:
            kept.append(HIDDEN)
        elif secret and equals:
            kept.append(f"{name}={HIDDEN}")
        else:
            kept.append(_without_credentials(word))
        hide_next = secret and not equals and not hide_next
    return kept


def _is_secret(option: str) -> bool:
    """Check whether an option is named like a secret: --hf-token is, --max-tokens is not."""
    words = re.split(r"[-_.]+", option.strip("-").lower())
    return not SECRET_OPTION_WORDS.isdisjoint(words) or "api_key" in "_".join(words)


def _without_credentials(text: str) -> str:
    return _CREDENTIALS.sub(rf"\1{HIDDEN}@", text)
