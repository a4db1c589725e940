"""Celery: what a task raised, as it comes: acknowledged before it begins, or late.

Tasks have a ``Request`` class, which Celery lets one choose: the one here reports. A task, or a base class of tasks, that names another
one is not reported of: there ``Request = "homing.integrations.celery_request:Reporting"`` says it by hand.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from .report import at_least

OLDEST = (5, 0)
_CELERYS_OWN = "celery.worker.request:Request"


def install(module: ModuleType | None = None) -> None:
    """Of ``celery.app.task``, which is imported by hand where it is not given."""
    at_least("celery", OLDEST)
    task: Any = (module or importlib.import_module("celery.app.task")).Task
    if task.Request == _CELERYS_OWN:
        task.Request = f"{__package__}.celery_request:Reporting"
