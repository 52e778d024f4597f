"""A decision of the compiler that can be made otherwise, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inductoscope.profiling.overruling import overruling
from inductoscope.profiling.turns import Variant


@dataclass(frozen=True)
class Flip:
    """One change, why it may help, and what it should save."""

    # What a user writes to make the change.
    change: str
    # Why it is worth trying: what a rule found, or what the graphs show.
    why: str
    # The rule that speaks for it, and the user's line; empty where there is none.
    rule: str = ""
    source: str = ""
    # Settings of torch._inductor.config; `overrules` if the program itself sets them.
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrules: bool = False
    # Statements to execute once torch is imported, and variables of the environment.
    code: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    # Seconds per run of the program that it should save, and how that was computed.
    predicted: float | None = None
    prediction: str = ""
    # The share of the time of compiled calls that should be left with it, where that is what is
    # known: then the seconds follow once the program has been timed.
    left: float | None = None
    # The same as a multiple of eager's time, for what is left to eager.
    of_eager: float | None = None
    # Whether it avoids compiles, so that only runs that compile can show what it saves.
    avoids_compiles: bool = False
    # Whether it makes compiles shorter, not fewer.
    shortens_compiles: bool = False
    # Whether it makes eager faster, too.
    changes_eager: bool = False
    # Whether it leaves an operation to eager: then it should be as fast as eager.
    leaves_to_eager: bool = False
    # What a user writes, where that is not what the trial executes.
    pasted: str = ""
    # Torch's own words, if it calls the change unsafe. Then it is shown, and never made.
    warning: str = ""

    @property
    def is_tried_cold(self) -> bool:
        """Whether only runs with empty caches can show what it saves."""
        return self.avoids_compiles or self.shortens_compiles

    @property
    def to_paste(self) -> str:
        """What a user adds to the program; for what the program sets itself, in its place."""
        return self.pasted or self.code.strip() or self.change

    @property
    def statements(self) -> str:
        """The change as statements to execute once torch is imported."""
        if self.variant.code.strip() or not self.settings:
            return self.variant.code
        values = [f"torch._inductor.config.{name} = {v!r}" for name, v in self.settings.items()]
        return "\n".join(("import torch._inductor.config", *values))

    @property
    def variant(self) -> Variant:
        """The program with this change."""
        if self.overrules:
            code = overruling(self.settings)
            return Variant(self.change, code=f"{code}\n{self.code}", variables=self.variables)
        return Variant(self.change, self.settings, self.code, self.variables)
