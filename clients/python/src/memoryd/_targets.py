"""The gRPC target of one address, or of several.

gRPC for Python resolves the host name of one address itself, and again after it has lost a connection. For several
addresses it only has targets that list IP addresses of one family, and applications cannot add a resolver.
"""

import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from memoryd.discovery import host_of


def target_of(addresses: Sequence[str]) -> str:
    """Return the target of a channel to these addresses. The host names of several addresses are resolved now.

    A host name that cannot be resolved is omitted if there are other addresses.

    Raises:
        OSError: no host name can be resolved.
    """
    if len(addresses) == 1:
        return addresses[0]
    # A name server that does not respond delays the lookups of all host names by the same time.
    with ThreadPoolExecutor(len(addresses)) as lookups:
        resolved = list(lookups.map(_resolve, addresses))
    found = [address for each in resolved for address in each]
    if not found:
        raise OSError(f"cannot resolve any host name of {', '.join(addresses)}")
    if all(ip.version == 4 for ip, _ in found):  # noqa: PLR2004 -- IPv4
        return "ipv4:" + ",".join(dict.fromkeys(f"{ip}:{port}" for ip, port in found))
    return "ipv6:" + ",".join(dict.fromkeys(f"[{_as_ipv6(ip)}]:{port}" for ip, port in found))


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _resolve(address: str) -> list[tuple[_Ip, str]]:
    port = address.rpartition(":")[2]
    try:
        found = socket.getaddrinfo(host_of(address), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [(ipaddress.ip_address(entry[4][0]), port) for entry in found]


def _as_ipv6(ip: _Ip) -> str:
    # A connection to an IPv4-mapped address uses IPv4, also on a host without IPv6.
    return f"::ffff:{ip}" if ip.version == 4 else str(ip).replace("%", "%25")  # noqa: PLR2004 -- IPv4
