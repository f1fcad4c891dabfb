"""One structured log for our code, uvicorn and Celery alike."""

import logging
import sys
from typing import Any

import structlog


def configure_logging(level: str, log_format: str) -> None:
    """Route structlog and the standard library through one renderer to stderr.

    Args:
        level: "debug", "info", "warning" or "error".
        log_format: "json", "console", or "auto": console on a terminal, else JSON.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    is_console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if is_console else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # Celery tells of every message twice and of every tick; what became of them we log ourselves.
    celery = ("celery.worker.strategy", "celery.app.trace", "celery.beat")
    for noisy in ("httpx", "botocore", "urllib3", "kombu", "amqp", *celery):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class _RefusedHandshakes(logging.Filter):
    """Drops what uvicorn says of a WebSocket that was refused with an HTTP error.

    uvicorn 0.54 (websockets_sansio_impl.py, `run_asgi`) takes every handshake for unfinished that
    became no WebSocket, and logs that as an error of ours.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it."""
        return record.msg != "ASGI callable returned without completing handshake."


_REFUSED_HANDSHAKES = _RefusedHandshakes()


def hush_refused_handshakes() -> None:
    """Log a refused handshake as the request that it is, and no error; calling it twice is once."""
    logging.getLogger("uvicorn.error").addFilter(_REFUSED_HANDSHAKES)
