"""``GPUShareSpawner``: KubeSpawner with slices of cards to choose from.

What it promises beside KubeSpawner's own ways:

- What cannot be started is refused before a pod exists, with a sentence, and no refusal counts as
  a failure of the Hub, on JupyterHub 5.5 and 6.
- A pod gets exactly the slice that was chosen: limits are assigned, never merged with those of an
  earlier try, and set after all other overrides.
- When the extender is away, the form renders without numbers and servers start all the same.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, TypeVar

from jupyterhub.utils import maybe_future
from kubernetes_asyncio.client.exceptions import ApiException
from kubespawner import KubeSpawner
from markupsafe import Markup
from traitlets import Dict, default

from gpushare.capacity import Capacity
from gpushare.waiting import WaitingPod
from hub_integration import form, metrics, refusals
from hub_integration.allowance import most_mib
from hub_integration.availability import Offer, offer
from hub_integration.choosing import Choosing
from hub_integration.culler_client import CullerAddress, Ending
from hub_integration.desk import desk
from hub_integration.events import SCALE_UP, progress_event, translate
from hub_integration.hub_versions import SpawnRefused, do_not_count, link_fields
from hub_integration.live import Look
from hub_integration.pod_state import Stage, node_of, obstacle, rejection, stage
from hub_integration.waiting import WaitingView, starting_view, waiting_view
from hub_integration.waiting_page import render_waiting, waiting_event
from profiles.catalogue import Catalogue
from profiles.choice import (
    CUSTOM,
    CUSTOM_NAME,
    PROFILE,
    SLICE,
    Choice,
    ChoiceError,
    choices,
    nearest,
    visible,
)
from profiles.pod import PodParts
from profiles.profile_list import profile_list, settings_overrides

_STATE_KEY = "gpushare"
_LOOK_SECONDS = 2.0  # between two looks at the line of those who wait
_T = TypeVar("_T")


class _Options(Dict):
    """User options. JupyterHub 5 passes on whatever JSON an API caller sent; what is no object
    becomes an option that nothing knows, and is refused like any other nonsense."""

    def validate(self, obj: Any, value: Any) -> Any:
        return super().validate(obj, value if isinstance(value, dict) else {"options": value})


class _Rejected(Exception):
    """The pod has failed for good, and why."""


class GPUShareSpawner(Choosing, KubeSpawner):
    """Spawns single-user servers with the slice of a card that the user chose."""

    user_options = _Options()
    extra_resource_limits: dict[str, Any]
    extra_resource_guarantees: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Values of traits before a choice was applied; put back before the next start.
        self._before_choice: dict[str, Any] = {}
        self._choice: Choice | None = None
        self._parts = PodParts()
        self._slice_state: dict[str, Any] = {}
        self._last_refused: Mapping[str, Any] | None = None
        self._starting = False
        self._pod_is_due = asyncio.Event()  # KubeSpawner is about to create the pod, or gave up
        self._earlier_pods: frozenset[str] = frozenset()  # uids of those of the same name
        super().__init__(*args, **kwargs)
        self.bookkeeper()

    # What may be chosen

    @default("profile_list")
    def _catalogue_as_profile_list(self) -> Any:
        return GPUShareSpawner._render_profile_list

    def _render_profile_list(self) -> list[dict[str, Any]]:
        """The catalogue for other form templates: an admin's own, or jupyterhub-fancy-profiles."""
        catalogue = self.catalogue()
        return profile_list(
            catalogue,
            visible(catalogue, self.person()),
            names=self.names,
            unit=self.memory_unit,
            scheduler_name=self.gpu_scheduler_name,
        )

    # The form

    async def get_options_form(self) -> str:
        """Our form, or the admin's where one is configured."""
        if self.profile_form_template or self.additional_profile_form_template_paths:
            return str(await super().get_options_form())
        try:
            catalogue = self.catalogue()
            profiles = list(visible(catalogue, self.person()))
            selected, notice = self._preselect(catalogue)
        except (SpawnRefused, ChoiceError) as error:
            return form.render_message(str(error))
        view = form.form_view(
            catalogue,
            profiles,
            selected,
            self.parts_of,
            await self.outlook(),
            notice=notice,
            ends=self.culler_runs,
            accounts=await self.accounts(),
        )
        return form.render(view, self._live_url)

    @property
    def _live_url(self) -> str:
        """Where the open form hears what is free; '' where the Hub does not serve that."""
        if not self.live_pages or not self.extender_url:
            return ""
        base = self.hub.base_url if self.hub else "/hub/"
        return f"{base}gpushare/free/{self.user.escaped_name}"

    def form_channel(self) -> tuple[str, Look]:
        """What this user's open form shows, and how its numbers are found.

        Two users to whom the same is offered have the same key.
        """
        key = ",".join(c.key for c in self._offered(self.catalogue()))

        async def look() -> Mapping[str, Any]:
            catalogue = self.catalogue()
            profiles = list(visible(catalogue, self.person()))
            first = next(choices(catalogue, profiles[0]))
            outlook = await self.outlook()
            view = form.form_view(catalogue, profiles, first, self.parts_of, outlook)
            return form.live_numbers(view)

        return key, look

    def _offered(self, catalogue: Catalogue) -> Iterator[Choice]:
        for profile in visible(catalogue, self.person()):
            yield from choices(catalogue, profile)

    def _preselect(self, catalogue: Catalogue) -> tuple[Choice, str]:
        """The choice to show as chosen: what was just refused, or what was started last."""
        options = self._last_refused if self._last_refused is not None else self.user_options
        selected, exact = nearest(catalogue, options or {}, self.person())
        if exact or self._last_refused is not None:
            return selected, ""
        return selected, (
            f"What you started last is not offered any more; {selected.title} is selected instead."
        )

    @default("options_from_form")
    def _strict_options_from_form(self) -> Any:
        return self._checked_options

    async def _checked_options(self, formdata: dict[str, list[Any]]) -> dict[str, str]:
        """The options of a submitted form or link; raises SpawnRefused for what cannot start.

        A refusal here shows the form again with its text, and is outside the Hub's count.
        """
        options = {k: v for k, v in super()._options_from_form(formdata).items() if v}
        if options.get(SLICE) not in (None, CUSTOM_NAME):
            options.pop(CUSTOM, None)  # the number field beside another slice that was picked
        try:
            choice = await self.admit(options)
        except SpawnRefused as refusal:
            self._last_refused = options
            metrics.count_refusal(refusal.why)
            raise
        self._last_refused = None
        return choice.options

    async def options_from_query(self, query_data: dict[str, list[Any]]) -> dict[str, str]:
        """The options of a link. One that names no profile starts nothing: it shows the form."""
        fields = link_fields(query_data)
        if not fields.get(PROFILE):
            raise refusals.empty_link()
        found: dict[str, str] = await maybe_future(self.run_options_from_form(fields))
        return found

    @default("apply_user_options")
    def _options_are_known(self) -> Any:
        # They are applied in load_user_options, with everything else that has to come last.
        return lambda spawner, options: None

    # The choice on the pod

    async def load_user_options(self) -> None:
        """Apply the choice. Called by KubeSpawner at the start, whoever asked for it and how.

        In place of KubeSpawner's own, which guesses a default for what it does not know. Runs after
        group overrides and hooks, so that no override raises a slice above what was chosen.
        """
        async with desk().admission:
            # One after the other, or two servers at once would both fit into the last of a quota.
            choice = await self.admit(self.user_options)
            parts = self.parts_of(choice)
            mib = most_mib(parts.request, await self.capacity()) if parts.request else 0
            if parts.request:
                self.claim(mib)
        overrides = settings_overrides(choice.settings)
        ours = {"extra_resource_limits", "extra_resource_guarantees", "scheduler_name"}
        self._before_choice = {
            name: copy.deepcopy(getattr(self, name))
            for name in {*overrides, *ours}
            if self.has_trait(name)
        }
        self._apply_overrides(overrides)
        self.extra_resource_limits = {
            **_without(self.extra_resource_limits, self.names.resources),
            **{resource: str(amount) for resource, amount in parts.limits.items()},
        }
        self.extra_resource_guarantees = _without(
            self.extra_resource_guarantees, self.names.resources
        )
        if parts.scheduler_name:
            self.scheduler_name = parts.scheduler_name
        self._choice, self._parts = choice, parts
        self._slice_state = {
            "choice": choice.key,
            "title": choice.title,
            "limits": dict(parts.limits),
            "mib": mib,
        }

    async def get_pod_manifest(self) -> Any:
        """KubeSpawner's pod, with our annotations: as JSON they are no format strings."""
        pod = await super().get_pod_manifest()
        pod.metadata.annotations = {**(pod.metadata.annotations or {}), **self._parts.annotations}
        # Not self.events, which KubeSpawner has just cut off where the new ones begin.
        seen = self.event_reflector.events if self.event_reflector else []
        self._earlier_pods = frozenset(map(_pod_uid, seen))
        self._pod_is_due.set()
        return pod

    def get_env(self) -> dict[str, str]:
        return {**super().get_env(), **self._parts.environment}

    # The start

    def start(self) -> asyncio.Future[str]:
        """Start the pod; for GPU servers with our own time limit and reasons."""
        self._starting = True
        inner = super().start()
        outer = asyncio.ensure_future(self._watch(inner))

        def finish(_: object) -> None:
            # Also where the Hub gave up before _watch came to run at all.
            self._starting = False
            self._pod_is_due.set()
            inner.cancel()

        outer.add_done_callback(finish)
        return outer

    async def _watch(self, starting: asyncio.Future[str]) -> str:
        """Wait for KubeSpawner's start. What goes wrong for a reason of ours becomes a refusal."""
        try:
            return await self._started(starting)
        except SpawnRefused as refusal:
            metrics.count_refusal(refusal.why)
            do_not_count(self)
            raise

    async def _started(self, starting: asyncio.Future[str]) -> str:
        limit = self.start_limit(self.start_timeout)
        # Not wait_for: KubeSpawner's own timeouts are errors and must be told from ours.
        await asyncio.wait({starting}, timeout=limit)
        if not starting.done() and not self._parts.request:
            await asyncio.wait({starting})
        if not starting.done():
            starting.cancel()
            raise await self._too_slow(limit)
        try:
            return starting.result()
        except TimeoutError:
            if self._parts.request and self._pod() is not None:
                raise await self._too_slow(limit) from None
            raise  # the API server did not answer, or nobody's fault: the Hub should know
        except _Rejected as rejected:
            self._starting = False
            await self._remove_rejected_pod()
            raise refusals.rejected(str(rejected)) from None
        except ApiException as error:
            if error.status not in (400, 403, 422):
                raise
            raise refusals.denied(error.status, error.body) from None

    async def _too_slow(self, seconds: float) -> SpawnRefused:
        pod, capacity = self._pod(), await self.capacity()
        wanted, reached = self._offer(capacity), stage(pod)
        instead = None
        if reached is Stage.UNSCHEDULED:
            instead = self.instead(self.catalogue(), wanted, capacity)
        return refusals.too_slow(wanted, reached, obstacle(pod), seconds, instead)

    def is_pod_running(self, pod: Mapping[str, Any] | None) -> bool:
        """As KubeSpawner's, but a pod that failed while starting ends the wait at once."""
        if self._starting:
            reason = rejection(pod)
            if reason is not None:
                raise _Rejected(reason)
        if pod is not None and not pod["status"].get("podIP"):
            return False  # KubeSpawner's own would stumble over a running pod without an address
        return bool(super().is_pod_running(pod))

    async def _remove_rejected_pod(self) -> None:
        """Delete the pod that failed; the Hub would not, since poll() says that it has ended."""
        try:
            await self.stop(now=True)
        except (ApiException, TimeoutError) as error:
            self.log.warning(
                "The failed pod %s/%s stays for now (%s); the user's next start replaces it",
                self.namespace,
                self.pod_name,
                error,
            )

    def _pod(self) -> Mapping[str, Any] | None:
        reflector = self.pod_reflector
        return reflector.pods.get(f"{self.namespace}/{self.pod_name}") if reflector else None

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """KubeSpawner's progress, in the user's words and without what befell earlier pods.

        KubeSpawner's counts the events by the pod's name, which is the same at each start. Begun
        before it has marked where the new events begin, it tells the old ones, and then none of
        the new ones until they are more.
        """
        await self._pod_is_due.wait()
        items: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        told = [
            asyncio.ensure_future(self._tell_events(items)),
            asyncio.ensure_future(self._tell_the_line(items)),
        ]
        try:
            while (item := await items.get()) is not None:
                yield item
        finally:
            for task in told:
                task.cancel()

    async def _tell_events(self, items: asyncio.Queue[dict[str, Any] | None]) -> None:
        """What Kubernetes says, to the end of the start."""
        try:
            async for item in super().progress():
                event = item.get("raw_event")
                if event and _pod_uid(event) in self._earlier_pods:
                    continue
                items.put_nowait(progress_event(item, self._title))
        finally:
            items.put_nowait(None)

    async def _tell_the_line(self, items: asyncio.Queue[dict[str, Any] | None]) -> None:
        """How the server stands, whenever that has changed."""
        before: WaitingView | None = None
        while True:
            view = await self.waiting()
            if view != before:
                before = view
                items.put_nowait(waiting_event(view))
            await asyncio.sleep(_LOOK_SECONDS)

    # Waiting

    async def waiting(self) -> WaitingView:
        """How the start stands, for the person who waits for it."""
        pod, choice = self._pod(), self._choice
        reached = stage(pod)
        if choice is None:
            return WaitingView("Your server is being set up.")
        events = [event for event in self._own_events() if event.get("reason") != "NoCardFree"]
        latest = translate(events[-1], self._title) if events else ""
        if reached is not Stage.UNSCHEDULED or not self._parts.request:
            return starting_view(choice, reached, node_of(pod), latest)
        scale_up = [translate(e, self._title) for e in events if e.get("reason") in SCALE_UP]
        own = await self._place_in_line()
        capacity = await self.capacity()
        instead = self.instead(self.catalogue(), self._offer(capacity), capacity)
        if instead is not None and await self._instead_is_too_much(instead):
            instead = None
        return waiting_view(
            choice, own, await self._endings(), instead, (scale_up or [""])[-1], time.time()
        )

    async def waiting_panel(self) -> Markup:
        """The same as HTML, for the page."""
        return render_waiting(await self.waiting())

    @property
    def _title(self) -> str:
        return self._choice.title if self._choice else "a place"

    def _offer(self, capacity: Capacity | None) -> Offer:
        assert self._choice is not None
        return offer(self._choice, self._parts, capacity)

    async def _place_in_line(self) -> WaitingPod | None:
        if not self.extender_url:
            return None
        line = await desk().state_client(self.state_address, self.log).waiting()
        return next((p for p in line or () if (p.namespace, p.pod) == self.pod_key), None)

    async def _endings(self) -> tuple[Ending, ...]:
        if not self.culler_url:
            return ()
        address = CullerAddress(self.culler_url, self.culler_token)
        return await desk().culler_client(address, self.log).endings()

    async def _instead_is_too_much(self, instead: Offer) -> bool:
        return bool(await self.over_quota(instead.parts.request, await self.capacity()))

    def _own_events(self) -> list[Mapping[str, Any]]:
        """Kubernetes' events about this start's pod, in order."""
        events = self.event_reflector.events if self.event_reflector else []
        return [
            event
            for event in events
            if event.get("involvedObject", {}).get("name") == self.pod_name
            and event.get("involvedObject", {}).get("namespace", self.namespace) == self.namespace
            and _pod_uid(event) not in self._earlier_pods
        ]

    # What outlives a restart of the Hub

    @property
    def slice_state(self) -> Mapping[str, Any]:
        """What the running server holds: ``choice``, ``title``, ``limits``; {} when none runs."""
        return self._slice_state

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state()
        if self._slice_state:
            state[_STATE_KEY] = self._slice_state
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        kept = state.get(_STATE_KEY)
        self._slice_state = kept if isinstance(kept, dict) else {}
        if self._slice_state.get("limits"):
            mib = self._slice_state.get("mib")
            self.claim(mib if isinstance(mib, int) else 0)

    def clear_state(self) -> None:
        """Forget the choice: no limit of one start may reach the next."""
        self.drop_claim()
        super().clear_state()
        self._pod_is_due.clear()
        for name, value in self._before_choice.items():
            setattr(self, name, value)
        self._before_choice = {}
        self._choice, self._parts, self._slice_state = None, PodParts(), {}


def _pod_uid(event: Mapping[str, Any]) -> str:
    return str(event.get("involvedObject", {}).get("uid", ""))


def _without(resources: Mapping[str, _T], names: tuple[str, ...]) -> dict[str, _T]:
    return {name: value for name, value in resources.items() if name not in names}
