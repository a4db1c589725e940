"""How much memory there is, from files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing.broker.config.config import ConfigError, parse
from homing.broker.config.machine import default_limit, memory_bytes

GIB = 1 << 30


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:  8388608 kB\nMemFree: 1 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 8 * GIB, id="no cgroups"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GIB}\n"}, GIB, id="a container"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 8 * GIB, id="a container without a limit"),
        pytest.param(
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": f"{2 * GIB}\n"},
            2 * GIB,
            id="the slice around it has a limit",
        ),
        pytest.param(
            {"proc/self/cgroup": "5:cpu:/x\n4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{3 * GIB}\n"},
            3 * GIB,
            id="version 1",
        ),
        pytest.param(
            {"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
            8 * GIB,
            id="version 1 without a limit",
        ),
    ],
)
def test_the_least_that_holds_is_what_there_is(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert memory_bytes(_write(tmp_path, files)) == expected


def _limit(text: str) -> int:
    return parse(f"broker: {{memory-limit: '{text}'}}").broker.memory_limit_bytes


def test_the_limit_may_be_a_share() -> None:
    assert _limit("40%") == int(memory_bytes() * 0.4)
    assert _limit("12.5 %") == int(memory_bytes() * 0.125)
    assert _limit("64MiB") == 64 << 20
    assert parse("{}").broker.memory_limit_bytes == default_limit()
    assert 128 << 20 <= default_limit() <= 2 << 30


@pytest.mark.parametrize("text", ["0%", "101%", "-1%", "%", "a%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a share such as 40%"):
        _limit(text)
