"""A process that has imported the decoders once and forks a decoding child on request.

Run as `python -m core.audio.nursery SOCKET_FD` by `core.audio.spawn`; Linux only. Starting an
interpreter and importing PyAV cost 0.15 s of CPU a file; a fork costs a few milliseconds. This
process itself never reads a byte of media, has one thread, and ends when its parent does.

A request is the JSON of `Arguments` with four descriptors: media, standard output, standard error,
and where the exit status goes once the child has ended (`STATUS`). The answer is the child's
process id with its pidfd.
"""

import gc
import json
import os
import select
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from core.audio import child
from core.audio.wire import MAX_REQUEST_BYTES, STATUS, Arguments

NUM_DESCRIPTORS = 4


def serve(requests: socket.socket) -> None:
    """Fork children until the other side closes the socket; those that still run then die."""
    running: dict[int, tuple[int, int]] = {}  # pidfd -> process id, where its status goes
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _events in poll.poll():
            if ready in running:
                poll.unregister(ready)
                _report(ready, *running.pop(ready))
                continue
            request, descriptors, _flags, _address = socket.recv_fds(
                requests, MAX_REQUEST_BYTES, NUM_DESCRIPTORS
            )
            if not request:
                return
            *standard, status = descriptors
            process_id = _fork(Arguments(**json.loads(request)), standard)
            for descriptor in standard:
                os.close(descriptor)
            pidfd = os.pidfd_open(process_id)
            running[pidfd] = process_id, status
            poll.register(pidfd, select.POLLIN)
            socket.send_fds(requests, [str(process_id).encode()], [pidfd])


def _report(pidfd: int, process_id: int, status: int) -> None:
    """Reap a child that has ended and say how."""
    _, waited = os.waitpid(process_id, 0)
    with suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(status, STATUS.pack(os.waitstatus_to_exitcode(waited)))
    os.close(status)
    os.close(pidfd)


def _fork(arguments: Arguments, standard: Sequence[int]) -> int:
    """Return the process id of a child that decodes; the child does not return."""
    parent = os.getpid()
    process_id = os.fork()
    if process_id:
        return process_id
    code = 1
    try:
        os.setsid()
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
        os.closerange(len(standard), os.sysconf("SC_OPEN_MAX"))
        code = child.run(replace(arguments, parent_pid=parent))
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def main() -> None:
    """Serve the socket whose descriptor is the only argument."""
    child.warm_up()
    gc.freeze()  # what is never collected is never written to, and stays shared with the children
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        serve(requests)


if __name__ == "__main__":
    main()
    os._exit(0)
