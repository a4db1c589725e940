"""For tests of what is short on purpose. A machine may stop for seconds at any place, and then such things end by right."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import pytest

TRIES: Final = 3
#: An assertion, an exception, or an exception that was expected and did not come.
FAILED: Final = (Exception, pytest.fail.Exception)
Test = TypeVar("Test", bound=Callable[..., Any])


def tried_again(test: Test) -> Test:
    """Begins ``test`` anew where it fails, three times in all. For what a pause in the wrong place ends by right, and for nothing else:
    a message that lives for half a second, a connection with many heartbeats a second. What a broker does wrong fails every time.

    ``test`` may be a part of one: whatever it needs fresh, it has to make itself."""
    if inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        async def patient(*arguments: Any, **named: Any) -> Any:
            for _ in range(TRIES - 1):
                try:
                    return await test(*arguments, **named)
                except FAILED:
                    traceback.print_exc()
            return await test(*arguments, **named)

        return cast(Test, patient)

    @functools.wraps(test)
    def again(*arguments: Any, **named: Any) -> Any:
        for _ in range(TRIES - 1):
            try:
                return test(*arguments, **named)
            except FAILED:
                traceback.print_exc()
        return test(*arguments, **named)

    return cast(Test, again)
