"""Keep the processors of a virtual machine awake while timing.

A virtual processor that idles is put aside by the host and comes back milliseconds late; token buckets and
waits then run late too. One spinning process per processor, in the idle class (it runs only when nothing else
wants to), keeps it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

SPIN = """
import os
parent = {parent}
os.nice(19)
os.sched_setaffinity(0, {{{cpu}}})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == parent:
    for _ in range(100000):
        pass
"""


@contextlib.contextmanager
def awake_processors() -> Iterator[None]:
    """Spin on every processor in the idle class inside a `with` block; does nothing where the system has no
    such class.
    """
    if not hasattr(os, "SCHED_IDLE"):
        yield
        return
    spinners = [
        subprocess.Popen(
            [sys.executable, "-c", SPIN.format(parent=os.getpid(), cpu=cpu)], stderr=subprocess.DEVNULL
        )
        for cpu in sorted(os.sched_getaffinity(0))
    ]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
