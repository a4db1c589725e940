"""stomp.py: what the program says of itself with each subscription; what is in flight where a message is refused; and what a listener
raises, which ends its connection. A NACK has it in its headers. It has no places for hooks, so methods are replaced.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any, Callable

from .report import at_least, in_flight, of_error, of_itself, quietly, wrap

OLDEST = (6, 0)
#: Of what goes into the headers of one frame.
_MOST_BYTES = 32_768
_SAID = ("error_type", "error_text", "traceback")
#: Transports that speak with Homing: anything else is to see no difference.
_ours: weakref.WeakSet[Any] = weakref.WeakSet()


def install(module: ModuleType) -> None:
    """Of ``stomp.transport`` or ``stomp.protocol``."""
    at_least("stomp.py", OLDEST)
    if hasattr(module, "BaseTransport"):
        wrap(module.BaseTransport, "notify", _notifying)
        return
    for protocol in (module.Protocol11, module.Protocol12):
        wrap(protocol, "nack", _refusing)
        wrap(protocol, "subscribe", _subscribing)


def _notifying(original: Callable[..., Any]) -> Callable[..., Any]:
    def notify(self: Any, frame_type: str, frame: Any = None) -> Any:
        if frame_type == "connected":
            (_ours.add if str(frame.headers.get("server", "")).startswith("homing/") else _ours.discard)(self)
        try:
            return original(self, frame_type, frame)
        except Exception:
            if frame_type == "message" and self in _ours:
                with quietly():
                    _refuse(self.get_listener("protocol-listener"), frame.headers)
            raise

    return notify


def _refuse(protocol: Any, headers: dict[str, str]) -> None:
    """stomp.py closes the socket now, and the message goes back: that it failed, and of what, is told before. What was settled is passed
    over by the broker.
    """
    if protocol.version == "1.1":
        protocol.nack(headers["message-id"], headers["subscription"])
    elif "ack" in headers:
        protocol.nack(headers["ack"])


def _subscribing(original: Callable[..., Any]) -> Callable[..., Any]:
    def subscribe(self: Any, *arguments: Any, **named: Any) -> Any:
        said: dict[str, str] = {}
        if self.transport in _ours:
            with quietly():
                said = {f"homing-{name.replace('_', '-')}": value for name, value in of_itself().items()}
        return original(self, *arguments, **{**said, **named})

    return subscribe


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    def nack(self: Any, *arguments: Any, **named: Any) -> Any:
        said: dict[str, Any] = {}
        error = in_flight()
        if error is not None and self.transport in _ours:
            with quietly():
                told = of_error(error, _MOST_BYTES)
                # STOMP 1.1 cannot say a carriage return, nor any version a NUL.
                said = {each.replace("_", "-"): told[each].replace("\r", "").replace("\0", "") for each in _SAID}
        return original(self, *arguments, **{**said, **named})

    return nack
