"""The API over HTTP: who asks, what is asked for, and how it is answered."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast, get_origin

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import homing
from homing.journal import json_text

from ...answers.parts import Properties
from ..bodies import body_of
from ..links import Brokers
from ..problems import READ_ONLY, Problem
from .asked import EventStream
from .openapi import BROKER, ROOT, document
from .operations import JSON, OPERATIONS, Asker, Operation
from .streams import Streams

_PROBLEM_JSON: Final = "application/problem+json"
_OF_URLS: Final = str.maketrans("-_", "+/")
#: Of a number that the broker may have given.
_DIGITS: Final = 19
_LOG_IN: Final = Problem(
    "login-required", "this API wants a user and a password", "send them as Basic authentication, or a token as Bearer", 401
)


_Answer = Callable[[Request], Awaitable[Response]]


def routes(brokers: Brokers, read_only: bool) -> list[Route]:
    """All of them, and the document, which needs no login."""
    described = json.dumps(document(), ensure_ascii=False).encode()

    async def openapi(request: Request) -> Response:
        return Response(described, media_type=JSON)

    # One a path, so that what it has no method for is told which it has.
    by_path: dict[str, dict[str, _Answer]] = {}
    streams = Streams()
    for each in OPERATIONS:
        by_path.setdefault(ROOT + each.path, {})[each.method] = (
            _only_shown if read_only and not each.reads else _answering(each, brokers, streams)
        )
    found = [Route(path, _by_method(those), methods=list(those)) for path, those in by_path.items()]
    return [Route(f"{ROOT}/openapi.json", openapi, methods=["GET"]), *found]


async def _only_shown(request: Request) -> Response:
    return problem_of(Problem(*READ_ONLY, 403))


def _by_method(answers: Mapping[str, _Answer]) -> _Answer:
    async def answer(request: Request) -> Response:
        return await answers["GET" if request.method == "HEAD" else request.method](request)

    return answer


def problem_of(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """As RFC 9457 has it."""
    said = {"type": f"urn:homing:problem:{problem.code}", "title": problem.title, "status": problem.status, "detail": problem.message}
    if problem.status == 401:
        headers = {"WWW-Authenticate": 'Basic realm="homing", charset="UTF-8"'}
    text = json_text.dumps({**said, "code": problem.code, "fix": problem.fix})
    return Response(text, problem.status, headers, _PROBLEM_JSON)


def _answering(operation: Operation, brokers: Brokers, streams: Streams) -> _Answer:
    async def answer(request: Request) -> Response:
        try:
            user, password = _credentials(request)
            links = brokers.named(request.headers.get(BROKER, ""))
            connection = await links.get(user, password)
            said = _said(operation, await _given(operation, request))
            if operation.streams:

                async def look(asks: Any) -> Any:
                    return await operation.run(Asker(await links.get(user, password), links.commands), asks)

                return await _streamed(streams, request, said, look)
            found = await operation.run(Asker(connection, links.commands), said)
            if operation.media != JSON:
                return cast(Response, found)
        except homing.HomingError as error:
            return problem_of(Problem.of(error))
        except Problem as problem:
            return problem_of(problem)
        return _found(request, json_text.dumps(found).encode())

    return answer


async def _streamed(streams: Streams, request: Request, said: EventStream, look: Callable[[EventStream], Awaitable[Any]]) -> Response:
    """Raises Problem, homing.HomingError."""
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < _DIGITS else said.after
    now_ms = time.time_ns() // 1_000_000
    since_ms = 0 if after else now_ms
    asks = said if said.since_ms is not None else said.model_copy(update={"since_ms": since_ms})
    return await streams.begin(lambda number: look(asks.model_copy(update={"after": number})), after)


def _found(request: Request, body: bytes) -> Response:
    """With a tag, by which who asks again is told that nothing has changed."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    if request.method == "GET" and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type=JSON, headers={"ETag": tag} if request.method == "GET" else None)


def _credentials(request: Request) -> tuple[str, str]:
    """Of each request: a cookie, which a browser sends by itself, says nothing here. Raises Problem."""
    kind, _, said = request.headers.get("authorization", "").partition(" ")
    try:
        # A token is the same in the alphabet of URLs: "homing user token" makes it.
        user, colon, password = base64.b64decode(said.strip().translate(_OF_URLS), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise _LOG_IN from None
    if kind.lower() not in ("basic", "bearer") or not colon:
        raise _LOG_IN
    return user, password


async def _given(operation: Operation, request: Request) -> Properties:
    """What the path and the query, or the body, have. Raises Problem."""
    if operation.method == "GET":
        fields = operation.asks.model_fields
        several = {name for name, field in fields.items() if get_origin(field.annotation) is list}
        query = request.query_params
        twice = [name for name in query if name not in several and len(query.getlist(name)) > 1]
        if twice:
            raise Problem("invalid-argument", f"{twice[0]} is given more than once", "give it once")
        given: Properties = {name: query.getlist(name) if name in several else query[name] for name in query}
    else:
        given = await _json(request)
    if both := given.keys() & request.path_params.keys():
        raise Problem("invalid-argument", f"{min(both)} stands in the path", "leave it out elsewhere")
    return given | request.path_params


async def _json(request: Request) -> Properties:
    body = await body_of(request)
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Problem("invalid-body", "the body is not said to be JSON", f"send Content-Type: {JSON}")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem("invalid-body", "the body is no JSON", "send one object") from None
    if type(found) is not dict:
        raise Problem("invalid-body", "the body is no JSON object", "send one object")
    return found


def _said(operation: Operation, given: Properties) -> Any:
    try:
        return operation.asks.model_validate(given, strict=False if operation.method == "GET" else None)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "what is asked for"
        raise Problem("invalid-argument", f"{where}: {first['msg']}", f"{ROOT}/openapi.json says what may be given") from None
