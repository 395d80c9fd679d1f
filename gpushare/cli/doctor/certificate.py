"""When a certificate ends, read from its DER. No library of the base installation does that."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

_SEQUENCE, _EXPLICIT_0, _UTC_TIME = 0x30, 0xA0, 0x17


def ends(pem: str) -> float:
    """The end of the first certificate's validity (RFC 5280, 4.1.2.5), in seconds since 1970.

    Raises ValueError where it is none.
    """
    begin, stop = pem.find("-----BEGIN CERTIFICATE-----"), pem.find("-----END CERTIFICATE-----")
    if begin < 0 or stop < 0:
        raise ValueError("no certificate in it")
    der = ssl.PEM_cert_to_DER_cert(pem[begin:stop] + "-----END CERTIFICATE-----")
    try:
        certificate = _value(der, 0)[1]
        fields = _parts(_value(certificate, 0)[1])
        if fields[0][0] == _EXPLICIT_0:  # the version, which version 1 leaves out
            fields = fields[1:]
        # serial number, signature algorithm, issuer, validity
        kind, text = _parts(fields[3][1])[1]
        form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
        return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()
    except (IndexError, UnicodeDecodeError, ValueError):
        raise ValueError("it is no X.509 certificate") from None


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """The elements in a sequence: tag and content of each."""
    parts, at = [], 0
    while at < len(data):
        tag, content, at = _value(data, at)
        parts.append((tag, content))
    return parts


def _value(data: bytes, at: int) -> tuple[int, bytes, int]:
    """The element at ``at``: its tag, its content, and where it ends."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(data[start : start + count]), start + count
    if start + length > len(data):
        raise ValueError("cut off")
    return tag, data[start : start + length], start + length
