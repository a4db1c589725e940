"""A TLS client that gives new keys again and again, which Python's ssl has no word for: OpenSSL itself, as Python has loaded it."""

from __future__ import annotations

import _ssl
import ctypes
import socket
from typing import Final

_OPENSSL: Final = ctypes.CDLL(_ssl.__file__)
_POINTER: Final = ctypes.c_void_p
for _name, _result, _arguments in (
    ("TLS_client_method", _POINTER, []),
    ("SSL_CTX_new", _POINTER, [_POINTER]),
    ("SSL_new", _POINTER, [_POINTER]),
    ("SSL_set_fd", ctypes.c_int, [_POINTER, ctypes.c_int]),
    ("SSL_connect", ctypes.c_int, [_POINTER]),
    ("SSL_key_update", ctypes.c_int, [_POINTER, ctypes.c_int]),
    ("SSL_do_handshake", ctypes.c_int, [_POINTER]),
    ("SSL_free", None, [_POINTER]),
    ("SSL_CTX_free", None, [_POINTER]),
):
    getattr(_OPENSSL, _name).restype, getattr(_OPENSSL, _name).argtypes = _result, _arguments


def flood(place: tuple[str, int], most: int) -> int:
    """How many new keys the other side took before it hung up, ``most`` at most."""
    with socket.create_connection(place, 20) as plain:
        plain.settimeout(None)
        context = _OPENSSL.SSL_CTX_new(_OPENSSL.TLS_client_method())
        tls = _OPENSSL.SSL_new(context)
        try:
            _OPENSSL.SSL_set_fd(tls, plain.fileno())
            if _OPENSSL.SSL_connect(tls) != 1:
                raise ConnectionError("no handshake")
            for number in range(most):
                if _OPENSSL.SSL_key_update(tls, 0) != 1 or _OPENSSL.SSL_do_handshake(tls) != 1:
                    return number
            return most
        finally:
            _OPENSSL.SSL_free(tls)
            _OPENSSL.SSL_CTX_free(context)
