#!/usr/bin/env python3
"""Many clients for long: 2,000 connections at once over 500 adapters, for ten minutes. Some read their streams to the end,
some ask once more on the same connection, some leave in the middle, some before they have asked, some do not read, some
send nonsense. Nobody who behaves may get an error or a wrong text; memory must be flat in the second half; in the end all
pages and descriptors must be back.

    PUNICA_BIN=build/punica build/venv/bin/python tests/faults/many_connections.py [--connections N] [--seconds N] [--adapters N]
"""
import argparse
import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from cluster import DEMO, wait_for  # noqa: E402
from conftest import SANITIZED  # noqa: E402
from serving import Server  # noqa: E402

NAMES = sorted(p.name for p in (DEMO / "adapters").iterdir())
PROMPT = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."
KINDS = {"stream": 8, "answer": 6, "twice": 3, "leaves": 4, "never asks": 2, "does not read": 1, "nonsense": 2, "half closes": 2}


def rss(pid):
    """Bytes of memory, and open files."""
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096, len(os.listdir(f"/proc/{pid}/fd"))


class Clients:
    def __init__(self, rng, address, adapters, expected):
        self.rng, self.adapters, self.expected = rng, adapters, expected
        self.host, self.port = address.split(":")
        self.done, self.closing = Counter(), False
        self.slowest = 0

    def request(self, adapter, stream):
        body = json.dumps({"model": adapter, "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "stream": stream}).encode()
        return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def body(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100"):
            head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], head
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return await reader.readexactly(int(line.split(b":")[1]))
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body

    async def right(self, reader, writer, adapter, stream):
        began = time.monotonic()
        writer.write(self.request(adapter, stream))
        body = await self.body(reader)
        if stream:
            events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
            text = "".join(e["choices"][0]["text"] for e in events)
        else:
            text = json.loads(body)["choices"][0]["text"]
        assert text == self.expected[NAMES[self.adapters.index(adapter) % len(NAMES)]], (adapter, text)
        self.slowest = max(self.slowest, time.monotonic() - began)

    async def one(self, kind):
        reader, writer = await asyncio.open_connection(self.host, int(self.port))
        adapter = self.rng.choice(self.adapters)
        try:
            if kind in ("stream", "answer", "twice"):
                await self.right(reader, writer, adapter, kind == "stream")
                if kind == "twice":
                    await self.right(reader, writer, self.rng.choice(self.adapters), True)
            elif kind == "half closes":
                writer.write(self.request(adapter, True))
                writer.write_eof()
                assert b"[DONE]" in await self.body(reader)
            elif kind == "leaves":
                writer.write(self.request(adapter, True))
                await asyncio.sleep(self.rng.uniform(0, 3))
            elif kind == "does not read":
                writer.write(self.request(adapter, True))
                await asyncio.sleep(self.rng.uniform(5, 20))
            elif kind == "nonsense":
                writer.write(self.rng.choice([b"\0" * 100, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                                              b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}", self.request("nobody", False)]))
                answer = await reader.read(200)
                assert b"HTTP/1.1 4" in answer or b"HTTP/1.1 5" in answer, answer
            else:
                await asyncio.sleep(self.rng.uniform(0, 10))
        finally:
            writer.transport.abort()
        self.done[kind] += 1

    async def forever(self):
        while not self.closing:
            kind = self.rng.choices(list(KINDS), KINDS.values())[0]
            try:
                await self.one(kind)
            except (OSError, EOFError):
                if kind in ("stream", "answer", "twice", "half closes"):
                    raise


async def storm(options, server, clients):
    tasks = [asyncio.create_task(clients.forever()) for _ in range(options.connections)]
    began = time.monotonic()
    sizes = []                  # (seconds, bytes of the server and its workers)
    while time.monotonic() - began < options.seconds:
        await asyncio.sleep(min(10, options.seconds / 20))
        for task in tasks:
            if task.done():
                task.result()
        memory, files = rss(server.pid)
        workers = sum(rss(pid)[0] for pid in server.children())
        sizes.append((time.monotonic() - began, memory, workers))
        print(f"{sizes[-1][0]:6.0f} s  {memory / 2**20:.0f} MB, {files} files; workers {workers / 2**20:.0f} MB; {sum(clients.done.values())} done,"
              f" slowest {clients.slowest:.1f} s", flush=True)
    clients.closing = True
    await asyncio.gather(*tasks)
    return sizes


def grown(sizes, column):
    """By how much the last quarter is above the third, on average, in bytes."""
    n = len(sizes) // 4
    mean = lambda part: sum(s[column] for s in part) / len(part)            # noqa: E731
    return mean(sizes[-n:]) - mean(sizes[-2 * n:-n])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--adapters", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print(f"--seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        adapters = [f"a{i:05}" for i in range(options.adapters)]
        for i, name in enumerate(adapters):
            (Path(folder) / name).symlink_to(DEMO / "adapters" / NAMES[i % len(NAMES)])
        server = Server("--model", DEMO / "model", "--adapters", folder, "--workers", 2, "--threads", 1, "--name", "demo")
        try:
            asyncio.run(session(options, server, adapters))
        except BaseException:
            print(server.log()[-4000:])
            raise
        finally:
            server.end()


async def session(options, server, adapters):
    rng = random.Random(options.seed)
    clients = Clients(rng, server.address, adapters, {})
    for i, name in enumerate(NAMES):        # what each says when there is nobody else
        reader, writer = await asyncio.open_connection(clients.host, int(clients.port))
        writer.write(clients.request(adapters[i], False))
        clients.expected[name] = json.loads(await clients.body(reader))["choices"][0]["text"]
        writer.close()
    pages, (_, files) = server.metric("punica_gpu_pages_free"), rss(server.pid)
    sizes = await storm(options, server, clients)
    await asyncio.to_thread(wait_for, lambda: server.metric("punica_gpu_pages_free") == pages, "all pages are back")
    await asyncio.to_thread(wait_for, lambda: rss(server.pid)[1] <= files + 2, "all descriptors are back")
    growth, of_workers = grown(sizes, 1), grown(sizes, 2)
    what = ", ".join(f"{n} {kind}" for kind, n in sorted(clients.done.items()))
    print(f"{options.connections} connections over {options.adapters} adapters for {options.seconds:.0f} s: {what}; nobody got an error or a wrong text;"
          f" slowest {clients.slowest:.1f} s; memory {sizes[-1][1] / 2**20:.0f} MB, {growth / 2**20:+.1f} MB from the third quarter to the last,"
          f" workers {of_workers / 2**20:+.1f} MB; all pages and descriptors are back")
    if not SANITIZED:
        assert growth < 8 << 20 and of_workers < 16 << 20, "memory grows"


if __name__ == "__main__":
    main()
