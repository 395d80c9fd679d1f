"""``%gpushare`` in a notebook or an IPython terminal: the slice, in a few lines."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gpushare.board import PATH, NoBoard
from gpushare.slice_words import lines
from hub_integration.lab.source import slice_now


def gpushare(line: str) -> None:
    """Print this notebook's GPU slice: what it holds of which card, and which process holds it."""
    if line.strip():
        print("%gpushare takes no arguments")
        return
    path = Path(os.environ.get("GPUSHARE_BOARD") or PATH)
    try:
        board = slice_now(path, os.environ)
    except NoBoard as error:
        print(error)
        return
    print("\n".join(lines(board, time.time(), os.getpid())))
