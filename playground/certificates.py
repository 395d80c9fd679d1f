"""The cluster's certificates: three authorities, and an identity of its own for every component.

Kubernetes reads a client certificate's common name as the user and its organisations as groups
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=365)
_SKEW = dt.timedelta(minutes=5)  # a clock that steps back must not make a certificate too young

CLUSTER_CA = "cluster-ca"
ETCD_CA = "etcd-ca"
FRONT_PROXY_CA = "front-proxy-ca"
AUTHORITIES = (CLUSTER_CA, ETCD_CA, FRONT_PROXY_CA)
SERVICE_ACCOUNT_KEY = "service-account"


@dataclass(frozen=True, slots=True)
class Identity:
    """One certificate to issue: what it is called on disk, who it names, what it may be used for."""

    file: str
    user: str
    groups: tuple[str, ...] = ()
    authority: str = CLUSTER_CA
    hosts: tuple[str, ...] = ()  # addresses and names it serves; none for a pure client
    client: bool = True


def control_plane_identities(host: str, service: str) -> tuple[Identity, ...]:
    """Everything but the nodes. ``host``: the control plane's address; ``service``: the ClusterIP."""
    etcd_hosts = (host, "127.0.0.1", "localhost")
    api_names = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    )
    return (
        Identity("etcd", "etcd", authority=ETCD_CA, hosts=etcd_hosts),  # peers are clients, too
        Identity("etcd-client", "kube-apiserver", authority=ETCD_CA),
        Identity(
            "kube-apiserver",
            "kube-apiserver",
            hosts=(host, service, "127.0.0.1", "localhost", *api_names),
            client=False,
        ),
        Identity("kubelet-client", "kube-apiserver-kubelet-client"),
        Identity("front-proxy-client", "front-proxy-client", authority=FRONT_PROXY_CA),
        Identity("kube-controller-manager", "system:kube-controller-manager", hosts=(host,)),
        Identity("kube-scheduler", "system:kube-scheduler", hosts=(host,)),
        Identity("kube-proxy", "system:kube-proxy"),
        Identity("kwok", "playground:kwok", hosts=(host,)),
        # The group whose rights RBAC cannot take away: somebody has to grant the first right.
        Identity("admin", "playground-admin", ("system:masters",)),
    )


def node_identity(name: str, address: str) -> Identity:
    """A kubelet: the Node authorizer knows it by this user and group; it serves logs and exec."""
    return Identity(
        f"kubelet-{name}", f"system:node:{name}", ("system:nodes",), hosts=(name, address)
    )


def issue_all(folder: Path, identities: Iterable[Identity]) -> None:
    """Write authorities, key pairs and the service account key that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authorities = {name: _authority(folder, name) for name in AUTHORITIES}
    for identity in identities:
        if not (folder / f"{identity.file}.crt").exists():
            certificate, key = issue(identity, *authorities[identity.authority])
            _write(folder, identity.file, certificate, key)
    if not (folder / f"{SERVICE_ACCOUNT_KEY}.key").exists():
        _write_service_account_key(folder)


def issue(
    identity: Identity, issuer: x509.Certificate, issuer_key: ec.EllipticCurvePrivateKey
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A key pair for ``identity``, signed by the authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH] if identity.client else []
    if identity.hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    builder = (
        _builder(_subject(identity), issuer.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if identity.hosts:
        names = x509.SubjectAlternativeName([_alternative(host) for host in identity.hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()), key


def make_authority(name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A new self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"playground-{name}")])
    certificate = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _authority(folder: Path, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate_file, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    if certificate_file.exists() and key_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return x509.load_pem_x509_certificate(certificate_file.read_bytes()), key
    certificate, new_key = make_authority(name)
    _write(folder, name, certificate, new_key)
    return certificate, new_key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _subject(identity: Identity) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in identity.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, identity.user)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
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


def _write_service_account_key(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write_private(folder / f"{SERVICE_ACCOUNT_KEY}.key", _pem(key))
    (folder / f"{SERVICE_ACCOUNT_KEY}.pub").write_bytes(public)


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    _write_private(folder / f"{name}.key", _pem(key))
    # The certificate last: its presence says that the pair is complete.
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
