"""How hard property tests look: a little at each run, or HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
