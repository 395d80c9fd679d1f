"""The images of the playground, made here from package registries; nothing is pulled.

    debian-base      Debian with Python, by debootstrap; what the others stand on
    singleuser       JupyterLab for users' pods
    kube-scheduler   the Kubernetes of playground.binaries
    extender, device-plugin
                     the product's own, from images/*.Containerfile

Each is built when what goes into it has changed, and kept in the cache as a docker-archive.
"""

from __future__ import annotations

from playground.images.archive import ImageArchive
from playground.images.builder import build, build_all, names
from playground.progress import StepFailed

__all__ = ["ImageArchive", "StepFailed", "build", "build_all", "names"]
