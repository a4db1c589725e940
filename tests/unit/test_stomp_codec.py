"""STOMP on the wire: frames whole and in pieces, escapes by version, and what is refused before it is here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.broker.protocols.stomp.codec import MAX_HEADERS, UNKNOWN, Frame, FrameReader, Run, StompError, frame, read_head

#: What any header may say; STOMP 1.1 has no way to write a carriage return.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=20)


def read(data: bytes, piece: int = 1 << 20, max_head: int = 1000, max_body: int = 1000) -> list[Frame | str]:
    reader = FrameReader(max_head, max_body)
    found: list[Frame | str] = []
    for at in range(0, len(data), piece):
        for each in reader.feed(data[at : at + piece]):
            found += each.each() if isinstance(each, Run) else [str(each) if isinstance(each, StompError) else each]
        assert reader.buffered <= max_head + max_body + piece
    return found


@given(st.sampled_from(["1.1", "1.2"]), st.dictionaries(TEXTS.filter(bool), TEXTS), st.binary(max_size=50), st.integers(1, 40))
def test_what_is_written_is_read_however_it_is_cut(version: str, headers: dict[str, str], body: bytes, piece: int) -> None:
    headers.pop("content-length", None)
    sent = frame("MESSAGE", headers.items(), body, version)
    first, second = read(b"\n\r\n" + sent + b"\n" + sent, piece, 10_000)
    assert first == second
    assert isinstance(first, Frame)
    assert first.body == body
    command, told = read_head(first.head, version)
    assert (command, told) == ("MESSAGE", headers | ({"content-length": str(len(body))} if body else {}))


RECEIPTS = st.sampled_from([None, "1", "22", "a:b", "", "é"])


@given(
    st.lists(st.tuples(st.sampled_from(["SEND", "ACK", "NACK"]), RECEIPTS, st.sampled_from([b"", b"a", b"b\0", b"cc"]))), st.integers(1, 90)
)
def test_what_is_alike_and_comes_together_is_still_each_its_own(sent: list[tuple[str, str | None, bytes]], piece: int) -> None:
    frames = [
        (command, {"a": "b"} | ({} if value is None else {"receipt" if command == "SEND" else "id": value}), body)
        for command, value, body in sent
    ]
    data = b"".join(frame(command, list(headers.items())[::-1], body, "1.2") for command, headers, body in frames)
    found = [(*read_head(each.head, "1.2"), each.body) for each in read(data, piece) if isinstance(each, Frame)]
    for _, headers, _ in found:
        headers.pop("content-length", None)
    assert found == frames


def test_many_that_are_alike_are_one_run() -> None:
    sends = [b"SEND\nreceipt:%d\ndestination:a\ncontent-length:1\n\n\0\0\n" % number for number in range(600)]
    acks = [b"ACK\nid:1-%d\n\n\0" % number for number in range(9)]
    runs = FrameReader(1000, 1000).feed(b"".join([*sends, *acks, b"ACK\nid:1-9\n\n"]))
    assert [isinstance(run, Run) and len(run.each()) for run in runs] == [500, 100, 9]


def test_both_line_ends_and_both_ways_to_end_a_body() -> None:
    for end in (b"\n", b"\r\n"):
        lines = end.join([b"SEND", b"destination:/queue/a", b"content-length:3", b"", b"a\0b\0SEND", b"destination:b", b"", b"c\n\0"])
        for piece in (1, 7, 1000):
            frames = [each for each in read(lines, piece) if isinstance(each, Frame)]
            assert [each.body for each in frames] == [b"a\0b", b"c\n"]
            assert [read_head(each.head, "1.2")[1]["destination"] for each in frames] == ["/queue/a", "b"]


def test_escapes_are_those_of_the_version() -> None:
    head = rb"SEND" + b"\n" + rb"a\cb: c\\d\n"
    assert read_head(head, "1.0")[1] == {r"a\cb": r"c\\d\n"}
    assert read_head(head, "1.1")[1] == {"a:b": " c\\d\n"}
    assert read_head(b"CONNECT\npasscode:a\\c:b", UNKNOWN)[1] == {"passcode": r"a\c:b"}
    assert read_head(rb"SEND" + b"\n" + rb"a:\r", "1.2")[1] == {"a": "\r"}
    for version, value in (("1.1", rb"\r"), ("1.2", rb"\t"), ("1.1", b"\\")):
        with pytest.raises(StompError, match="means nothing"):
            read_head(b"SEND\na:" + value, version)
    assert read_head(b"SEND\na:1\na:2", "1.2")[1] == {"a": "1"}, "the first counts"
    # Nobody may write a header of his own by a value, nor end the frame.
    assert frame("MESSAGE", [("a", "x\0y")], version="1.2") == "MESSAGE\na:x\ufffdy\n\n\0\n".encode()
    assert frame("MESSAGE", [("a", "x\nb:y"), ("c:d", "")], version="1.0") == b"MESSAGE\na:x\\nb:y\n\n\0\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"SEND\n" + b"a" * 2000, "headers of a frame are more than 1000 bytes"),
        (b"SEND\n" + b"a:b\n" * 400 + b"\n\0", "headers of a frame are more than 1000 bytes"),
        (b"SEND\ncontent-length:1001\n\n", "a body is more than 1000 bytes"),
        (b"SEND\ncontent-length:-1\n\n", "content-length is no whole number"),
        (b"SEND\ncontent-length:9999999999999999999\n\n", "content-length is no whole number"),
        (b"SEND\n\n" + b"x" * 2500, "a body is more than 1000 bytes"),
        (b"SEND\n\n" + b"x" * 1001 + b"\0", "a body is more than 1000 bytes"),
        (b"SEND\ncontent-length:1\n\nab\0", "longer than its content-length"),
        (b"SEND\na:b\0", "ends before the blank line"),
    ],
)
def test_what_is_no_frame_ends_it_before_it_is_here(data: bytes, said: str) -> None:
    for piece in (1, 700, 10_000):
        *before, error = read(b"BEGIN\n\n\0" + data + b"\0BEGIN\n\n\0", piece)
        assert before == [Frame(b"BEGIN", b"")]
        assert said in str(error)


def test_headers_are_read_with_care() -> None:
    for head in (b"SEND\n\xff:a", b"SEND\nno colon", b"SEND\n:a", b"SEND" + b"\na:b" * (MAX_HEADERS + 1)):
        with pytest.raises(StompError):
            read_head(head, "1.2")
