"""A fingerprint of what a plan depends on."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backendcfg.schema.host import Host


def host_digest(host: Host) -> str:
    """SHA-256 of the host in canonical JSON, without what changes while it stays the same.

    Left out: the machine's name, its free and total memory, the interpreter's path, which
    libraries happened to be loaded and with how many threads, and what the probes said.
    """
    data = host.model_dump(mode="json", exclude={"memory", "probes"})
    del data["system"]["name"], data["python"]["executable"]
    for library in data["libraries"]:
        del library["loaded"], library["threads"]
    data["libraries"].sort(key=lambda library: (library["path"], library["provider"]))
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
