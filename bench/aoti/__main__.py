"""AOTInductor's debugging guide, done by hand, beside inductoscope: make bench-aoti.

Each fault is a program that makes a package and calls it. The guide's steps are runs of a script
that follows it literally and never errs; the tool is given the same program. Counted are the runs
until a guilty kernel is named; noted is whether it is the right one. The table goes into the
document that --markdown names.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from battery.trial import run_plain
from battery.workplace import workplace
from bench.aoti.faults import FAULTS, PackageFault
from bench.aoti.guide import Guide, Trail
from bench.aoti.table import Row, markdown, put_into, read_rows, write_rows
from bench.aoti.tool import examine, package_alone


@dataclass(frozen=True)
class Bench:
    """Where and how long to measure."""

    folder: Path
    limit: float
    whole: bool

    @property
    def cache(self) -> Path:
        """Shared by all: what is compiled twice costs a user nothing either."""
        return self.folder / "cache"

    def measure(self, fault: PackageFault, known: Trail | None = None) -> Row:
        """Both ways, one after the other; `known` is what the guide came to before."""
        place = self.folder / fault.fault.folder
        trail = known or Guide(fault, place / "guide", self.cache, self.limit).follow()
        _say(fault, f"guide, {len(trail.runs)} runs: {trail.named or 'nothing'}: {trail.said}")
        found = examine(fault, place / "tool", self.cache, self.limit, whole=self.whole)
        _say(fault, f"tool, {found.executions} runs: {found.named or 'nothing'}: {found.said}")
        # The program's latest run may have been one with a workaround.
        package = "" if self.whole else package_alone(place / "tool", self.limit)
        _say(fault, f"package alone: {package}")
        by_hand = fault.is_guilty(trail.named) and fault.call in (None, trail.call)
        by_tool = fault.is_guilty(found.named) and fault.node in found.said
        return Row(fault.name, trail, found, by_hand, by_tool, package)


def _say(fault: PackageFault, text: str) -> None:
    print(f"  {fault.name}: {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.aoti", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="names that contain NAME")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one run")
    parser.add_argument("--whole", action="store_true", help="let the tool finish its examination")
    parser.add_argument("--resume", action="store_true", help="keep what --json already has")
    parser.add_argument("--tool", action="store_true", help="keep what --json has of the guide")
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    parser.add_argument("--markdown", type=Path, help="put the table into this document")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    options = parser.parse_args()
    rows = read_rows(options.json) if options.json and (options.resume or options.tool) else []
    known = {row.fault: row for row in rows}
    chosen = [f for f in FAULTS if not options.only or any(o in f.name for o in options.only)]
    with workplace("bench-aoti", options.keep) as folder:
        bench = Bench(folder, options.limit, options.whole)
        # What a machine compiles only once, such as the precompiled header, is counted nowhere.
        if not bench.cache.exists():
            run_plain(FAULTS[-1].fault, folder / "warm", bench.cache, options.limit)
        for fault in chosen:
            if fault.name in known and not options.tool:
                continue
            trail = known[fault.name].guide if fault.name in known else None
            known[fault.name] = bench.measure(fault, trail)
            rows = [known[f.name] for f in FAULTS if f.name in known]
            if options.json:
                write_rows(rows, options.json)
    text = markdown(rows)
    print(text)
    if options.markdown:
        put_into(options.markdown, text)


if __name__ == "__main__":
    main()
