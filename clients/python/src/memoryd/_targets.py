"""The gRPC target of one address, or of several.

gRPC for Python resolves the host name of one address itself, and again after it has lost a connection. For several
addresses it has only targets that list IP addresses of one family, and an application cannot add a resolver.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from memoryd.discovery import host_of
from memoryd.failure import MemorydError

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def has_names(addresses: Sequence[str]) -> bool:
    """Return whether these are several addresses, and one has a host name, so that gRPC does not resolve it."""
    return len(addresses) > 1 and any(_literal(host_of(address)) is None for address in addresses)


def target_of(addresses: Sequence[str]) -> str:
    """Return the target of a channel to these addresses. Host names of several addresses are looked up, which blocks.

    Raises:
        MemorydError: no host name can be resolved.
    """
    return addresses[0] if len(addresses) == 1 else Lookup(addresses).target()


def _ips_of(host: str) -> list[str]:
    """Return the IP addresses of a host name.

    Raises:
        OSError: the name cannot be resolved.
    """
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class Lookup:
    """Looks up the host names of several addresses. A name that cannot be resolved keeps the IP addresses it had."""

    def __init__(self, addresses: Sequence[str], resolve: Callable[[str], Iterable[str]] = _ips_of) -> None:
        """`resolve` returns the IP addresses of a host name; it is called in several threads."""
        self._addresses = addresses
        self._resolve = resolve
        self._known: dict[str, list[_Ip]] = {}

    def target(self) -> str:
        """Look up the host names, and return the target with the IP addresses that are known. Blocks.

        Raises:
            MemorydError: no host name could ever be resolved.
        """
        # In parallel, because a name server that does not respond delays each lookup by many seconds.
        with ThreadPoolExecutor(len(self._addresses)) as lookups:
            for address, found in zip(self._addresses, lookups.map(self._found, self._addresses), strict=True):
                if found:
                    self._known[address] = found
        known = [(ip, address.rpartition(":")[2]) for address in self._addresses for ip in self._known.get(address, [])]
        if not known:
            message = f"cannot resolve any host name of {', '.join(self._addresses)}"
            raise MemorydError(grpc.StatusCode.UNAVAILABLE, message=message)
        if all(isinstance(ip, ipaddress.IPv4Address) for ip, _ in known):
            return "ipv4:" + ",".join(dict.fromkeys(f"{ip}:{port}" for ip, port in known))
        return "ipv6:" + ",".join(dict.fromkeys(f"[{_as_ipv6(ip)}]:{port}" for ip, port in known))

    def _found(self, address: str) -> list[_Ip]:
        """Return the IP addresses in a fixed order, so that the same ones make the same target."""
        host = host_of(address)
        literal = _literal(host)
        if literal is not None:
            return [literal]
        try:
            return [ipaddress.ip_address(ip) for ip in sorted(set(self._resolve(host)))]
        except (OSError, UnicodeError):
            return []


def _literal(host: str) -> _Ip | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _as_ipv6(ip: _Ip) -> str:
    # A connection to an IPv4-mapped address uses IPv4, also on a host without IPv6.
    return f"::ffff:{ip}" if isinstance(ip, ipaddress.IPv4Address) else str(ip).replace("%", "%25")
