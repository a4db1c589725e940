"""How much memory there is: the machine's, or its container's where that has less."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Final

from ..core.settings.units import parse_size_bytes

#: What the broker takes of it where nobody says: a share, and never less or more than this.
DEFAULT_SHARE: Final = 0.4
_LEAST_BYTES: Final = 128 << 20
_MOST_BYTES: Final = 2 << 30
_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)[ ]?%", re.ASCII)
#: Where the hierarchies of cgroups are, and what the file with the limit is called: version 2, and the controller of version 1.
_CGROUPS: Final = {"": ("sys/fs/cgroup", "memory.max"), "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes")}


def memory_bytes(root: Path = Path("/")) -> int:
    """Raises OSError where the system does not say."""
    found = [_machine(root)]
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in _CGROUPS:
                folder, name = _CGROUPS[controller]
                inner = PurePosixPath(path.lstrip("/"))
                # In a namespace of its own a container sees its limit at the top; else those above it hold as well.
                for each in (inner, *inner.parents):
                    limit = _text(root / folder / each / name).strip()
                    if limit.isdigit():
                        found.append(int(limit))
    return min(found)


def default_limit() -> int:
    """``memory-limit`` where nobody names one, in bytes."""
    return min(_MOST_BYTES, max(_LEAST_BYTES, int(memory_bytes() * DEFAULT_SHARE)))


def parse_limit(value: object) -> int:
    """A size, a share of the memory that there is (``40%``), or None. Raises ValueError whose text says what was expected."""
    if value is None:
        return default_limit()
    if not isinstance(value, str) or not value.rstrip().endswith("%"):
        return parse_size_bytes(value)
    found = _PERCENT.fullmatch(value.strip())
    percent = float(found[1]) if found else 0.0
    if not 0 < percent <= 100:
        raise ValueError("expected a share such as 40% of the memory that there is, or a size such as 512MiB")
    return int(memory_bytes() * percent / 100)


def _machine(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo does not say how much memory there is")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
