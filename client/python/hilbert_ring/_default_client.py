"""The default client of functions that replace another library's and are called without a client."""
import threading
from typing import Any, Optional

from hilbert_ring.client import Client, connect

_lock = threading.Lock()
_client: Optional[Client] = None


def use(client: Optional[Client]) -> None:
    """Sets the default client of flash_attn_func, hilbert_ring.transformers and hilbert_ring.longnet.

    Args:
        client: None: the first call connects one with connect().
    """
    global _client
    with _lock:
        _client = client


def client_or_default(client: Optional[Client]) -> Any:
    """Returns the given client, or the default one, which is connected now if `use` has set none."""
    global _client
    if client is not None:
        return client
    with _lock:
        if _client is None:
            _client = connect()
        return _client
