"""The admission webhook: what it changes, what it refuses, and its certificate."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st
from traitlets import TraitError

from extender.admission import never
from extender.admission.certificates import Keeper, Keys, Place, read, renewed
from extender.admission.mutate import Changes, Delivery, Wishes, others, sharing
from extender.admission.review import Webhook, application
from extender.admission.serving import Port
from extender.admission.settings import Webhook as Settings
from extender.api import ApiError
from extender.server import CannotListen
from extender.view import ClusterView
from gpushare.assignment import assign
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.request import PodRequest, parse_request
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import RULES, HandClock, running, until
from tests.unit.extender.objects import a10, node, pod, t4
from tests.unit.extender.test_http import served
from tests.unit.gpushare.strategies import json_values
from tests.unit.gpushare.strategies import requests as pod_requests

NAMES = Names()
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
ALL = Wishes("gpushare-user-scheduler", (TOLERATION,), "nvidia", Delivery.CDI, void_others=True)


def applied(made: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """The pod as the API server would patch it."""
    patched = json.loads(json.dumps(made))
    for operation in changes.patch:
        assert operation["op"] == "add"
        *way, last = operation["path"].strip("/").split("/")
        target = patched
        for step in way:
            target = target[int(step)] if isinstance(target, list) else target[step]
        target[last] = operation["value"]
    return patched


def env(made: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found = made["spec"]["containers"][index].get("env", [])
    assert len({entry["name"] for entry in found}) == len(found)
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in found}


def with_env(made: dict[str, Any], *entries: tuple[str, str], **more: Any) -> dict[str, Any]:
    made["spec"]["containers"][0].update(
        env=[{"name": name, "value": value} for name, value in entries], **more
    )
    return made


# -- what is changed -----------------------------------------------------------------------------


def test_a_pod_with_a_slice_is_sent_to_our_scheduler():
    made = pod("p", mem=3, schedulerName="default-scheduler", tolerations=[{"key": "mine"}])
    changes = sharing(made, NAMES, ALL)
    spec = applied(made, changes)["spec"]
    assert spec["schedulerName"] == "gpushare-user-scheduler"
    assert spec["tolerations"] == [{"key": "mine"}, TOLERATION]
    assert spec["runtimeClassName"] == "nvidia"
    assert not changes.warnings
    other = pod("p", mem=3, schedulerName="hub-user-scheduler")
    assert "cannot place slices" in sharing(other, NAMES, ALL).warnings[0]


def test_what_is_right_already_is_left_alone():
    right = ("NVIDIA_VISIBLE_DEVICES", "void")
    made = with_env(pod("p", mem=3, tolerations=[TOLERATION], runtimeClassName="nvidia"), right)
    assert (
        sharing(made, NAMES, Wishes("gpushare-user-scheduler", (TOLERATION,), "nvidia"))
        == Changes()
    )
    assert sharing(made, NAMES, Wishes()) == Changes()


def test_variables_that_say_what_to_give_are_taken_out():
    brought = with_env(
        pod("p", mem=3),
        ("A", "1"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=64G"),
    )
    assert env(applied(brought, sharing(brought, NAMES, Wishes()))) == {
        "A": "1",
        "NVIDIA_VISIBLE_DEVICES": "void",  # or the image's own would count, with CRI-O
    }


def test_variables_that_are_not_seen_are_overridden():
    brought = with_env(pod("p", mem=3), ("A", "1"), envFrom=[{"configMapRef": {"name": "m"}}])
    after = env(applied(brought, sharing(brought, NAMES, Wishes())))
    assert after["A"] == "1"
    assert after["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert after["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"


def test_without_cdi_the_cards_come_from_the_annotation():
    made = pod(
        "p", {"name": "helper", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}, mem=3
    )
    after = applied(made, sharing(made, NAMES, Wishes(delivery=Delivery.ENVIRONMENT)))
    name = after["spec"]["containers"][0]["name"]
    assert env(after)["NVIDIA_VISIBLE_DEVICES"]["fieldRef"]["fieldPath"] == (
        f"metadata.annotations['{NAMES.visible(name)}']"
    )
    assert env(after, 1) == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_pods_without_a_slice_see_no_card_where_that_is_wanted():
    made = with_env(pod("p", {"name": "c"}), ("NVIDIA_VISIBLE_DEVICES", "all"))
    assert others(made, NAMES, Wishes()) == Changes()
    assert env(applied(made, others(made, NAMES, ALL))) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    assert others(made, NAMES, ALL) == Changes()


@given(json_values())
def test_garbage_is_left_as_it_is_or_made_right_but_never_a_fault(spec):
    made = {"metadata": {}, "spec": spec}
    for change in (sharing, others):
        change(made, NAMES, ALL)


# -- what is refused -----------------------------------------------------------------------------

T4, A10 = ("Tesla T4", 15360), ("NVIDIA A10", 23028)


def judged(known: list[tuple[tuple[str, int], ...]], **wants: Any) -> never.Verdict:
    models = wants.pop("models", "")
    annotations = {NAMES.card_model: models} if models else {}
    annotations |= {NAMES.cards: wants.pop("cards")} if "cards" in wants else {}
    return never.judge(parse_request(pod("p", annotations=annotations, **wants), NAMES), known)


def test_what_can_never_fit_is_refused_with_what_would():
    cluster = [(T4, T4), (A10,)]
    assert judged(cluster, mem=22) == never.Verdict()
    assert judged(cluster, mem=30).refusal == (
        "this can never fit: wants 30 GiB on one card, the largest card here has 15 GiB; "
        "ask for less (there is A10 with 22.5 GiB, T4 with 15 GiB)"
    )
    assert judged(cluster, mem=22, models="T4").refusal.endswith(
        "ask for less (there is T4 with 15 GiB), or name another model: "
        "there are A10 with 22.5 GiB, T4 with 15 GiB"
    )
    assert "wants 3" in judged(cluster, percent=300).refusal
    assert judged(cluster, mem=10, cards="2") == never.Verdict()


def test_nobody_knows_how_large_absent_cards_are():
    verdict = judged([(T4,)], mem=30, models="H100")
    assert not verdict.refusal
    assert "no node has H100 at present" in verdict.warning
    assert judged([], mem=1).warning


@given(
    pod_requests(),
    st.lists(st.lists(st.sampled_from([T4, A10]), min_size=1, max_size=3), max_size=3),
)
@settings(max_examples=150)
def test_only_what_no_empty_node_takes_is_refused(request: PodRequest, nodes):
    request = replace(request, uuids=())
    if not request.containers:
        return
    known = never.layouts(
        [Card(f"{i}", i, i, model, memory) for i, (model, memory) in enumerate(cards)]
        for cards in nodes
    )
    fits = any(
        isinstance(assign("", "", never._states(layout), request), Placement) for layout in known
    )
    verdict = never.judge(request, known)
    assert not (fits and verdict.refusal)
    allowed = any(request.allows(s.card) for layout in known for s in never._states(layout))
    assert bool(verdict.refusal) == (allowed and not fits)


# -- over HTTP -----------------------------------------------------------------------------------


def review(made: Any, **changes: Any) -> dict[str, Any]:
    asked = {"uid": "u1", "operation": "CREATE", "resource": {"resource": "pods"}, "object": made}
    return {"kind": "AdmissionReview", "request": {**asked, **changes}}


@contextlib.asynccontextmanager
async def hooked(api: ApiDouble, wishes: Wishes = ALL):
    api.put("nodes", node("n", t4("n", 0), a10("n", 1)))
    async with running(api) as extender:
        hook = Webhook(extender.service.view, wishes, extender.service.unready)
        async with served(application(hook)) as session:

            async def ask(body: Any, status: int = 200) -> Any:
                async with session.post("/v1/pods", data=json.dumps(body)) as answer:
                    assert answer.status == status
                    return (
                        (await answer.json())["response"] if status == 200 else await answer.text()
                    )

            yield ask, hook


async def test_reviews_are_answered(api: ApiDouble):
    async with hooked(api) as (ask, hook):
        answer = await ask(review(pod("p", mem=3, schedulerName="default-scheduler")))
        assert (answer["uid"], answer["allowed"], answer["patchType"]) == ("u1", True, "JSONPatch")
        paths = {op["path"] for op in json.loads(base64.b64decode(answer["patch"]))}
        assert "/spec/schedulerName" in paths
        answer = await ask(review(pod("p", mem=30)))
        assert not answer["allowed"]
        assert "can never fit" in answer["status"]["message"]
        answer = await ask(review(pod("p", percent=150)))
        assert "use at most 100" in answer["status"]["message"]
        assert (await ask(review(pod("p", mem=3), operation="UPDATE"))) == {
            "uid": "u1",
            "allowed": True,
        }
        assert "AdmissionReview" in await ask({"request": {}}, 400)
        assert hook.counts == {"changed": 1, "unchanged": 0, "refused": 2}


@given(json_values())
@settings(max_examples=50)
def test_a_review_of_anything_is_answered_or_a_value_error(value):
    hook = Webhook(ClusterView(RULES, HandClock()), ALL, lambda: "")
    hook.review(review(value))
    with contextlib.suppress(ValueError):
        hook.review({"request": value})


# -- its certificate -----------------------------------------------------------------------------

HOSTS = ("gpushare-webhook.gpushare.svc", "gpushare-webhook.gpushare")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def verified(keys: Keys, bundle: bytes, when: datetime) -> None:
    """The certificate is of an authority in the bundle, and both are valid."""
    issuer = next(
        c
        for c in x509.load_pem_x509_certificates(bundle)
        if c.subject == keys.serving.parsed.issuer
    )
    keys.serving.parsed.verify_directly_issued_by(issuer)
    assert keys.serving.parsed.not_valid_after_utc > when
    assert issuer.not_valid_after_utc > when


def test_keys_are_renewed_in_time_and_every_certificate_is_trusted_by_the_bundle_before():
    keys = renewed(None, HOSTS, NOW)
    assert read(keys.data()) == keys
    assert renewed(keys, HOSTS, NOW) == keys
    now, serving, authorities = NOW, {keys.serving.cert}, {keys.authority.cert}
    for _ in range(600):
        now += timedelta(days=10)
        new = renewed(keys, HOSTS, now)
        # Callers have the bundle of the last look for a while.
        verified(new, keys.bundle, now)
        verified(keys, new.bundle, now)
        keys = new
        serving.add(keys.serving.cert)
        authorities.add(keys.authority.cert)
        assert keys.serving.left(now) > 0.2
    assert len(authorities) >= 2
    assert len(serving) > 50
    assert len(x509.load_pem_x509_certificates(keys.bundle)) <= 2


def test_other_names_or_broken_keys_are_replaced():
    keys = renewed(None, HOSTS, NOW)
    moved = renewed(keys, ("elsewhere.svc",), NOW)
    assert moved.authority == keys.authority
    assert moved.serving != keys.serving
    data = keys.data()
    assert read({}) is None
    assert read({**data, "tls.key": data["ca.key"]}) is None
    assert read({**data, "tls.crt": "!"}) is None


class Store:
    """A Secret and a webhook configuration, with somebody else writing between."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] = {"metadata": {"resourceVersion": "1"}}
        self.hooks: dict[str, Any] = {
            "metadata": {"resourceVersion": "1"},
            "webhooks": [{"name": "pods", "clientConfig": {"service": {"name": "s"}}}],
        }
        self.rival: Keys | None = None
        self.writes = 0

    async def get(self, path: str) -> dict[str, Any]:
        return json.loads(json.dumps(self.secret if "/secrets/" in path else self.hooks))

    async def merge_patch(self, path: str, body: Any) -> dict[str, Any]:
        if "/secrets/" not in path:
            self.hooks["webhooks"] = body["webhooks"]
            return self.hooks
        if self.rival is not None:
            self.secret = {"metadata": {"resourceVersion": "2"}, "data": self.rival.data()}
            self.rival = None
        if body["metadata"]["resourceVersion"] != self.secret["metadata"]["resourceVersion"]:
            raise ApiError(409, "changed")
        self.writes += 1
        self.secret["data"] = body["data"]
        return self.secret


@pytest.mark.parametrize("rivalry", [False, True])
async def test_replicas_agree_on_one_certificate(tmp_path: Path, rivalry: bool):
    place = Place("gpushare", "gpushare-webhook-tls", "gpushare", "gpushare-webhook")
    store = Store()
    if rivalry:
        store.rival = renewed(None, place.hosts, datetime.now(UTC))
    rival = store.rival
    keeper = Keeper(store, place, tmp_path)  # type: ignore[arg-type]
    keys = await keeper._settle()
    keeper._write(keys)
    await keeper._trust(keys)
    assert store.writes == (0 if rivalry else 1)
    assert rival is None or keys == rival
    assert keeper.cert.read_bytes() == keys.serving.cert
    assert oct(keeper.key.stat().st_mode & 0o777) == "0o600"
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(keeper.cert, keeper.key)
    hook = store.hooks["webhooks"][0]["clientConfig"]
    assert base64.b64decode(hook["caBundle"]) == keys.bundle
    assert hook["service"] == {"name": "s"}


async def test_the_port_opens_with_a_certificate_that_its_bundle_trusts(tmp_path: Path):
    hooked_to = Settings(address="127.0.0.1:0", namespace="gpushare")
    store = Store()
    hook = Webhook(ClusterView(RULES, HandClock()), ALL, lambda: "")
    port = Port(hooked_to, hook, store)  # type: ignore[arg-type]
    number = port._sock.getsockname()[1]
    port._sock.listen()
    assert port.starting() == "the webhook has no certificate yet"
    task = asyncio.create_task(port.run_until_stopped())
    await until(lambda: not port.starting(), "it is up and trusted")
    bundle = base64.b64decode(store.hooks["webhooks"][0]["clientConfig"]["caBundle"])
    trust = ssl.create_default_context(cadata=bundle.decode())
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"https://127.0.0.1:{number}/v1/pods",
            json=review(pod("p", mem=3)),
            ssl=trust,
            server_hostname="gpushare-webhook.gpushare.svc",
        ) as answer,
    ):
        assert (await answer.json())["response"]["allowed"]
    port.stop()
    await task


def test_a_webhook_without_any_certificate_says_which_settings_it_needs(monkeypatch):
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    hook = Webhook(ClusterView(RULES, HandClock()), ALL, lambda: "")
    for wrong, says in (
        (Settings(address="127.0.0.1:0"), "Webhook.namespace"),
        (Settings(address="127.0.0.1:0", tls_cert="x"), "need each other"),
        (Settings(address="nowhere", namespace="n"), "Webhook.address"),
    ):
        with pytest.raises(CannotListen, match=says):
            Port(wrong, hook, Store())  # type: ignore[arg-type]
    with pytest.raises(TraitError, match="is no toleration"):
        Settings(tolerations=[{"keys": "x"}])
