"""What a user may choose, what is free of it, and whether a choice is admitted.

Apart from the spawner, because none of it touches a pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpushare.capacity import Capacity
from hub_integration import refusals
from hub_integration.allowance import Allowance
from hub_integration.availability import Offer, alternative, offer
from hub_integration.desk import catalogue_file, desk
from hub_integration.outlook import Outlook
from hub_integration.snapshot import Snapshot
from profiles.catalogue import Catalogue
from profiles.choice import Choice, ChoiceError, Person, choices, select, visible
from profiles.pod import PodParts, pod_parts
from profiles.reader import CatalogueError


class Choosing(Allowance):
    """Mixed into the spawner, whose ``user`` it asks for."""

    def catalogue(self) -> Catalogue:
        """The catalogue as it is now. Raises SpawnRefused when there is none that can be read."""
        file = catalogue_file(self.catalogue_file, self.memory_unit, self.names, self.log)
        try:
            return file.current()
        except CatalogueError:
            raise refusals.no_catalogue() from None

    def person(self) -> Person:
        groups = getattr(self.user, "groups", None) or ()
        return Person(self.user.name, frozenset(group.name for group in groups))

    def parts_of(self, choice: Choice) -> PodParts:
        return pod_parts(
            choice,
            names=self.names,
            unit=self.memory_unit,
            scheduler_name=self.gpu_scheduler_name,
        )

    async def cards_now(self) -> Snapshot | None:
        """What is free now, or None when that is not known."""
        if not self.extender_url:
            return None
        snapshot = await desk().state_client(self.state_address, self.log).snapshot()
        # No card at all: the cluster's first GPU node may be on its way, so nothing is known.
        return snapshot if snapshot is not None and snapshot.capacity.cards else None

    async def capacity(self) -> Capacity | None:
        snapshot = await self.cards_now()
        return snapshot.capacity if snapshot else None

    async def outlook(self) -> Outlook:
        """What can be expected now, for everybody alike."""
        snapshot = await self.cards_now()
        if snapshot is None:
            return Outlook()
        client, keeper = desk().state_client(self.state_address, self.log), self.bookkeeper()
        waiting = await client.waiting() if snapshot.waiting else ()
        releases = await keeper.releases() if keeper else []
        return Outlook(snapshot.capacity, waiting or (), snapshot.waiting, releases)

    async def admit(self, options: Mapping[str, Any]) -> Choice:
        """The choice that the options name, if it may and can start. Raises SpawnRefused."""
        catalogue = self.catalogue()
        try:
            choice = select(catalogue, options, self.person())
        except ChoiceError as error:
            raise refusals.invalid(error) from None
        parts = self.parts_of(choice)
        if not parts.request:
            return choice
        capacity = await self.capacity()
        if self.extender_url:
            self._check_room(catalogue, offer(choice, parts, capacity), capacity)
        over = await self.over_quota(parts.request, capacity)
        if over:
            raise refusals.quota(choice.title, over)
        return choice

    def _check_room(self, catalogue: Catalogue, wanted: Offer, capacity: Capacity | None) -> None:
        if capacity is None:
            if not self.fail_open:
                raise refusals.unknown_capacity(wanted.choice.title)
            return
        if wanted.impossible and self.refuse_impossible:
            raise refusals.impossible(wanted, self.instead(catalogue, wanted, capacity))
        if wanted.full and self.when_full == "refuse":
            raise refusals.full(wanted, self.instead(catalogue, wanted, capacity))

    def instead(
        self, catalogue: Catalogue, wanted: Offer, capacity: Capacity | None
    ) -> Offer | None:
        """Something else that this user could start right now."""
        profiles = visible(catalogue, self.person())
        offers = [
            offer(choice, self.parts_of(choice), capacity)
            for profile in profiles
            for choice in choices(catalogue, profile)
        ]
        return alternative(wanted, offers)
