"""A TCP proxy between a cluster's processes that cuts, stalls and garbles what goes through it."""
import asyncio
import contextlib
import socket
import struct


class Pipe:
    """One direction of a connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.open = asyncio.Event()         # not set: it stalls
        self.open.set()
        self.garble = 0                     # bits to change in what comes next

    async def run(self, rng):
        while data := await self.reader.read(65536):
            await self.open.wait()
            if self.garble:
                data = bytearray(data)
                for _ in range(self.garble):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                self.garble = 0
            self.writer.write(data)
            await self.writer.drain()


class Proxy:
    """Listens at `address` and passes everything on to `target`, an address that may change."""

    def __init__(self, rng, target):
        self.rng, self.target = rng, target
        self.connections = []

    async def start(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.address = "%s:%d" % self.server.sockets[0].getsockname()[:2]

    async def accept(self, reader, writer):
        host, port = self.target().split(":")
        try:
            there = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        pipes = Pipe(reader, there[1]), Pipe(there[0], writer)
        self.connections.append(pipes)
        try:
            runs = [asyncio.create_task(p.run(self.rng)) for p in pipes]
            await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
            for r in runs:
                r.cancel()
            await asyncio.gather(*runs, return_exceptions=True)
        finally:
            self.connections.remove(pipes)
            for p in pipes:
                p.writer.close()

    def some(self):
        return self.rng.choice(self.connections) if self.connections else ()

    def cut(self):
        """One connection: with what was on its way, or in the middle of it."""
        for p in self.some():
            if self.rng.random() < 0.5:
                with contextlib.suppress(OSError):      # its own end may have closed it meanwhile
                    p.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                p.writer.transport.abort()
            else:
                p.writer.close()

    async def stall(self, seconds):
        """One or both directions of one connection, or of all."""
        pipes = [p for c in self.connections for p in c] if self.rng.random() < 0.3 else list(self.some())
        if self.rng.random() < 0.4:
            pipes = pipes[:1]
        for p in pipes:
            p.open.clear()
        await asyncio.sleep(seconds)
        for p in pipes:
            p.open.set()

    def garble(self):
        """A bit or more of what comes next on one connection."""
        pipes = self.some()
        if pipes:
            self.rng.choice(pipes).garble = self.rng.choice([1, 1, 1, 20])

    async def stop(self):
        self.server.close()
        for c in list(self.connections):
            for p in c:
                p.writer.transport.abort()
        await asyncio.sleep(0)
