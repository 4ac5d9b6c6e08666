"""AWS Signature Version 4 of the one kind of request that we send; no I/O.

IAM User Guide, "Create a signed AWS API request". Tests compare it with botocore's signer, byte for byte.
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256
from typing import Protocol
from urllib.parse import quote, urlsplit

from botocore.utils import normalize_url_path

__all__ = ["CONTENT_TYPE", "Keys", "Signer"]

CONTENT_TYPE = "application/x-amz-json-1.0"

_ALGORITHM = "AWS4-HMAC-SHA256"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Keys(Protocol):
    """What botocore calls frozen credentials."""

    @property
    def access_key(self) -> str:
        """Names the key."""
        ...

    @property
    def secret_key(self) -> str:
        """The key."""
        ...

    @property
    def token(self) -> str | None:
        """Comes with keys that expire."""
        ...


class Signer:
    """Signs POSTs to one URL. Safe under threads.

    The signing key is the same for a day (and secret, region, service), and most of what is signed is the same for
    a second: both are kept. Each is one tuple, so that a thread sees all of it or none.
    """

    def __init__(self, url: str, region: str, service: str) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        if parts.port is not None and parts.port != _DEFAULT_PORTS.get(parts.scheme):
            host = f"{host}:{parts.port}"
        self.host = host
        self._head = f"POST\n{quote(normalize_url_path(parts.path), safe='/~')}\n\ncontent-type:{CONTENT_TYPE}\n"
        self._region = region
        self._service = service
        self._moment: tuple[int, str, str] = (-1, "", "")
        self._key: tuple[str, str, bytes] = ("", "", b"")

    def headers(self, keys: Keys, target: str, body: bytes, now: float) -> dict[str, str]:
        """The headers that make this request a signed one, at that instant."""
        instant, date = self._instant(now)
        token = keys.token
        if token:
            middle, names = f"x-amz-security-token:{token}\n", "content-type;host;x-amz-date;x-amz-security-token;"
        else:
            middle, names = "", "content-type;host;x-amz-date;"
        names += "x-amz-target"
        canonical = (
            f"{self._head}host:{self.host}\nx-amz-date:{instant}\n{middle}x-amz-target:{target}\n\n"
            f"{names}\n{sha256(body).hexdigest()}"
        )
        scope = f"{date}/{self._region}/{self._service}/aws4_request"
        to_sign = f"{_ALGORITHM}\n{instant}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(keys.secret_key, date), to_sign.encode(), "sha256").hex()
        headers = {
            "Host": self.host,
            "Content-Type": CONTENT_TYPE,
            "X-Amz-Date": instant,
            "X-Amz-Target": target,
            "Authorization": (
                f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
            ),
        }
        if token:
            headers["X-Amz-Security-Token"] = token
        return headers

    def _instant(self, now: float) -> tuple[str, str]:
        second, instant, date = self._moment
        if second != int(now):
            instant = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
            date = instant[:8]
            self._moment = (int(now), instant, date)
        return instant, date

    def _signing_key(self, secret: str, date: str) -> bytes:
        of_secret, of_date, key = self._key
        if of_secret != secret or of_date != date:
            key = f"AWS4{secret}".encode()
            for part in (date, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = (secret, date, key)
        return key
