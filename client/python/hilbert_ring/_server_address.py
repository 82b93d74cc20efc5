"""Checks addresses by the rules of wire/server_address.cc; both tests read tests/unit/wire/server_addresses.json."""
import ipaddress
import re
from typing import Optional

from hilbert_ring.errors import InvalidArgumentError

_OTHER_KINDS = ("unix:", "unix-abstract:", "vsock:", "xds:")  # gRPC's address kinds without host and port


def checked_server(name: str, address: object) -> str:
    """Returns the address if it is "host:port", "[IPv6]:port" or of another kind that gRPC supports.

    gRPC itself takes a port modulo 65,536, and https's port if it is missing.
    """
    if not isinstance(address, str):
        raise InvalidArgumentError(f"{name} is {address!r}, must be a str HOST:PORT", field=name)
    fault = _fault(address)
    if fault:
        shown = re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", address)
        raise InvalidArgumentError(f"{name}: \"{shown}\" {fault}; expected HOST:PORT, such as localhost:8001", field=name)
    return address


def host_port(host: str, port: int) -> str:
    """Returns "host:port", with brackets round an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _fault(address: str) -> Optional[str]:
    if not address:
        return "is empty"
    if re.search(r"[ \t\n\v\f\r]", address):
        return "has a space"
    if re.search(r"[\x00-\x1f\x7f]", address):
        return "has a control character"
    for kind in _OTHER_KINDS:
        if address.startswith(kind):
            return None if address != kind else f"has nothing behind {kind}"
    if address.startswith("dns:"):
        name = address[len("dns:"):]
        if name.startswith("//"):  # a name server
            _, slash, name = name[len("//"):].partition("/")
            if not slash:
                return "has no host"
        return _host_port_fault(name)
    if address.startswith(("ipv4:", "ipv6:")):  # a list with commas
        return next(filter(None, map(_host_port_fault, address[len("ipv4:"):].split(","))), None)
    if "://" in address:
        return f"has a scheme: leave out {address[:address.index('://')]}://"
    return _host_port_fault(address)


def _host_port_fault(address: str) -> Optional[str]:
    if "/" in address:
        return "has a path"
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket:
            return "has no closing bracket"
        if not _is_ipv6(host):
            return "has no IPv6 address in its brackets"
        return _port_fault(rest[1:]) if rest.startswith(":") else "has no port"
    host, colon, port = address.partition(":")
    if not colon:
        return "has no port"
    if ":" in port:
        return "has several colons: put an IPv6 address in brackets"
    if not host:
        return "has no host"
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        return f"has host \"{host}\", expected a name or an IPv4 address"
    return _port_fault(port)


def _is_ipv6(text: str) -> bool:
    host, percent, zone = text.partition("%")
    if percent and not zone:
        return False
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _port_fault(digits: str) -> Optional[str]:
    if re.fullmatch(r"[1-9][0-9]{0,4}", digits) and int(digits) <= 65535:
        return None
    return f"has port \"{digits}\", expected 1 to 65535"
