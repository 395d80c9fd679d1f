"""Elastic GPU's objects kept true: cards and slices as objects of the API, and claims of them."""
