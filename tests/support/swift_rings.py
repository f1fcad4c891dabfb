"""Write Swift's rings: `python -m tests.support.swift_rings FOLDER account=PORT …`.

A process of its own, because importing swift patches the interpreter with eventlet.
"""

import sys
from pathlib import Path

from swift.common.ring import RingBuilder


def main(folder: str, *servers: str) -> None:
    """Give each server one device on its loopback port."""
    for server in servers:
        name, port = server.split("=")
        ring = RingBuilder(4, 1, 0)  # 16 partitions, one replica, move at once
        ring.add_dev(
            {
                "id": 0,
                "region": 1,
                "zone": 1,
                "weight": 1,
                "device": "d1",
                "meta": "",
                "ip": "127.0.0.1",
                "port": int(port),
                "replication_ip": "127.0.0.1",
                "replication_port": int(port),
            }
        )
        ring.rebalance()
        ring.get_ring().save(str(Path(folder) / f"{name}.ring.gz"))


if __name__ == "__main__":
    main(*sys.argv[1:])
