"""The language every part of gpushare speaks: names, units, requests, cards, placements, the ledger, reasons.

Nothing in this package does I/O or knows a framework, except the command line in ``gpushare.cli``.
"""

__version__ = "0.1.0"
