"""One card at one moment: who holds what, what everybody may have now, and who is over. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from device_plugin.enforcement.accounts import CardAccount, ProcessInfo, account
from device_plugin.enforcement.burst import Claim, Grant, grants
from device_plugin.enforcement.cgroup import Owner
from device_plugin.enforcement.rules import Rules
from device_plugin.enforcement.slices import Slice
from device_plugin.enforcement.watchdog import Observation
from device_plugin.usage.sample import CardSample


@dataclass(frozen=True, slots=True)
class PodTerms:
    """What holds for one pod: its rules, and the most it may use of a card (slice and loan)."""

    rules: Rules
    most: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class CardState:
    """The judgement of one card.

    ``capacity``: MiB that slices and loans can have of it. ``promised``: MiB of slices that their
    pods do not use yet.
    """

    sample: CardSample
    account: CardAccount = field(default_factory=CardAccount)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    grants: Mapping[str, Grant] = field(default_factory=dict)
    capacity: int = 0
    promised: int = 0

    def over(self, terms: Mapping[str, PodTerms]) -> list[str]:
        """The uids of pods that have more than their grant and allowance."""
        return [
            uid
            for uid, use in self.account.pods.items()
            if use.mib > self.grants[uid].limit + terms[uid].rules.allowance(len(use.held))
        ]

    def owners(self, uids: Collection[str]) -> frozenset[Owner]:
        """The containers of these pods' processes on the card."""
        return frozenset(
            owner
            for uid in uids
            for held in self.account.pods[uid].held
            for owner in held.process.owners
            if owner.pod_uid == uid
        )

    def observation(
        self, uid: str, slices: Mapping[str, Slice], inits: Collection[int]
    ) -> Observation:
        """What the watchdog sees of one pod."""
        use = self.account.pods.get(uid)
        grant = self.grants[uid]
        return Observation(
            held=use.held if use else (),
            slice=slices[uid].mib(self.sample.card),
            granted=grant.limit,
            recalled=grant.recalled,
            hurting=self._hurting(uid),
            inits=inits,
        )

    def _hurting(self, uid: str) -> bool:
        """Whether others could not have now what they were promised and do not use yet."""
        claim = self.claims[uid]
        others = self.promised - max(0, claim.slice - claim.used)
        return others > self.sample.free


def judge(
    sample: CardSample,
    processes: Mapping[int, ProcessInfo],
    slices: Mapping[str, Slice],
    terms: Mapping[str, PodTerms],
    expected: Collection[int] = (),
    elsewhere: Collection[str] = (),
) -> CardState:
    """Judge one card. ``slices`` are all of the node, by pod uid, and ``terms`` are theirs."""
    card = sample.card
    here = {uid: s for uid, s in slices.items() if card in s.footprint}
    started = {uid: s for uid, s in here.items() if s.started}
    book = account(
        card, sample.memory, processes, started, expected, frozenset(elsewhere) | slices.keys()
    )
    claims = {}
    for uid, its in here.items():
        use = book.pods.get(uid)
        claims[uid] = Claim(
            slice=its.mib(card),
            most=terms[uid].most(card),
            used=use.mib if use else 0,
            tolerated=terms[uid].rules.allowance(len(use.held)) if use else 0,
        )
    capacity = max(0, sample.usable - book.stray_mib)
    promised = sum(max(0, claim.slice - claim.used) for claim in claims.values())
    return CardState(sample, book, claims, grants(capacity, claims), capacity, promised)
