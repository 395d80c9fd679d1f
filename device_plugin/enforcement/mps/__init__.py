"""NVIDIA's Multi-Process Service: the driver limits each process of a slice.

One control daemon per card, as MPS's limits are per daemon and device, and as one tenant's fault
reaches all clients of a server. Facts and their sources: docs/enforcement.md. What runs the daemons
(``host``) is apart from what decides about them (``keeper``), so that they outlive the plugin.
"""
