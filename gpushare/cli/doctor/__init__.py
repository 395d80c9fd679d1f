"""``gpushare doctor``: what is wrong with an installation, and how to mend it."""

from gpushare.cli.doctor.command import doctor

__all__ = ["doctor"]
