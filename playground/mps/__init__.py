"""The stand-in for NVIDIA's MPS control program: what a node without cards runs in its place."""

from __future__ import annotations

import sys
from pathlib import Path

NAME = "nvidia-cuda-mps-control"


def install(folder: Path) -> Path:
    """Put the program under its real name into ``folder``; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / NAME
    source = Path(__file__).with_name("control.py")
    program.write_text(f"#!{sys.executable} -IS\n" + source.read_text())
    program.chmod(0o755)
    return program
