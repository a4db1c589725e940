"""Where ours says something else than RabbitMQ 3.10, and the words of docs/interoperability.md that tell of it."""

from __future__ import annotations

from typing import Any, Final

Difference = tuple[str, Any, str]


def alike(sentence: str, answers: dict[str, Any]) -> list[Difference]:
    """Several places that one sentence is about."""
    return [(place, said, sentence) for place, said in answers.items()]


_BEFORE_LOGIN = "Until the connection is open RabbitMQ hangs up without a word"
_WITHOUT_A_WORD = "RabbitMQ hangs up without a word"
_QUORUM = "In all else `quorum` is the same as `classic`"
_COUNT = "on its first delivery no message carries `x-delivery-count`"
_PLACE = "What comes back takes the place it had"
_NAMES = "A queue's name may not be `*` or `#` as a word"
_SYNTAX = "Connection.Close 501 FRAME_ERROR"

#: Program -> (where in its outcome, what ours says there, the words that tell).
DIFFERENCES: Final[dict[str, list[Difference]]] = {
    "an_expired_message_behind_one_that_is_not": alike("Messages expire wherever they stand", {"[0]": 1}),
    "the_longest_length_drops_the_head": alike("is never pushed out by `x-max-length`", {"": ["3", "5", "6", "7"]}),
    "one_queue_kills_for_two_reasons": alike(
        "3.x lets the entries behind the first change places",
        {"[1][0]": "back", "[1][1]": "rejected", "[1][2]": 2, "[2][0]": "source", "[2][1]": "expired", "[2][2]": 1},
    ),
    "a_dead_letter_exchange_that_is_missing": alike("A dead-letter exchange that is missing", {"": ["x"]}),
    "a_delivery_limit": alike(_COUNT, {"[0][0][1]": None}),
    "deliveries_are_counted_in_quorum_queues": alike(_COUNT, {"[0][0][1][x-delivery-count]": None}),
    "what_comes_back_to_a_quorum_queue_keeps_its_place": alike(_PLACE, {"[0]": "0", "[1]": "1", "[2]": "2", "[3]": "3"}),
    "other_protocol_headers": alike("HTTP on this port is answered in HTTP", {r"[b'GET / HTTP/1.1\r\n\r\n']": ["gone"]}),
    "logins": alike(
        _BEFORE_LOGIN,
        {
            "[unknown mechanism][0]": "Connection.Close 504 CHANNEL_ERROR 10.11",
        },
    ),
    "tuning": [
        *alike(
            _BEFORE_LOGIN,
            {
                "[0][2048 channels, frames of 131072][0]": "Connection.Close 530 NOT_ALLOWED 10.31",
                "[0][100 channels, frames of 131073][0]": "Connection.Close 530 NOT_ALLOWED 10.31",
                "[0][100 channels, frames of 4095][0]": "Connection.Close 530 NOT_ALLOWED 10.31",
                "[0][100 channels, frames of 1][0]": "Connection.Close 530 NOT_ALLOWED 10.31",
            },
        ),
        *alike(
            "A client that asks for no limit of channels or frame size gets the broker's",
            {"[0][any number of channels][0]": "Connection.OpenOk", "[0][frames of any size][0]": "Connection.OpenOk"},
        ),
        *alike("a channel's number may not be above", {"[0][channel 4 of 3][0]": "Connection.Close 530 NOT_ALLOWED 20.10"}),
    ],
    "out_of_turn": alike(
        _BEFORE_LOGIN,
        {
            "[open for start-ok][0]": "Connection.Close 503 COMMAND_INVALID 10.40",
            "[tune-ok for start-ok][0]": "Connection.Close 503 COMMAND_INVALID 10.31",
            "[channel.open for start-ok][0]": "Connection.Close 505 UNEXPECTED_FRAME 0.0",
            "[declare for start-ok][0]": "Connection.Close 505 UNEXPECTED_FRAME 0.0",
            "[open for tune-ok][0]": "Connection.Close 503 COMMAND_INVALID 10.40",
            "[channel.open for tune-ok][0]": "Connection.Close 505 UNEXPECTED_FRAME 0.0",
        },
    ),
    "malformed_frames": [
        *alike(
            _WITHOUT_A_WORD,
            {
                "[unknown class][0]": "Connection.Close 503 COMMAND_INVALID 255.1",
                "[unknown method][0]": "Connection.Close 503 COMMAND_INVALID 50.255",
                "[a table of an unknown type][0]": f"{_SYNTAX} 50.10",
                "[a name in a table cut short][0]": f"{_SYNTAX} 50.10",
            },
        ),
        ("[a heartbeat on a channel][0]", f"{_SYNTAX} 0.0", "501, as the specification has it (RabbitMQ: 505)"),
        ("[properties cut short][0]", "Connection.Close 502 SYNTAX_ERROR 60.40", "502 (RabbitMQ: 541)"),
        ("[more body than the header says]", ["Connection.Close 505 UNEXPECTED_FRAME 60.40"], "505 (RabbitMQ says nothing)"),
    ],
    "malformed_frames_before_the_login": alike(
        _BEFORE_LOGIN,
        {
            "[not a frame][0]": f"{_SYNTAX} 0.0",
            "[a frame too large][0]": f"{_SYNTAX} 0.0",
            "[a frame far too large][0]": f"{_SYNTAX} 0.0",
            "[wrong frame end][0]": f"{_SYNTAX} 0.0",
            "[an unknown method][0]": "Connection.Close 503 COMMAND_INVALID 255.1",
            "[arguments cut short][0]": f"{_SYNTAX} 10.11",
        },
    ),
    "arguments_of_queues": [
        *alike(_QUORUM, {f"[x-delivery-limit: {limit}]": "accepted" for limit in (5, 0, -1)}),
    ],
    "arguments_that_do_not_go_together": alike(_QUORUM, {f"[{place}]": "accepted" for place in (1, 2, 3, 4)}),
    "exclusive_queue_from_another_connection": alike(
        "Unbinding another connection's exclusive queue", {"[1][4]": "Channel.Close 405 RESOURCE_LOCKED 50.50"}
    ),
    "names_of_any_kind": alike(_NAMES, {f"[{place}]": "Channel.Close 406 PRECONDITION_FAILED 50.10" for place in (4, 5, 8)}),
}
