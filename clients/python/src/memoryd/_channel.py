"""The gRPC channel of a client: its credentials, load balancing, retries, reconnects and keepalive pings."""

import json
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

import grpc
import grpc.aio

from memoryd._list_channel import AsyncListChannel, ListChannel
from memoryd._targets import Lookup, has_names, target_of
from memoryd.discovery import Endpoint, host_of
from memoryd.tls import Tls, content

# Short enough that a client reconnects to a restarted daemon before the retries of a call are used up.
_FIRST_RECONNECT_MS = 100
_MAX_RECONNECT_MS = 250

_KEEPALIVE_TIMEOUT_MS = 20_000


def open_channel(endpoint: Endpoint, keepalive: float | None = None, *, retries: bool = True) -> grpc.Channel:
    """Return a channel to a daemon. `keepalive` is the time between two pings in seconds; None sends none.

    The calls are distributed over the addresses of the endpoint. Without `retries`, a call fails at the first
    UNAVAILABLE, and all calls go to the first address that can be connected to. The host names of several addresses are
    looked up now, and not again.

    Raises:
        OSError: a TLS file of the endpoint cannot be read.
        MemorydError: there are several addresses, and no host name can be resolved.
    """
    return _opener(endpoint, keepalive, retries=retries)(target_of(endpoint.addresses))


def open_channel_async(endpoint: Endpoint, keepalive: float | None, target: str | None = None) -> grpc.aio.Channel:
    """Return an asyncio channel for the running event loop; see `open_channel`.

    `target` is the result of `target_of`, which blocks if there are host names to look up.
    """
    return _opener_async(endpoint, keepalive)(target or target_of(endpoint.addresses))


def client_channel(endpoint: Endpoint, keepalive: float | None) -> grpc.Channel | ListChannel:
    """Return the channel of a blocking client. Host names of several addresses are looked up by its calls.

    Raises:
        OSError: a TLS file of the endpoint cannot be read.
    """
    if has_names(endpoint.addresses):
        return ListChannel(Lookup(endpoint.addresses), _opener(endpoint, keepalive, retries=True))
    return open_channel(endpoint, keepalive)


def client_channel_async(endpoint: Endpoint, keepalive: float | None) -> grpc.aio.Channel | AsyncListChannel:
    """Return the channel of an asyncio client; see `client_channel`."""
    if has_names(endpoint.addresses):
        return AsyncListChannel(Lookup(endpoint.addresses), _opener_async(endpoint, keepalive))
    return open_channel_async(endpoint, keepalive)


def _opener(endpoint: Endpoint, keepalive: float | None, *, retries: bool) -> Callable[[str], grpc.Channel]:
    """Return the function that opens a channel to a target."""
    options = _options(endpoint, keepalive, retries=retries)
    if endpoint.tls is None:
        return partial(grpc.insecure_channel, options=options)
    return partial(grpc.secure_channel, credentials=_credentials(endpoint.tls), options=options)


def _opener_async(endpoint: Endpoint, keepalive: float | None) -> Callable[[str], grpc.aio.Channel]:
    options = _options(endpoint, keepalive, retries=True)
    if endpoint.tls is None:
        return partial(grpc.aio.insecure_channel, options=options)
    return partial(grpc.aio.secure_channel, credentials=_credentials(endpoint.tls), options=options)


def metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata of every call: the bearer token, if there is one."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(content(tls.ca_file), content(tls.key_file), content(tls.cert_file))


def _options(endpoint: Endpoint, keepalive: float | None, *, retries: bool) -> tuple[tuple[str, Any], ...]:
    options: list[tuple[str, Any]] = [
        # The proxy variables of the environment are meant for the web, not for a daemon.
        ("grpc.enable_http_proxy", 0),
        # Otherwise the clients of an address share one connection, and also its reconnect backoff.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _MAX_RECONNECT_MS),
    ]
    if retries:
        options.append(("grpc.service_config", _service_config(endpoint)))
    if keepalive is not None:
        options += [
            ("grpc.keepalive_time_ms", round(keepalive * 1000)),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    first, *others = endpoint.addresses
    if endpoint.tls is not None:
        # A channel verifies the certificates of all its addresses for the same name, which is also its authority.
        name = endpoint.tls.server_name or (host_of(first) if others else "")
        options += [("grpc.ssl_target_name_override", name)] if name else []
    elif others:
        options.append(("grpc.default_authority", first))
    return tuple(options)


def _service_config(endpoint: Endpoint) -> str:
    """Return the retry policy and the load balancing of a channel."""
    text = files("memoryd").joinpath("service_config.json").read_text("utf-8")
    if len(endpoint.addresses) > 1 or host_of(endpoint.address).lower() != "localhost":
        return text
    # A daemon can listen at one of the addresses of localhost. The others would be tried again and again.
    return json.dumps({**json.loads(text), "loadBalancingConfig": [{"pick_first": {}}]})
