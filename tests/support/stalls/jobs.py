"""Jobs for a compile worker of torch; each of them never comes back."""

import ctypes
import os
import signal
import threading


def stop():
    """As if someone had stopped the worker."""
    os.kill(os.getpid(), signal.SIGSTOP)


def lose_sidecar():
    """The process that runs the workers is killed; this one is in native code and lives on."""
    os.kill(os.getppid(), signal.SIGKILL)
    ctypes.PyDLL(None).sleep(1000)


def deadlock():
    """A lock that was taken by someone who will not give it back."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
