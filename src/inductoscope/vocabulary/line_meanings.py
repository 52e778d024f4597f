"""What a line of a log means."""

from __future__ import annotations

from enum import Enum


class LineMeaning(str, Enum):
    """What a line means."""

    RUN = "a program begins"
    TRACING = "Dynamo begins to trace"
    TRACED = "Dynamo has traced"
    RECOMPILE_LIMIT = "Dynamo compiles a function no more"
    BACKEND = "Dynamo calls the backend"
    BACKEND_DONE = "the backend has returned"
    INDUCTOR = "Inductor begins with a graph"
    INDUCTOR_DONE = "Inductor has compiled a graph"
    SETTINGS = "the settings of Inductor follow"
    KERNEL = "a kernel for a GPU is generated"
    CODE = "the code of all kernels is generated"
    OUTPUT = "the kernels are compiled"
    CHOICES = "an operation is to be autotuned"
    PREPARING = "compilation of the choices is prepared"
    NOTHING_TO_PREPARE = "no choice is compiled ahead"
    PREPARED_BEFORE = "the same choices were submitted before"
    GROUP = "a group of choices begins"
    SKIPPED = "a choice is left out"
    SUBMITTED_TO_POOL = "a choice went to a worker process"
    SUBMITTED_TO_THREAD = "a choice went to a thread"
    STARTED = "a choice has begun"
    OPERATION = "the operation whose choices are awaited next"
    WAITING = "a group is awaited"
    COMPLETE = "some choice is compiled"
    FINISHED = "a choice is compiled"
    FAILED = "a choice failed"
    TIME_OUT = "the wait for a group timed out"
    TIMED_OUT = "a choice timed out"
    PRECOMPILED = "the wait for a group is over"
    BENCHMARKING = "choices are being benchmarked"
    BENCHMARKED = "choices are benchmarked"
    TABLE = "the result of autotuning"
    RUNNING = "a compiled kernel is run for the first time"
    ENDING = "the interpreter ends"
