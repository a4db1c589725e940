"""Certificates that tests make: an authority, and whom it vouches for."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

LOOPBACK = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """``file`` is its own certificate, in PEM."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.pem"
        certificate = _builder(self._name, self._name, self._key.public_key(), timedelta(days=90))
        certificate = certificate.add_extension(x509.BasicConstraints(True, None), critical=True)
        # From Python 3.13 on, clients that ask for the default context take no authority without these.
        certificate = certificate.add_extension(_SIGNS_CERTIFICATES, critical=True)
        identified = certificate.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        made = identified.sign(self._key, SHA256())
        self.file.write_bytes(made.public_bytes(Encoding.PEM))

    def issue(self, name: str, *, to: str = "localhost", alternatives: list[x509.GeneralName] = LOOPBACK, days: float = 90) -> Path:
        """``NAME.pem`` for ``to``, its key in it, good for so many days; a negative number: it ended then."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(to), self._name, key.public_key(), timedelta(days=days))
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        made = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False).sign(self._key, SHA256())
        path = self._directory / f"{name}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(made.public_bytes(Encoding.PEM) + private)
        return path


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, good_for: timedelta) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    serial = builder.serial_number(x509.random_serial_number())
    return serial.not_valid_before(now - timedelta(days=30)).not_valid_after(now + good_for)
