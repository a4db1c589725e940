"""A certificate for a first try: of an authority that exists only while it is made, so that nobody can make more of them."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..errors import Refused

_VALID: Final = timedelta(days=365)


class Made(NamedTuple):
    authority: Path
    certificate: Path
    key: Path
    ends: datetime


def make(directory: Path, hosts: list[str]) -> Made:
    """Writes ``ca.pem`` for clients, ``server.pem`` and ``server.key`` for the broker under any of ``hosts``, names or addresses.

    Raises Refused where there are such files already, and OSError.
    """
    made = Made(directory / "ca.pem", directory / "server.pem", directory / "server.key", datetime.now(UTC) + _VALID)
    if there := [path for path in made[:3] if path.exists()]:
        raise Refused("files-exist", f"{there[0]} is there already", "remove it, or name another directory with --directory")
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("Homing, self-signed")
    authority = (
        _of(issuer, issuer, authority_key.public_key(), made.ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, SHA256())
    )
    certificate = (
        _of(_name(hosts[0][:64]), issuer, key.public_key(), made.ends)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    _write(made.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    _write(made.certificate, certificate.public_bytes(Encoding.PEM), 0o644)
    _write(made.authority, authority.public_bytes(Encoding.PEM), 0o644)
    return made


def _write(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _of(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, ends: datetime) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    # From a little earlier: clocks differ.
    began = datetime.now(UTC) - timedelta(hours=1)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(began).not_valid_after(ends)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
