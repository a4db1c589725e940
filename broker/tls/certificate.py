"""The broker's certificate and key as they are on disk, and what a connection is encrypted by.

They may change while the broker runs: what is wrong with new ones is said, and the old ones hold. Connections keep what they began with.
"""

from __future__ import annotations

import logging
import ssl
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..config.models import TlsSection
from ..errors import Refused

if TYPE_CHECKING:
    from cryptography.x509 import Certificate as X509

log = logging.getLogger("homing")

_DAY_S: Final = 86_400
#: So long before its end a certificate is spoken of, once a day.
WARN_DAYS: Final = 30
#: For TLS 1.2; all that TLS 1.3 has are as good.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_MAKE_ONE: Final = "for a first try, homing tls self-signed makes a certificate"


class _Files(NamedTuple):
    """What they say: the context for new connections, and when the first of the chain ends, in seconds since 1970."""

    context: ssl.SSLContext
    ends_s: float
    #: What tells one version of the files from the next.
    stamp: tuple[object, ...]


class Certificate:
    def __init__(self, section: TlsSection) -> None:
        """Raises Refused."""
        self._section = section
        self._files = self.read()
        self._stamp_seen = self._files.stamp
        self._warned_at_s = 0.0
        self.warn_of_end()

    @property
    def context(self) -> ssl.SSLContext:
        return self._files.context

    @property
    def ends_s(self) -> float:
        """Seconds since 1970."""
        return self._files.ends_s

    def user_of(self, tls: ssl.SSLObject) -> str | None:
        """Whom the certificate at the other end is of; None where it showed none, or that names nobody."""
        shown: dict[str, Any] = tls.getpeercert() or {}
        if self._section.user_from == "common-name":
            names = [value for part in shown.get("subject", ()) for name, value in part if name == "commonName"]
        else:
            kind = {"san-dns": "DNS", "san-email": "email", "san-uri": "URI"}[self._section.user_from]
            names = [value for name, value in shown.get("subjectAltName", ()) if name == kind]
        return names[0] if names else None

    # -- as the files change. All of this reads them: beside the loop ------------------------------------------------

    def read(self) -> _Files:
        """The files as they are now. Raises Refused, and nothing has changed."""
        section = self._section
        stamp = self._stamp()
        chain = _read_chain(section.certificate)
        _check_chain(chain, section.certificate)
        context = _context(section)
        return _Files(context, min(each.not_valid_after_utc.timestamp() for each in chain), stamp)

    def take_up(self, files: _Files) -> None:
        if files.stamp != self._files.stamp:
            log.info(
                "certificate-changed: the certificate %s was taken up anew, valid until %s", self._section.certificate, _day(files.ends_s)
            )
            self._warned_at_s = 0.0
        self._files, self._stamp_seen = files, files.stamp
        self.warn_of_end()

    def look(self) -> None:
        """Takes up files that have changed; says once why where they cannot be used, and once a day when the end is near."""
        stamp = self._stamp()
        if stamp != self._stamp_seen:
            self._stamp_seen = stamp
            try:
                self.take_up(self.read())
            except Refused as refusal:
                log.error("certificate-unusable: %s; the one in force stays; %s", refusal.message, refusal.fix)
        self.warn_of_end()

    def warn_of_end(self) -> None:
        now_s = time.time()
        left_s = self._files.ends_s - now_s
        if left_s > WARN_DAYS * _DAY_S or now_s - self._warned_at_s < _DAY_S:
            return
        self._warned_at_s = now_s
        day = _day(self._files.ends_s)
        if left_s <= 0:
            log.error(
                "certificate-ended: the certificate %s ended on %s: clients refuse it; put a new one there", self._section.certificate, day
            )
        else:
            left_days = left_s // _DAY_S
            log.warning(
                "certificate-ends: the certificate %s ends on %s, in %d days: put a new one there",
                self._section.certificate,
                day,
                left_days,
            )

    def _stamp(self) -> tuple[object, ...]:
        return tuple(_stamp_of(Path(name)) for name in (self._section.certificate, self._section.key, self._section.client_ca) if name)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _day(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _unreadable(name: str, what: str, error: Exception) -> Refused:
    plain = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
    why = (plain and getattr(error, "strerror", None)) or "it is no PEM file of one"
    return Refused("tls-unusable", f"the {what} {name} cannot be read: {why}", f"check tls: in broker.yaml; {_MAKE_ONE}")


def _read_chain(name: str) -> list[X509]:
    """Raises Refused."""
    # Whoever has no certificate need not load it.
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(Path(name).read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable(name, "certificate", error) from error


def _check_chain(chain: list[X509], name: str) -> None:
    """Each issued by the next, and the first one's time has come. Raises Refused."""
    from cryptography.exceptions import InvalidSignature

    for number, (issued, issuer) in enumerate(pairwise(chain), 1):
        try:
            issued.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):
            said = f"in {name} certificate {number + 1} did not issue certificate {number}, so that clients cannot follow the chain"
            raise Refused("tls-unusable", said, "put the broker's own certificate first, then the one that issued it, and so on") from None
    begins = max(each.not_valid_before_utc for each in chain)
    if begins > datetime.now(UTC):
        log.error(
            "certificate-not-valid-yet: the certificate %s is not valid before %s: clients refuse it; check the clock",
            name,
            _day(begins.timestamp()),
        )


def _context(section: TlsSection) -> ssl.SSLContext:
    """Raises Refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    # No session outlives its connection: what was proven at one handshake holds for no other.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0

    def encrypted() -> str:
        raise Refused("tls-unusable", f"the key {section.key} is encrypted", "decrypt it (openssl pkey), and let only the broker read it")

    try:
        context.load_cert_chain(section.certificate, section.key, encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            said = f"the key {section.key} is not that of the certificate {section.certificate}"
            raise Refused("tls-unusable", said, "name the two that were made together; where both are being replaced, wait") from None
        raise _unreadable(section.key, "key", error) from error
    except OSError as error:
        raise _unreadable(section.key, "key", error) from error
    if section.client_ca is not None:
        try:
            context.load_verify_locations(section.client_ca)
        except OSError as error:
            raise _unreadable(section.client_ca, "file of client-ca", error) from error
        context.verify_mode = ssl.CERT_REQUIRED if section.require_client_certificate else ssl.CERT_OPTIONAL
    return context
