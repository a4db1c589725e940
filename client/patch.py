"""Bodies with a patch applied: JSON Patch (RFC 6902) or JSON Merge Patch (RFC 7396, before it 7386)."""

from __future__ import annotations

import json
from typing import Any

from .errors import UsageError


def patched(body: bytes, patch: list[Any] | dict[str, Any]) -> bytes:
    """``patch``: a list of operations, or a map to merge. Raises UsageError ``patch-failed``: the body is no JSON, or it does not fit."""
    # One that takes what only few programs need: it is imported when it is needed.
    from jsonpatch import JsonPatchException, apply_patch
    from jsonpointer import JsonPointerException

    try:
        document = json.loads(body)
        found = merged(document, patch) if isinstance(patch, dict) else apply_patch(document, patch)
    except (ValueError, TypeError, JsonPatchException, JsonPointerException) as error:
        raise UsageError("patch-failed", f"the patch does not fit this body: {error}", "see that the body is what it is made for") from None
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found
