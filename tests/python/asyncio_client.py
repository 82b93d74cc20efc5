"""The asyncio client with blocking calls.

    for made in (client, ByAsyncio(client.server)):
        made.attend(q, k, v, segments=[64])
"""
import asyncio

import hilbert_ring


class ByAsyncio:
    """Each call has a client and an event loop of its own."""

    def __init__(self, server, **options):
        self.server, self.options = server, options

    def __getattr__(self, name):
        def call(*arguments, **given):
            async def run():
                async with hilbert_ring.aio.connect(self.server, **self.options) as client:
                    return await getattr(client, name)(*arguments, **given)
            return asyncio.run(run())
        return call
