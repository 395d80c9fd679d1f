"""Elastic GPU's claims: what they ask for, and the life of the objects around them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from extender.claims.limits import fill
from extender.claims.wanted import API, FINALIZER, CardFact, Holder, User, World, difference, writes
from gpushare.assignment import CardState
from gpushare.cards import Card
from gpushare.dialects.claims import NAMED_BY, PROVISIONERS, Claims
from gpushare.placement import Share
from gpushare.pods import PodRef
from gpushare.reasons import Refusal

CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
CARD = Card("GPU-AAAA", 0, 0, "Tesla T4", 15360)
FREE = CardState(CARD, 15360, 100, empty=True)
ALICE = PodRef("ns", "alice", "uid-alice")
SHARE = Share(CARD.uuid, 4096, 20)


def egpu_class(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "shared"}, "provisioner": PROVISIONERS[0], **more}


def claim(**more: Any) -> dict[str, Any]:
    spec = {
        "elasticGPUClassName": "shared",
        "resources": {"requests": {MEMORY: "4096", CORE: "20"}},
    } | more.pop("spec", {})
    metadata = {"name": "c", "namespace": "ns", "uid": "1-2", "resourceVersion": "7"}
    return {"metadata": metadata | more.pop("metadata", {}), "spec": spec, **more}


def pod(**annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {f"{NAMED_BY}{k}": v for k, v in annotations.items()}},
        "spec": {"containers": [{"name": "main"}, {"name": "other", "resources": {}}]},
    }


def known(*claims: Any, classes: Any = None) -> Claims:
    found = classes if classes is not None else {"shared": egpu_class()}
    return Claims({("ns", c["metadata"]["name"]): c for c in claims}, found)


def test_limits_of_a_claim() -> None:
    filled, patch = fill(pod(main="c"), "ns", known(claim()))
    wanted = {MEMORY: "4096", CORE: "20"}
    resources = {"limits": wanted, "requests": wanted}
    assert filled["spec"]["containers"][0]["resources"] == resources
    assert patch == [{"op": "add", "path": "/spec/containers/0/resources", "value": resources}]
    assert filled["spec"]["containers"][1] == {"name": "other", "resources": {}}
    untouched = pod()
    assert fill(untouched, "ns", known()) == (untouched, [])


def test_a_class_may_say_what_its_claims_get() -> None:
    own = {"shared": egpu_class(parameters={"gpu-memory": "1024"})}
    small = claim(spec={"resources": {}})
    _, patch = fill(pod(main="c"), "ns", known(small, classes=own))
    assert patch[0]["value"]["limits"] == {MEMORY: "1024"}


@pytest.mark.parametrize(
    ("annotations", "claims", "words"),
    [
        ({"main": "none"}, known(claim()), "no claim 'none'"),
        ({"nobody": "c"}, known(claim()), "the pod has no such container"),
        ({"main": "c", "other": "c"}, known(claim()), "two containers name the claim 'c'"),
        ({"main": "c"}, known(claim(), classes={}), "class 'shared', which does not exist"),
        (
            {"main": "c"},
            known(claim(), classes={"shared": egpu_class(provisioner="else")}),
            "of another provisioner",
        ),
        ({"main": "c"}, known(claim(spec={"resources": {}})), "asks for nothing"),
        ({"main": "c"}, known(claim(spec={"resources": {"requests": {CORE: "1.5"}}})), "1.5"),
        (
            {"main": "c"},
            known(claim(metadata={"deletionTimestamp": "2025-01-01T00:00:00Z"})),
            "is being deleted",
        ),
    ],
)
def test_what_cannot_be_is_said(annotations: dict[str, str], claims: Claims, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        fill(pod(**annotations), "ns", claims)


def test_own_limits_beside_a_claim_are_refused() -> None:
    greedy = pod(main="c")
    greedy["spec"]["containers"][0]["resources"] = {"limits": {MEMORY: "9999"}}
    with pytest.raises(Refusal, match="of its own beside its claim"):
        fill(greedy, "ns", known(claim()))


class Server:
    """Objects of the API, as far as the writes need them."""

    def __init__(self, *claims: Any, reclaim: str = "Delete") -> None:
        self.kinds: dict[str, dict[str, Any]] = {"gpus": {}, "elasticgpus": {}}
        self.claims = {c["metadata"]["name"]: c for c in claims}
        self.classes = {"shared": egpu_class(reclaimPolicy=reclaim)}
        self.cards: list[CardFact] = [CardFact("n", FREE)]
        self.users: dict[tuple[str, str], User] = {}

    def world(self) -> World:
        found = Claims({("ns", n): c for n, c in self.claims.items()}, self.classes)
        return World(found, self.kinds["gpus"], self.kinds["elasticgpus"], self.cards, self.users)

    def settle(self) -> int:
        """Do what is wanted until nothing is; the number of writes."""
        count = 0
        for _ in range(10):
            todo = list(writes(copy.deepcopy(self.world())))
            if not todo:
                return count
            for write in todo:
                self.do(write)
            count += len(todo)
        raise AssertionError(f"it never ends: {todo}")

    def do(self, write: Any) -> None:
        json.dumps(write.body)
        parts = write.path.removeprefix(f"{API}/").split("/")
        status = parts[-1] == "status"
        parts = parts[:-1] if status else parts
        if write.method == "POST":
            assert "status" not in write.body, "a status subresource drops it"
            obj = copy.deepcopy(dict(write.body))
            self.kinds[parts[0]][obj["metadata"]["name"]] = obj
            return
        store = self.claims if "elasticgpuclaims" in parts else self.kinds[parts[0]]
        if write.method == "DELETE":
            del store[parts[-1]]
            return
        assert set(write.body) == {"status"} if status else "status" not in write.body
        merge(store[parts[-1]], write.body)

    @property
    def claim(self) -> Any:
        return self.claims["c"]

    @property
    def slice(self) -> Any:
        return self.kinds["elasticgpus"].get("egpu-1-2")

    def run(self) -> None:
        """The claim's pod is placed."""
        self.users[("ns", "c")] = User(ALICE, "n", (SHARE,))
        taken = CardState(CARD, 15360 - 4096, 80, empty=False)
        self.cards = [CardFact("n", taken, (Holder(ALICE, "main", SHARE),))]
        self.settle()

    def end(self) -> None:
        """The claim's pod has ended."""
        self.users.clear()
        self.cards = [CardFact("n", FREE)]
        self.settle()


def merge(have: dict[str, Any], patch: Any) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            have.pop(key, None)
        elif isinstance(value, dict):
            merge(have.setdefault(key, {}), value)
        else:
            have[key] = value


def test_cards_are_mirrored() -> None:
    server = Server()
    assert server.settle() == 4, "two objects, and a status for each"
    gpu, whole = server.kinds["gpus"]["gpu-aaaa"], server.kinds["elasticgpus"]["card-gpu-aaaa"]
    assert gpu["spec"]["nodeName"] == "n"
    assert gpu["status"]["state"] == "Healthy"
    assert whole["status"] == {"phase": "Available"}
    server.run()
    assert gpu["status"]["allocated"]["uid-alice"]["containers"] == [
        {"container": "main", "resource": {CORE: "20", MEMORY: "4096"}}
    ]
    assert whole["status"] == {"phase": "Bound"}
    sick = Card(CARD.uuid, 0, 0, CARD.model, CARD.memory, health="XID 79")
    server.cards = [CardFact("n", CardState(sick, 15360, 100, empty=True))]
    server.settle()
    assert gpu["status"]["allocatable"] == {CORE: "0", MEMORY: "0"}
    assert gpu["status"]["allocated"] == {}
    assert whole["status"]["phase"] == "Failed"
    server.cards = []
    server.settle()
    assert server.kinds == {"gpus": {}, "elasticgpus": {}}


def test_a_claim_follows_its_pod() -> None:
    server = Server(claim())
    server.settle()
    assert server.claim["status"]["phase"] == "Pending"
    server.users[("ns", "c")] = User(ALICE)
    server.settle()
    assert server.claim["metadata"]["finalizers"] == [FINALIZER], "a pod that waits keeps it too"
    assert server.claim["status"]["phase"] == "Pending"
    server.run()
    assert server.claim["status"]["phase"] == "Bound"
    assert server.claim["spec"]["elasticGPUName"] == "egpu-1-2"
    assert server.slice["spec"]["gpuShare"] == {"gpuName": "gpu-aaaa"}
    assert server.slice["spec"]["claimRef"]["uid"] == "1-2"
    assert server.slice["spec"]["capacity"] == {CORE: "20", MEMORY: "4096"}
    assert server.slice["status"] == {"phase": "Bound"}
    server.end()
    assert server.claim["status"]["phase"] == "Released"
    assert server.claim["metadata"]["finalizers"] == []
    assert "elasticGPUName" not in server.claim["spec"]
    assert server.slice is None
    server.run()
    assert server.claim["status"]["phase"] == "Bound", "and again with the next pod"


def test_what_is_retained_stays() -> None:
    server = Server(claim(), reclaim="Retain")
    server.run()
    server.end()
    assert server.slice["status"] == {"phase": "Released"}
    assert server.claim["spec"]["elasticGPUName"] == "egpu-1-2"
    del server.claims["c"]
    server.settle()
    assert server.slice["status"] == {"phase": "Released"}, "for a person to look at and delete"


def test_a_claim_in_use_is_not_let_go() -> None:
    server = Server(claim())
    server.run()
    server.claim["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z"
    server.settle()
    assert FINALIZER in server.claim["metadata"]["finalizers"]
    server.end()
    assert server.claim["metadata"]["finalizers"] == [], "the API server deletes it now"


def test_the_class_may_go_while_the_pod_runs() -> None:
    server = Server(claim())
    server.run()
    server.classes = {}
    server.settle()
    assert server.claim["status"]["phase"] == "Bound"
    server.end()
    assert "does not exist" in server.claim["status"]["message"]
    assert server.slice is None


def test_the_slice_of_a_running_pod_comes_back() -> None:
    server = Server(claim())
    server.run()
    del server.kinds["elasticgpus"]["egpu-1-2"]
    server.settle()
    assert server.slice["status"] == {"phase": "Bound"}


def test_what_others_made_is_left_alone() -> None:
    server = Server(claim(metadata={"finalizers": ["example.org/mine"]}))
    theirs = {"metadata": {"name": "theirs", "labels": {}}, "spec": {}, "status": {}}
    server.kinds["elasticgpus"]["theirs"] = copy.deepcopy(theirs)
    server.run()
    server.end()
    assert server.kinds["elasticgpus"]["theirs"] == theirs
    assert server.claim["metadata"]["finalizers"] == ["example.org/mine"]


def test_difference() -> None:
    assert difference({"a": 1, "b": {"c": 1}}, {"a": 1, "b": {"c": 1}}) == {}
    assert difference({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"c": 3}}) == {
        "a": None,
        "b": {"c": 3, "d": None},
    }
