"""Checks certificates and keys before a connection is made, because gRPC's own message names no file."""
import os
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Iterator, Optional

from hilbert_ring.errors import InvalidArgumentError


@dataclass(frozen=True)
class PemText:
    """The text of a certificate or key that was given to hilbert_ring.connect, as bytes or by path."""

    argument: str
    name: str  # in errors, with the path
    text: bytes = field(repr=False)

    def wrong(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self.name} {what}", field=self.argument)


def check_tls(ca: Optional[PemText], cert: Optional[PemText], key: Optional[PemText]) -> None:
    """Checks the texts. cert and key must be given together."""
    if ca is not None:
        _check_certificates(ca)
    if cert is None or key is None:
        return
    _check_certificates(cert)
    try:
        with _in_memory(cert.text) as chain, _in_memory(key.text) as private:
            # Without `password` OpenSSL would ask the terminal for a key's passphrase.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(chain, private, password="")
    except ssl.SSLError as error:
        # NO_CERTIFICATE_ASSIGNED: the key is of another kind, such as RSA for an elliptic curve.
        if error.reason in ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
            raise key.wrong(f"is not the key of the certificate in {cert.name}") from None
        if error.reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "UNKNOWN_CERTIFICATE_TYPE"):
            raise cert.wrong(f"holds a certificate that OpenSSL does not take: {error.reason}") from None
        raise key.wrong("holds no key in PEM without a passphrase") from None


def _check_certificates(pem: PemText) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.text.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        damaged = b"-----BEGIN CERTIFICATE-----" in pem.text
        raise pem.wrong("holds a certificate that is damaged or cut off" if damaged
                        else "holds no certificate in PEM") from None


@contextmanager
def _in_memory(text: bytes) -> Iterator[str]:
    """Yields a path of the text for a function that takes only files."""
    with os.fdopen(os.memfd_create("pem"), "wb") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
