"""`pytest --inductoscope`: every graph that a test suite compiles is checked against eager.

pytest imports this module in every run, so all other modules are imported only if the option is
given.
"""

from __future__ import annotations

import pytest

_NEED_IT = ("inductoscope_mode", "inductoscope_calls", "inductoscope_doctor", "inductoscope_json")
MODES = ("fail", "report")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("inductoscope", "compiled code checked against eager (inductoscope)")
    group.addoption(
        "--inductoscope",
        action="store_true",
        help="Check every graph that torch.compile's Inductor compiles against eager, after the "
        "test that calls it.",
    )
    group.addoption(
        "--inductoscope-mode",
        choices=MODES,
        help="'fail' (the default) fails a test in which compiled code is wrong; 'report' only "
        "reports it.",
    )
    group.addoption(
        "--inductoscope-calls",
        type=int,
        metavar="N",
        help="Check the first N calls of each graph in each test (default: 4).",
    )
    group.addoption(
        "--inductoscope-doctor",
        action="store_const",
        const="full",
        help="Run 'inductoscope doctor' on every test in which something is found, and attach its "
        "verdict. That takes a minute or more for each.",
    )
    group.addoption(
        "--inductoscope-doctor-quick",
        action="store_const",
        const="quick",
        dest="inductoscope_doctor",
        help="The same, but stop at the culprit: no reproducer, no workaround.",
    )
    group.addoption(
        "--inductoscope-json",
        metavar="PATH",
        help="Write what was compiled, checked and found to this file.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "no_inductoscope: what this test compiles is not checked by --inductoscope"
    )
    if config.getoption("inductoscope"):
        from inductoscope.pytest_plugin.suite_summary import set_up

        set_up(config)
        return
    given = [name for name in _NEED_IT if config.getoption(name)]
    if given:
        raise pytest.UsageError(
            f"--{given[0].replace('_', '-')} needs --inductoscope, which is not given."
        )
