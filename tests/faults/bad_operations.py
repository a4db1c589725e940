"""Operations that are well-formed and wrong, and the code that each is refused with."""

from __future__ import annotations

from typing import Any, Final

from homing.broker.protocols.native.codec import MAX_FRAME_BYTES

KIB = 1 << 10


DEEP: Final = "(" * 70 + "a = 1" + ")" * 70
SELECTORS: Final = [
    "a =",
    "= 1",
    "a = 'x",
    "a LIKE 5",
    "SELECT 1",
    "a = 1; DROP TABLE",
    "x" * 4097,
    DEEP,
    "NOT " * 80 + "a",
    "a = 1e999",
    "\x00",
]
CREATE: Final = "create-queue"
#: verb, arguments -> code
CALLS: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("no-such-verb", {}, "unknown-verb"),
    ("x" * 100_000, {}, "unknown-verb"),
    ("queues", {"queue": "a"}, "invalid-argument"),
    ("queues", {"x" * 100_000: 1}, "invalid-argument"),
    ("peek", {}, "invalid-argument"),
    ("peek", {"queue": 5}, "invalid-argument"),
    ("peek", {"queue": "absent"}, "no-such-queue"),
    ("peek", {"queue": "x" * 100_000}, "no-such-queue"),
    ("peek", {"queue": "here", "limit": 0}, "invalid-argument"),
    ("peek", {"queue": "here", "limit": 2**64 - 1}, "invalid-argument"),
    ("peek", {"queue": "here", "limit": 1.5}, "invalid-argument"),
    ("peek", {"queue": "here", "after": [1]}, "invalid-argument"),
    ("peek", {"queue": "here", "after": ["a", "b"]}, "invalid-argument"),
    ("peek", {"queue": "here", "after": [-4, 2**64 - 1]}, "invalid-argument"),
    ("peek", {"queue": "here", "after": [300, 1]}, "invalid-argument"),
    ("history", {}, "no-such-message"),
    ("history", {"message_id": "5"}, "invalid-argument"),
    ("history", {"message_id": -1}, "invalid-argument"),
    ("history", {"message_id": 2**63}, "invalid-argument"),
    ("history", {"message_id": 2**63 - 1}, "no-such-message"),
    ("explain", {"address": ""}, "invalid-argument"),
    ("explain", {"address": ["a"]}, "invalid-argument"),
    (CREATE, {}, "invalid-name"),
    (CREATE, {"queue": 5}, "invalid-name"),
    (CREATE, {"queue": {"a": 1}}, "invalid-name"),
    (CREATE, {"queue": "a", "address": 5}, "invalid-name"),
    (CREATE, {"queue": "a", "address": ["b"]}, "invalid-name"),
    (CREATE, {"queue": "a", "routing_type": "both"}, "invalid-argument"),
    (CREATE, {"queue": "a", "routing_type": ["anycast"]}, "invalid-argument"),
    (CREATE, {"queue": "a", "selector": "a ="}, "invalid-selector"),
    (CREATE, {"queue": "a", "selector": 1}, "invalid-argument"),
    (CREATE, {"queue": "a", "durable": 1}, "invalid-argument"),
    (CREATE, {"queue": "a", "exclusive": 1}, "invalid-argument"),
    (CREATE, {"queue": "a", "max_consumers": "5"}, "invalid-argument"),
    (CREATE, {"queue": "a", "colour": "red"}, "invalid-argument"),
    (CREATE, {"queue": "a", "message_ttl_ms": 2**63 - 1}, "invalid-argument"),
    (CREATE, {"queue": "a", "message_ttl_ms": 2**64 - 1}, "invalid-argument"),
    (CREATE, {"queue": "a", "message_ttl_ms": float("nan")}, "invalid-argument"),
    (CREATE, {"queue": "a", "message_ttl_ms": -1}, "invalid-argument"),
    (CREATE, {"queue": "a", "redelivery_delay_ms": 2**63}, "invalid-argument"),
    (CREATE, {"queue": "a", "max_delivery_attempts": 1.5}, "invalid-argument"),
    (CREATE, {"queue": "a", "max_length": -5}, "invalid-argument"),
    (CREATE, {"queue": "a", "overflow": "nowhere"}, "invalid-argument"),
    (CREATE, {"queue": "a", "dead_letter_address": "x::y"}, "invalid-name"),
    (CREATE, {"queue": "a", "dead_letter_address": "x" * 600}, "invalid-name"),
    (CREATE, {"queue": "a", "expiry_address": "a.#"}, "invalid-name"),
    (CREATE, {"queue": "here", "durable": False}, "queue-exists"),
    ("delete-queue", {"queue": "absent"}, "no-such-queue"),
    ("delete-queue", {"queue": "here", "if_empty": "yes"}, "invalid-argument"),
    ("purge", {"queue": None}, "invalid-argument"),
    ("purge", {"queue": "absent"}, "no-such-queue"),
    ("pause", {"queue": "absent"}, "no-such-queue"),
    ("resume", {"queue": ""}, "invalid-argument"),
    ("redrive", {"queue": "absent"}, "no-such-queue"),
    ("redrive", {"queue": "here", "message_ids": "all"}, "invalid-argument"),
    ("redrive", {"queue": "here", "message_ids": [1.5]}, "invalid-argument"),
    ("transaction-outcome", {}, "invalid-argument"),
    ("transaction-outcome", {"transaction_id": 5}, "invalid-argument"),
    ("consumers", {"queue": "absent"}, "no-such-queue"),
    ("settings", {"a": 1}, "invalid-argument"),
    ("reload", {"a": 1}, "invalid-argument"),
]


BAD_MESSAGES: Final[list[tuple[list[Any], str]]] = [
    ([b"", {"_AMQ_X": 1}], "invalid-property"),
    ([b"", {"JMSXGroupID": "a"}], "invalid-property"),
    ([b"", {"_HOMING_REASON": "a"}], "invalid-property"),
    ([b"", {"": 1}], "invalid-property"),
    ([b"", {b"k": 1}], "invalid-property"),
    ([b"", {"k": 2**63}], "invalid-property"),
    ([b"", {"k": 2**64 - 1}], "invalid-property"),
    ([b"", {"k": -(2**63)}], ""),
    ([b"", {"k": float("nan")}], "invalid-property"),
    ([b"", {"k": float("inf")}], "invalid-property"),
    ([b"", {"k": [1]}], "invalid-property"),
    ([b"", {"k": {"a": 1}}], "invalid-property"),
    ([b"", {"k": "x" * 70_000}], "properties-too-large"),
    ([b"", {"k": "é" * 40_000}], "properties-too-large"),
    ([b"", {f"k{n}": None for n in range(7000)}], "properties-too-large"),
    ([b"", None, 10], "invalid-message"),
    ([b"", None, -1], "invalid-message"),
    ([b"", None, 4, True, -1], "invalid-message"),
    ([b"", None, 4, True, 2**63 - 1], "invalid-message"),
    ([b"", None, 4, True, 0, 2**64 - 1], "invalid-message"),
    ([b"", None, 4, True, 0, 0, ""], "invalid-message"),
    ([b"", None, 4, True, 0, 0, "x" * 300], "invalid-message"),
    ([b"", None, 4, True, 0, 0, 5], "invalid-message"),
    ([b"x" * (MAX_FRAME_BYTES - 100)], "message-too-large"),
]


BAD_RANGES: Final[list[tuple[list[Any], str]]] = [
    ([1], "malformed-frame"),
    ([2, 1], "malformed-frame"),
    ([0, 1], "malformed-frame"),
    ([-1, 1], "malformed-frame"),
    ([1, 2, 2, 3], "malformed-frame"),
    ([1, 2**63], "malformed-frame"),
    ([1.0, 2.0], "malformed-frame"),
    (["1", "2"], "malformed-frame"),
    ([True, True], "malformed-frame"),
    ([tag for n in range(1, 100_002) for tag in (2 * n, 2 * n)], "too-many-ranges"),
    ([tag for n in range(1, 1_000_001) for tag in (2 * n, 2 * n)], "too-many-values"),
]


SLOW_SELECTORS: Final = [
    "p LIKE '%" + "a_" * 2000 + "b%'",
    "p LIKE '" + "%a" * 2000 + "%b'",
    "p LIKE '%" + "a" * 2000 + "_b%'",
    " OR ".join(["p LIKE '%a_a_b%'"] * 20),
    " OR ".join([f"p = 'x{n}'" for n in range(300)]),
    "p LIKE '" + "_" * 4000 + "%b%'",
]
