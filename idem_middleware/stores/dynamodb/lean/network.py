"""How the endpoint is reached: timeouts, TLS and proxies, each as botocore would set it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import CERT_NONE, SSLContext
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, SSLError
from botocore.httpsession import ProxyConfiguration, create_urllib3_context, get_cert_path, mask_proxy_url
from botocore.utils import get_environ_proxies

__all__ = ["Network", "network_of", "tls_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """All that a pool of connections has to know."""

    url: str
    verify: bool | str = True
    """Whether certificates are checked, or the file with those to trust."""
    client_cert: str | tuple[str, str] | None = None
    proxy_url: str | None = None
    proxy_headers: Mapping[str, str] = field(default_factory=dict)
    proxy_settings: Mapping[str, Any] = field(default_factory=dict)
    connect_seconds: float
    read_seconds: float
    max_connections: int
    tcp_keepalive: bool = False

    @property
    def is_tls(self) -> bool:
        """Whether the endpoint is reached by https."""
        return urlsplit(self.url).scheme == "https"

    @property
    def path(self) -> str:
        """What stands in a request's first line."""
        return urlsplit(self.url).path or "/"

    @property
    def socket_options(self) -> list[tuple[int, int, int]]:
        """Options of each socket: small requests go out at once."""
        options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        if self.tcp_keepalive:
            options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
        return options

    def failure(self, kind: type[BotoCoreError], exc: Exception) -> BotoCoreError:
        """An exception of botocore's about this endpoint; no password of a proxy's is in its text."""
        proxy_url = mask_proxy_url(self.proxy_url or "")
        return kind(endpoint_url=self.url, proxy_url=proxy_url, error=exc)


def network_of(url: str, config: Any, ca_bundle: str | None, environ: Mapping[str, str]) -> Network:
    """The settings that a client of boto3 with this (whole) config would have.

    `ca_bundle` is botocore's setting of that name: AWS_CA_BUNDLE, or the configuration file's.
    """
    proxies = config.proxies if config.proxies is not None else get_environ_proxies(url)
    proxy = ProxyConfiguration(proxies, config.proxies_config)
    proxy_url = proxy.proxy_url_for(url) or None
    verify: bool | str = environ.get("REQUESTS_CA_BUNDLE", True) if ca_bundle is None else ca_bundle
    return Network(
        url=url,
        verify=verify,
        client_cert=config.client_cert,
        proxy_url=proxy_url,
        proxy_headers={} if proxy_url is None else proxy.proxy_headers_for(proxy_url),
        proxy_settings=config.proxies_config or {},
        connect_seconds=config.connect_timeout,
        read_seconds=config.read_timeout,
        max_connections=config.max_pool_connections,
        tcp_keepalive=bool(config.tcp_keepalive),
    )


def tls_context(network: Network, *, check_hostname: bool) -> SSLContext:
    """Botocore's own context, with the certificates to trust read once for all connections.

    `check_hostname` is False where whoever connects compares the names by itself, as urllib3 does.

    Raises:
        SSLError: a file with certificates can't be read.

    """
    context: SSLContext = create_urllib3_context()
    try:
        if network.verify:
            trusted: Any = get_cert_path(network.verify)  # type: ignore[arg-type]  # True or a path, say the sources
            context.load_verify_locations(cafile=trusted)
            context.check_hostname = check_hostname
        else:
            context.verify_mode = CERT_NONE
        if isinstance(network.client_cert, str):
            context.load_cert_chain(network.client_cert)
        elif network.client_cert is not None:
            context.load_cert_chain(*network.client_cert)
    except OSError as exc:
        raise SSLError(endpoint_url=network.url, error=exc) from exc
    return context
