"""Runs the benchmarks and writes docs/benchmarks.md: make bench, or python -m bench.

Without names, whatever has no result at this commit is measured, so that an interrupted run goes on
where it was. What is named is measured again. Results are kept in docs/benchmarks, one file for
each; what is not done yet is in bench-results.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from battery.workplace import leaving_nothing_running
from bench.machine import read_commit
from bench.results import BENCHES, Places, choose, read_results, run_bench
from bench.summary import DOCUMENT, render


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--summary", action="store_true", help="run nothing: write the page")
    parser.add_argument("--results", type=Path, default=Places.results, help="what is kept")
    parser.add_argument("--markdown", type=Path, default=DOCUMENT)
    parser.add_argument(
        "--with",
        dest="options",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option for the benchmark that is named, such as --with=--turns=1",
    )
    options = parser.parse_args(arguments)
    unknown = sorted({*options.names} - {*BENCHES})
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    if options.options and len(options.names) != 1:
        parser.error("--with needs one benchmark to be named")
    return options


def main() -> int:
    options = parse_options()
    # An installed program, ours as a peer, is compiled to bytecode once and not in every run.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    places = Places(options.results)
    places.parts.mkdir(parents=True, exist_ok=True)
    results, commit = read_results(places.results), read_commit()
    chosen = [] if options.summary else choose(options.names, results, commit)
    with leaving_nothing_running():
        for number, bench in enumerate(chosen, 1):
            print(f"[{number}/{len(chosen)}] {bench}", file=sys.stderr, flush=True)
            results[bench] = run_bench(bench, places, commit, options.options)
            # After each, so that an interruption leaves a page.
            options.markdown.write_text(render(BENCHES, results))
    options.markdown.write_text(render(BENCHES, results))
    failed = [bench for bench in chosen if results[bench].failure]
    for bench in failed:
        print(f"{bench} failed: {results[bench].failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
