"""The certificate of the state API, in its three ways."""

from __future__ import annotations

import base64
import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from tests.unit.chart.rendering import Chart

SECRET = "gpushare-extender-tls"
SERVICES = ("gpushare-extender", "gpushare-device-plugin")


@pytest.mark.parametrize("service", SERVICES)
def test_own_certificate_is_good_for_every_way_in(chart: Chart, service: str) -> None:
    release = chart.render(namespace="ours")
    data = {
        name: base64.b64decode(value)
        for name, value in release.of("Secret", f"{service}-tls")["data"].items()
    }
    authority = x509.load_pem_x509_certificate(data["ca.crt"])
    certificate = x509.load_pem_x509_certificate(data["tls.crt"])
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {
        service,
        f"{service}.ours",
        f"{service}.ours.svc",
        f"{service}.ours.svc.cluster.local",
        "localhost",
    }
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3000)
    assert b"PRIVATE KEY" in data["tls.key"]


def test_callers_find_the_authority_where_nothing_is_secret(chart: Chart) -> None:
    release = chart.render({"tls": {"publishTo": ["jupyter"]}})
    secret = base64.b64decode(release.of("Secret", SECRET)["data"]["ca.crt"])
    public = {
        m["metadata"]["namespace"]: m["data"]["ca.crt"].strip()
        for m in release.all("ConfigMap")
        if m["metadata"]["name"] == "gpushare-extender-ca"
    }
    assert public == dict.fromkeys(("gpushare", "jupyter"), secret.decode().strip())


def test_state_api_and_agents_do_not_share_a_key(chart: Chart) -> None:
    """A stolen node must not be able to pass itself off as the state API."""
    release = chart.render()
    keys = {release.of("Secret", f"{service}-tls")["data"]["tls.key"] for service in SERVICES}
    assert len(keys) == 2
    spec = release.pod_spec("DaemonSet", "gpushare-device-plugin")
    secrets = {v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    assert secrets == {"gpushare-device-plugin-tls"}


def test_secret_of_the_admin_is_used(chart: Chart) -> None:
    release = chart.render({"tls": {"existingSecret": "mine"}})
    assert {*release.names("Secret")} == {"gpushare-device-plugin-tls", "gpushare-webhook-tls"}
    volumes = {
        v["name"]: v for v in release.pod_spec("Deployment", "gpushare-user-scheduler")["volumes"]
    }
    assert volumes["tls"]["secret"]["secretName"] == "mine"


def test_cert_manager_makes_it(chart: Chart) -> None:
    release = chart.render({"tls": {"certManager": {"enabled": True}}})
    assert release.all("Secret") == []
    certificate = release.of("Certificate", "gpushare-extender")
    assert certificate["spec"]["secretName"] == SECRET
    assert certificate["spec"]["issuerRef"]["name"] == release.all("Issuer")[0]["metadata"]["name"]


def test_issuer_of_the_admin_is_used(chart: Chart) -> None:
    issuer = {"kind": "ClusterIssuer", "name": "corporate"}
    release = chart.render({"tls": {"certManager": {"enabled": True, "issuerRef": issuer}}})
    assert release.all("Issuer") == []
    assert release.of("Certificate", "gpushare-extender")["spec"]["issuerRef"] == issuer
