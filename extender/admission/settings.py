"""The webhook's settings: ``{"Webhook": {...}}`` in the extender's configuration file."""

from __future__ import annotations

import os
from typing import Any

from traitlets import Bool, Dict, Enum, List, TraitError, Unicode, validate
from traitlets.config import Configurable

from extender.admission.certificates import Place
from extender.admission.mutate import Delivery, Wishes


class Webhook(Configurable):
    """The admission webhook for pods. Off unless it has an address."""

    address = Unicode(
        "",
        help="host:port of the webhook, HTTPS, at /v1/pods; for example 0.0.0.0:9443. Empty: off.",
    ).tag(config=True)
    tls_cert = Unicode(
        "",
        help="""Certificate (PEM) that somebody else makes and renews, such as cert-manager.

        Empty: we make our own, keep it in the Secret Webhook.secret, and write the authority into
        the webhook configuration Webhook.configuration.""",
    ).tag(config=True)
    tls_key = Unicode("", help="Private key (PEM) of tls_cert.").tag(config=True)
    namespace = Unicode(
        "", help="Namespace of service and secret. Empty: the extender's own, from POD_NAMESPACE."
    ).tag(config=True)
    service = Unicode(
        "gpushare-webhook", help="Service by which the API server calls the webhook."
    ).tag(config=True)
    secret = Unicode(
        "gpushare-webhook-tls", help="Secret that keeps our own certificate and its authority."
    ).tag(config=True)
    configuration = Unicode(
        "gpushare", help="MutatingWebhookConfiguration that is told whom to trust."
    ).tag(config=True)
    scheduler_name = Unicode(
        "",
        help="Scheduler that pods with a slice are sent to, whatever they say. Empty: left as it is.",
    ).tag(config=True)
    tolerations = List(
        Dict(),
        help="""Tolerations that pods with a slice get, as in a pod:
        [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]""",
    ).tag(config=True)
    runtime_class = Unicode(
        "", help="RuntimeClass that pods with a slice get. Empty: left as it is."
    ).tag(config=True)
    card_delivery = Enum(
        [delivery.value for delivery in Delivery],
        Delivery.CDI.value,
        help="""How cards reach the containers. 'cdi': by the device plugin's CDI devices.
        'environment': by NVIDIA_VISIBLE_DEVICES, for nodes whose container runtime knows no CDI.""",
    ).tag(config=True)
    void_others = Bool(
        False,
        help="""Set NVIDIA_VISIBLE_DEVICES=void in pods that ask for no card, where nvidia's runtime
        is the nodes' default: images of CUDA say 'all', and it would give them all.""",
    ).tag(config=True)
    refuse_too_large = Bool(
        True,
        help="""Refuse what no card of the wanted models could hold were it empty. Switch it off where
        an autoscaler brings larger cards than are there.""",
    ).tag(config=True)

    @validate("tolerations")
    def _valid_tolerations(self, proposal: Any) -> list[dict[str, Any]]:
        known = {"key", "operator", "value", "effect", "tolerationSeconds"}
        for entry in proposal["value"]:
            if not isinstance(entry, dict) or not entry or set(entry) - known:
                raise TraitError(
                    f"Webhook.tolerations: {entry!r} is no toleration; use some of {sorted(known)}"
                )
        return list(proposal["value"])

    @property
    def wishes(self) -> Wishes:
        return Wishes(
            self.scheduler_name,
            tuple(self.tolerations),
            self.runtime_class,
            Delivery(self.card_delivery),
            self.void_others,
        )

    def place(self) -> Place | None:
        """Where our own certificate is kept; None where the namespace is not known."""
        namespace = self.namespace or os.environ.get("POD_NAMESPACE", "")
        return (
            Place(namespace, self.secret, self.configuration, self.service) if namespace else None
        )
