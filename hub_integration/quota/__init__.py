"""Quotas: how much of the cards each user and group may have, and the ledger of what they had."""
