"""Makes whichever library of AMQP or STOMP the program has imported, or will, tell of failures. Imports none itself.

``import homing.integrations.auto`` in the program's first lines, or ``homing instrument COMMAND…`` without any.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .report import Unfit, log

#: A module of a library -> which one of ours does something to it, once it is imported.
HOOKS = {
    "pika.channel": "pika",
    "pika.adapters.blocking_connection": "pika",
    "aiormq.channel": "aio_pika",
    "amqp.channel": "kombu",
    "celery.app.task": "celery",
    "dramatiq.brokers.rabbitmq": "dramatiq",
    "faststream.rabbit.broker.broker": "faststream",
    "stomp.protocol": "stomp",
    "stomp.transport": "stomp",
    "taskiq.receiver.receiver": "taskiq",
}


def install(name: str) -> None:
    """Of a module that is imported. A library that is not known as it is stays as it is, and the log says why."""
    library = HOOKS[name]
    try:
        importlib.import_module(f".{library}", __package__).install(sys.modules[name])
    except Unfit as reason:
        log.warning("homing: failures of %s are not reported: %s", library, reason)
    except Exception:
        log.exception("homing: failures of %s are not reported", library)


class Finder(MetaPathFinder):
    """Lets the others find a module, and comes after its import."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in HOOKS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _after(spec.loader, name)
                return spec
        return None


def _after(loader: Any, name: str) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        if module.__name__ == name:
            install(name)

    loader.exec_module = exec_module


def start() -> None:
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    for name in [each for each in HOOKS if each in sys.modules]:
        install(name)


start()
