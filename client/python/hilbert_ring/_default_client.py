"""The client of calls that name none: those that replace another library's."""
import threading
from typing import Any, Optional

from hilbert_ring.client import Client, connect

_lock = threading.Lock()
_client: Optional[Client] = None


def use(client: Optional[Client]) -> None:
    """Sets the client of flash_attn_func, hilbert_ring.transformers and hilbert_ring.longnet.

    None: connect(), with the first call.
    """
    global _client
    with _lock:
        _client = client


def client_or_default(client: Optional[Client]) -> Any:
    """The client, or that of `use`, or one that is connected now."""
    global _client
    if client is not None:
        return client
    with _lock:
        if _client is None:
            _client = connect()
        return _client
