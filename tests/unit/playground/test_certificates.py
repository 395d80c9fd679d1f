from __future__ import annotations

import base64
import ipaddress
import json
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from playground import kubeconfigs
from playground.certificates import (
    CLUSTER_CA,
    ETCD_CA,
    FRONT_PROXY_CA,
    Identity,
    control_plane_identities,
    issue,
    issue_all,
    make_authority,
    node_identity,
)

IDENTITIES = (
    *control_plane_identities("10.190.0.1", "10.190.32.1"),
    node_identity("t4-1", "10.190.0.11"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    issue_all(folder, IDENTITIES)
    return folder


def load(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_no_two_components_share_a_user() -> None:
    clients = [i for i in IDENTITIES if i.client and i.authority == CLUSTER_CA]
    assert len({i.user for i in clients}) == len(clients)


def test_only_the_administrator_is_above_rbac() -> None:
    assert [i.file for i in IDENTITIES if "system:masters" in i.groups] == ["admin"]


def test_kubelet_is_a_node_for_the_node_authorizer(folder: Path) -> None:
    certificate = load(folder, "kubelet-t4-1")
    subject = certificate.subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:t4-1"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ipaddress.ip_address("10.190.0.11") in names.get_values_for_type(x509.IPAddress)


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda i: i.file)
def test_certificate_is_signed_by_its_authority_and_for_its_use_alone(
    folder: Path, identity: Identity
) -> None:
    certificate = load(folder, identity.file)
    certificate.verify_directly_issued_by(load(folder, identity.authority))
    for other in {CLUSTER_CA, ETCD_CA, FRONT_PROXY_CA} - {identity.authority}:
        with pytest.raises(ValueError, match=r"."):
            certificate.verify_directly_issued_by(load(folder, other))
    assert (ExtendedKeyUsageOID.CLIENT_AUTH in usages(certificate)) == identity.client
    assert (ExtendedKeyUsageOID.SERVER_AUTH in usages(certificate)) == bool(identity.hosts)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca


def test_api_server_is_valid_under_every_name_that_clients_use(folder: Path) -> None:
    names = (
        load(folder, "kube-apiserver")
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    addresses = {str(a) for a in names.get_values_for_type(x509.IPAddress)}
    assert {"10.190.0.1", "10.190.32.1", "127.0.0.1"} <= addresses
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


def test_private_keys_are_their_owners_alone(folder: Path) -> None:
    keys = list(folder.glob("*.key"))
    assert len(keys) == len(IDENTITIES) + 3 + 1  # authorities, service accounts
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_what_is_there_is_kept(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    issue_all(folder, IDENTITIES)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_missing_certificate_is_issued_by_the_authority_that_is_there(tmp_path: Path) -> None:
    issue_all(tmp_path, IDENTITIES[:1])
    issue_all(tmp_path, IDENTITIES)
    load(tmp_path, "admin").verify_directly_issued_by(load(tmp_path, CLUSTER_CA))


def test_two_certificates_never_share_a_serial_number() -> None:
    authority = make_authority("x")
    serials = {issue(IDENTITIES[0], *authority)[0].serial_number for _ in range(20)}
    assert len(serials) == 20


def test_kubeconfig_has_all_it_needs_and_is_private(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "admin.kubeconfig"
    kubeconfigs.write(path, "https://10.190.0.1:6443", folder, "admin", CLUSTER_CA, "playground-x")
    config = json.loads(path.read_text())
    user = config["users"][0]["user"]
    certificate = base64.b64decode(user["client-certificate-data"])
    assert certificate == (folder / "admin.crt").read_bytes()
    assert config["current-context"] == config["contexts"][0]["name"] == "playground-x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
