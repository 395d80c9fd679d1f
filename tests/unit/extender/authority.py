"""A small certificate authority for tests."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name, ())
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(
            self._build(self._name, self._key.public_key(), (), authority=True).public_bytes(
                serialization.Encoding.PEM
            )
        )

    def issue(self, name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> list[str]:
        """Paths of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._build(_name(name, groups), key.public_key(), hosts, authority=False)
        paths = [self.folder / f"{name}.{kind}" for kind in ("pem", "key")]
        paths[0].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return [str(path) for path in paths]

    def client(self, name: str, groups: Sequence[str] = ()) -> ssl.SSLContext:
        """For a client that shows a certificate of this authority, and trusts it."""
        context = ssl.create_default_context(cafile=str(self.file))
        context.load_cert_chain(*self.issue(name, groups))
        return context

    def _build(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        hosts: Sequence[str],
        *,
        authority: bool,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        # What Python asks of certificates from 3.13 on (VERIFY_X509_STRICT), and RFC 5280 before.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if authority:
            own = x509.SubjectKeyIdentifier.from_public_key(key)
            builder = builder.add_extension(own, critical=False)
            builder = builder.add_extension(_SIGNS, critical=True)
        if hosts:
            names = [_host(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


_SIGNS = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
    encipher_only=False, decipher_only=False,
)  # fmt: skip


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
