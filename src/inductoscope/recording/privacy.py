"""Which environment variables a recording may hold.

People attach recordings to public bug reports, so nothing is stored that is not on this list:
the variables that change what the compiler does, and where its tools and caches are.
"""

from __future__ import annotations

from collections.abc import Mapping

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

# A name that looks like a secret is left out even where its prefix is allowed.
FORBIDDEN_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY")


def may_be_stored(name: str) -> bool:
    """Whether the variable called `name` may be written into a recording."""
    if any(word in name.upper() for word in FORBIDDEN_WORDS):
        return False
    return name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)


def storable(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of `environment` that may be written into a recording."""
    return {name: environment[name] for name in sorted(environment) if may_be_stored(name)}
