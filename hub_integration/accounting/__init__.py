"""GPU-GiB-hours: what was given, what of it was used, and what lay idle."""
