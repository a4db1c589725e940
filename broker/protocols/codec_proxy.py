"""The header of PROXY protocol 2, by which a node tells the leader whose connection it passes on; with the cell's secret, without which
nobody is believed. No input or output."""

from __future__ import annotations

import hmac
import struct
from ipaddress import ip_address
from typing import Final, NamedTuple

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
#: Signature, version 2 and the command PROXY, family, bytes that follow.
_HEAD: Final = struct.Struct(">12sBBH")
_PROXY: Final = 0x21
#: TCP over either version of IP -> the address's bytes.
_FAMILIES: Final = {0x11: 4, 0x21: 16}
_FIELD: Final = struct.Struct(">BH")
#: The first of those types that are for custom use.
_SECRET: Final = 0xE0
#: A header of ours is shorter.
_MOST_BYTES: Final = 256


class NotPassed(Exception):
    """It begins with no header that is believed."""


class Peer(NamedTuple):
    host: str
    port: int


def header(peer: Peer, here: Peer, secret: bytes) -> bytes:
    """``peer``: whose connection it is; ``here``: where it came to, an address of the same version of IP."""
    source, target = ip_address(peer.host.partition("%")[0]), ip_address(here.host.partition("%")[0])
    family = 0x11 if source.version == 4 else 0x21
    ports = struct.pack(">HH", peer.port, here.port)
    told = source.packed + target.packed + ports + _FIELD.pack(_SECRET, len(secret)) + secret
    return _HEAD.pack(_SIGNATURE, _PROXY, family, len(told)) + told


def read_header(data: bytes, secret: bytes) -> tuple[Peer, bytes] | None:
    """Of the first bytes of a connection: whose it is, and what follows the header; None: the rest of a header may follow.

    Raises NotPassed.
    """
    if not _SIGNATURE.startswith(data[: len(_SIGNATURE)]):
        raise NotPassed
    if len(data) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(data)
    size = _FAMILIES.get(family)
    if command != _PROXY or size is None or not 2 * size + 4 <= length <= _MOST_BYTES:
        raise NotPassed
    if len(data) < _HEAD.size + length:
        return None
    told, rest = data[_HEAD.size : _HEAD.size + length], data[_HEAD.size + length :]
    if not hmac.compare_digest(_secret(told[2 * size + 4 :]), secret):
        raise NotPassed
    (port,) = struct.unpack_from(">H", told, 2 * size)
    return Peer(str(ip_address(told[:size])), port), rest


def _secret(fields: bytes) -> bytes:
    """b"": there is none."""
    at = 0
    while at + _FIELD.size <= len(fields):
        kind, length = _FIELD.unpack_from(fields, at)
        at += _FIELD.size
        if kind == _SECRET:
            return fields[at : at + length]
        at += length
    return b""
