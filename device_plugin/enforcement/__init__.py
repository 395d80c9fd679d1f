"""Holding every slice to its size: hints, the watchdog, bursting, MPS.

The decisions are functions of dataclasses (``advisory``, ``policy``, ``accounts``, ``burst``,
``watchdog``, ``mps.limits``); around them stands one class, ``enforcement.Enforcement``, that reads
the cards and acts.
"""
