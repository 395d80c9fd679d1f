"""The webhook's certificate where nobody else makes one: our own authority, kept in a Secret.

The replicas share the Secret. Whichever finds it missing, or its certificate in its last third,
writes a new one; the API server lets one of them win, and the others read what that one wrote. The
webhook's configuration is then told whom to trust (caBundle). When the authority is renewed, both
stand in there until the old one has run out, so no call fails on the way.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from extender.api import ApiError, KubeApi, NoAnswer

log = logging.getLogger(__name__)

_SERVING = timedelta(days=90)
_AUTHORITY = timedelta(days=3650)
_LOOK = 300.0
_AGAIN = 5.0
# Clocks of machines differ.
_EARLIER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are kept: the Secret, the webhook's configuration, and the names to serve."""

    namespace: str
    secret: str
    configuration: str
    service: str

    @property
    def hosts(self) -> tuple[str, ...]:
        name = f"{self.service}.{self.namespace}"
        return (f"{name}.svc", name, f"{name}.svc.cluster.local", self.service)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM."""

    cert: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.cert)

    def left(self, now: datetime) -> float:
        """How much of its life is left, from 1 to 0 and less."""
        cert = self.parsed
        start, end = cert.not_valid_before_utc, cert.not_valid_after_utc
        return (end - now) / (end - start)


@dataclass(frozen=True, slots=True)
class Keys:
    """What the Secret holds. ``bundle``: the authority, and the one before while it is valid."""

    authority: Pair
    serving: Pair
    bundle: bytes

    def data(self) -> dict[str, str]:
        values = {
            "ca.key": self.authority.key,
            "ca.crt": self.bundle,
            "authority.crt": self.authority.cert,
            "tls.crt": self.serving.cert,
            "tls.key": self.serving.key,
        }
        return {name: base64.b64encode(value).decode() for name, value in values.items()}


def read(data: Mapping[str, Any]) -> Keys | None:
    """The keys in a Secret's data, or None where they are missing or not keys."""
    try:
        got = {name: base64.b64decode(str(value)) for name, value in data.items()}
        keys = Keys(
            Pair(got["authority.crt"], got["ca.key"]),
            Pair(got["tls.crt"], got["tls.key"]),
            got["ca.crt"],
        )
        for pair in (keys.authority, keys.serving):
            key = serialization.load_pem_private_key(pair.key, None)
            if key.public_key() != pair.parsed.public_key():
                return None
    except (KeyError, ValueError, TypeError):
        return None
    return keys


def renewed(keys: Keys | None, hosts: Sequence[str], now: datetime) -> Keys:
    """``keys`` if they are good for long enough, else new ones."""
    if keys is None or keys.authority.left(now) <= 0:
        authority = _authority(now)
        return Keys(authority, _serving(authority, hosts, now), authority.cert)
    authority, serving, bundle = keys.authority, keys.serving, _valid(keys.bundle, now)
    if authority.left(now) < 1 / 3:
        authority = _authority(now)
        bundle = authority.cert + bundle
        # The old certificate is trusted as long as everybody may still have the old bundle; the
        # new one is taken up at the next look.
        return Keys(authority, keys.serving, bundle)
    issued = serving.parsed.issuer == authority.parsed.subject
    if serving.left(now) < 1 / 3 or not issued or _hosts(serving) != set(hosts):
        serving = _serving(authority, hosts, now)
    return Keys(authority, serving, bundle)


class Keeper:
    """Keeps Secret, files and webhook configuration in step, until cancelled."""

    def __init__(self, api: KubeApi, place: Place, folder: Path) -> None:
        self.api = api
        self.place = place
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.problem = ""
        # Whether the API server was told whom to trust, once at least.
        self.trusted = False

    async def run(self, ready: asyncio.Event) -> None:
        """``ready`` is set once there is a certificate to serve."""
        while True:
            wait = _LOOK
            try:
                keys = await self._settle()
                self._write(keys)
                ready.set()
                await self._trust(keys)
                self.trusted, self.problem = True, ""
            except (ApiError, NoAnswer, OSError) as error:
                wait = _AGAIN
                text = f"the webhook's certificate cannot be kept: {error}"
                if text != self.problem:
                    log.warning("%s; trying again", text)
                self.problem = text
            await asyncio.sleep(wait)

    async def _settle(self) -> Keys:
        """What the Secret holds, after it was renewed where that was due."""
        collection = f"/api/v1/namespaces/{self.place.namespace}/secrets"
        path = f"{collection}/{self.place.secret}"
        while True:
            try:
                found = await self.api.get(path)
            except ApiError as error:
                if error.status != 404:
                    raise
                found = {}
            old = read(found.get("data") or {})
            keys = renewed(old, self.place.hosts, datetime.now(UTC))
            if keys == old:
                return keys
            try:
                if found:
                    version = found["metadata"]["resourceVersion"]
                    body = {"metadata": {"resourceVersion": version}, "data": keys.data()}
                    await self.api.merge_patch(path, body)
                else:
                    await self.api.post(collection, self._secret(keys))
            except ApiError as error:
                if error.status != 409:
                    raise
                # Another replica was first: take what it wrote.
                continue
            log.info(
                "the webhook has a new certificate, until %s",
                keys.serving.parsed.not_valid_after_utc,
            )
            return keys

    def _secret(self, keys: Keys) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.place.secret},
            "type": "Opaque",
            "data": keys.data(),
        }

    def _write(self, keys: Keys) -> None:
        """For the server, which takes up changed files. The key first: it looks at both."""
        for path, value in ((self.key, keys.serving.key), (self.cert, keys.serving.cert)):
            if path.exists() and path.read_bytes() == value:
                continue
            fresh = path.with_suffix(".new")
            fresh.touch(mode=0o600)
            fresh.write_bytes(value)
            os.replace(fresh, path)

    async def _trust(self, keys: Keys) -> None:
        path = (
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"
            f"{self.place.configuration}"
        )
        found = await self.api.get(path)
        bundle = base64.b64encode(keys.bundle).decode()
        hooks = found.get("webhooks") or []
        wrong = [i for i, h in enumerate(hooks) if h["clientConfig"].get("caBundle") != bundle]
        if not wrong:
            return
        for hook in hooks:
            hook["clientConfig"]["caBundle"] = bundle
        version = found["metadata"]["resourceVersion"]
        await self.api.merge_patch(
            path, {"metadata": {"resourceVersion": version}, "webhooks": hooks}
        )
        log.info("the webhook's configuration %s trusts the certificate", self.place.configuration)


def _authority(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own, so that two authorities in one bundle are told apart.
    name = _name(f"gpushare-webhook-{x509.random_serial_number() & 0xFFFFFFFF:08x}")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    cert = (
        _builder(name, name, key, now, _AUTHORITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(cert, key)


def _serving(authority: Pair, hosts: Sequence[str], now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    cert = (
        _builder(_name(hosts[0][:64]), authority.parsed.subject, key, now, _SERVING)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(h) for h in hosts]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pair(cert, key)


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + life)
    )


def _pair(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        cert.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _hosts(pair: Pair) -> set[str]:
    try:
        names = pair.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return set(names.value.get_values_for_type(x509.DNSName))


def _valid(bundle: bytes, now: datetime) -> bytes:
    certs = x509.load_pem_x509_certificates(bundle)
    return b"".join(
        cert.public_bytes(serialization.Encoding.PEM)
        for cert in certs
        if cert.not_valid_after_utc > now
    )
