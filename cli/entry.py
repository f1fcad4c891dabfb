"""Where the `scriptorium` command begins: Ctrl-C ends it in silence while there is nothing to end.

Imports take a moment, and a traceback out of the middle of one tells nobody anything.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not under `nohup` and the like
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from cli import main as command


def main() -> None:
    """Run the command line, which knows what to do when it is interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command.main()
