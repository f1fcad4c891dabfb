"""Becomes another program that dies with the process that started it.

Run as a file by `cli.supervisor`: `python -I -S launch.py PARENT_PID COMMAND…`. It stands alone and
imports little because every child pays for it. The kernel keeps the parent-death signal over exec,
so this works for programs that know nothing of it, and needs no code between fork and exec in a
parent that has threads. Only Linux has the signal; elsewhere it just becomes the program.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def launch(parent_pid: int, command: list[str]) -> None:
    """Replace this process by `command`; never returns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before the signal was set
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - the command comes from our own supervisor


if __name__ == "__main__":
    launch(int(sys.argv[1]), sys.argv[2:])
