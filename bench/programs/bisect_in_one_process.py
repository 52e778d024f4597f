"""torch's bisector on a script without a new process for each run: bisect_in_one_process.py SCRIPT.

Its documentation gives do_bisect a function. The function here runs the script, from scratch.
"""

import runpy
import sys

import torch
from torch._inductor.compiler_bisector import CompilerBisector


def passes() -> bool:
    """Whether the script ends well."""
    torch._dynamo.reset()
    print("a run", flush=True)
    try:
        runpy.run_path(sys.argv[1], run_name="__main__")
    except SystemExit as ended:
        return not ended.code
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    print(f"Bisection complete: {CompilerBisector.do_bisect(passes)}")
