from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from device_plugin.credentials import NoCredentials, find, from_kubeconfig, from_service_account


def authority() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, in PEM."""
    import datetime

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), key.private_bytes(pem, *plain)


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    data = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(data))
    return path


def test_a_service_account_and_its_renewed_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "ca.crt").write_bytes(authority()[0])
    (tmp_path / "token").write_text("one\n")
    credentials = from_service_account(tmp_path)
    assert credentials.server == "https://[fd00::1]:443"
    assert credentials.tls is not None
    assert credentials.tls.verify_mode == ssl.CERT_REQUIRED
    assert credentials.headers() == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two")
    assert credentials.headers() == {"Authorization": "Bearer one"}
    credentials._read_at -= 61
    assert credentials.headers() == {"Authorization": "Bearer two"}


def test_a_kubeconfig_with_a_client_certificate(tmp_path: Path) -> None:
    certificate, key = authority()
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    (tmp_path / "ca.crt").write_bytes(certificate)
    path = kubeconfig(tmp_path / "config", user, **{"certificate-authority": "ca.crt"})
    credentials = from_kubeconfig(path)
    assert credentials.server == "https://10.0.0.1:6443"
    assert credentials.headers() == {}
    assert credentials.tls is not None


def test_a_kubeconfig_with_a_token_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    path = kubeconfig(tmp_path / "config", {"tokenFile": "token"})
    assert from_kubeconfig(path).headers() == {"Authorization": "Bearer abc"}


def test_the_environment_names_a_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = kubeconfig(tmp_path / "config", {"token": "abc"})
    monkeypatch.setenv("KUBECONFIG", f"{path}:/other")
    assert find().headers() == {"Authorization": "Bearer abc"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "current-context: x",
        json.dumps({"current-context": "c", "contexts": [], "clusters": [], "users": []}),
        "{",
    ],
)
def test_an_unusable_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(NoCredentials, match=r"config cannot be used.*DevicePlugin\.kubeconfig"):
        from_kubeconfig(path)


def test_a_user_that_runs_a_program_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"exec": {"command": "aws"}})
    with pytest.raises(NoCredentials, match="runs a program"):
        from_kubeconfig(path)
