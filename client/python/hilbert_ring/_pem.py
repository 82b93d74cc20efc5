"""Certificates and keys, checked before a connection is made: gRPC's own message names no file."""
import os
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Iterator, Optional

from hilbert_ring.errors import InvalidArgumentError


@dataclass(frozen=True)
class PemText:
    """What an argument of hilbert_ring.connect holds or names."""

    argument: str
    name: str  # in messages, with the path
    text: bytes = field(repr=False)

    def wrong(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self.name} {what}", field=self.argument)


def check_tls(ca: Optional[PemText], cert: Optional[PemText], key: Optional[PemText]) -> None:
    """cert and key: both or none.

    Raises:
        InvalidArgumentError: no certificate, one that is damaged, no key without a passphrase, a key of another
            certificate.
    """
    if ca is not None:
        _check_certificates(ca)
    if cert is None or key is None:
        return
    _check_certificates(cert)
    try:
        with _in_memory(cert.text) as chain, _in_memory(key.text) as private:
            # A key with a passphrase would wait for somebody to type it.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(chain, private, password="")
    except ssl.SSLError as error:
        # The second: of another kind, as RSA for an elliptic curve.
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
    """A path, for a function that takes files alone."""
    with os.fdopen(os.memfd_create("pem"), "wb") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
