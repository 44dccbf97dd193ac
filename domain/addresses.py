"""Which addresses the pipeline may call: the public ones, and those an operator has allowed.

The lists are explicit because `ipaddress.is_global` is not enough: in Python 3.11 it is true for multicast, NAT64, 6to4
relays, site-local addresses and for 168.63.129.16, the public address behind which Azure keeps its wire server. They
are the union of what Svix, Hook0 and Stripe's smokescreen refuse, after the IANA special-purpose registries.
"""

from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

FORBIDDEN_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata lives inside
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's wire server
        "169.254.0.0/16",  # link-local, metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata lives inside
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)

PUBLIC_V6 = IPv6Network("2000::/3")  # the only global unicast space there is

FORBIDDEN_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: carries an IPv4 address
        "3fff::/20",  # documentation
    )
)


class Verdict(StrEnum):
    """What may be done with an address."""

    PUBLIC = "public"
    ALLOWED = "allowed"
    """Not public, but inside a network the operator allows."""
    FORBIDDEN = "forbidden"


def judge(address: Address, allowed: Iterable[Network] = ()) -> Verdict:
    """The verdict on the address really meant: an IPv4 address mapped into IPv6 is judged as IPv4."""
    meant = unmapped(address)
    if any(meant in network or address in network for network in allowed):
        return Verdict.ALLOWED
    return Verdict.PUBLIC if _is_public(meant) else Verdict.FORBIDDEN


def unmapped(address: Address) -> Address:
    """The IPv4 address inside `::ffff:0:0/96`, else the address itself, without its scope."""
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))


def networks(text: str) -> tuple[Network, ...]:
    """The networks of a comma-separated list; host bits may be set. Raises: ValueError."""
    return tuple(ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in FORBIDDEN_V4)
    return address in PUBLIC_V6 and not any(address in network for network in FORBIDDEN_V6)
