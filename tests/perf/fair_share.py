#!/usr/bin/env python3
"""How soon one tenant's request starts behind thousands of another's, and how two tenants share by weight, on a real server.

    tests/perf/fair_share.py [--punica PROGRAM] [--seconds 60] [--tries 30] [--streams 10000]

`punica serve` with the demo model on the CPU and tenants in a store. Three runs, a line of the table each:
  crowd    one tenant has --streams requests waiting, each a call of its own; another asks for one at a time. Counted is the time from the
           first end of a request of the former, which is a place that falls free, to the latter's first token, and the steps that end between: as many
           tokens as others get meanwhile. (Places that fall free while the request is still on its way to the scheduler are not counted.)
  choices  the same behind 78 calls of 128 choices
  shares   two tenants of weights 3 and 1, each with 400 calls all the time: what each is given in --seconds, by the store's usage
Needs nothing but Python; file descriptors for all streams (ulimit -n).
"""
import argparse
import asyncio
import gc
import json
import random
import re
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SO_TIMESTAMPNS = 35             # Linux: when bytes came
INDEX = re.compile(rb'"index": ?(\d+)')
ON_ITS_WAY = 0.02               # seconds after which a request that was sent is at the scheduler, also on a busy machine
PROMPT = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."


class Server:
    def __init__(self, program, folder, *options):
        self.program, self.store = program, str(folder / "store.db")
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--store", self.store, *options], stdout=self.log, stderr=self.log)
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", Path(self.log.name).read_text())):
            assert self.process.poll() is None, Path(self.log.name).read_text()
            time.sleep(0.1)
        self.port = int(found[1])

    def tenant(self, *words):
        return subprocess.run([self.program, "tenant", *words, "--store", self.store], check=True, capture_output=True, text=True).stdout.strip()

    def new_tenant(self, name, weight=1):
        self.tenant("add", name, "--base", "yes", "--weight", str(weight))
        key = self.tenant("key", "add", name, "main")
        time.sleep(1)           # frontends know of it within that time
        return key

    def usage(self, name):
        rows = [json.loads(line) for line in self.tenant("usage", name, "--json").splitlines()]
        return sum(r["prompt_tokens"] for r in rows), sum(r["completion_tokens"] for r in rows)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


class Stream:
    """One call for outputs of tokens[0] to tokens[1] tokens. on_token: a token of a choice has come; on_end: a choice has ended. Each is told when by the
    kernel's clock, as this process may have come to it later."""

    def __init__(self, port, key, n, tokens, on_token=None, on_end=None):
        body = json.dumps({"model": "demo", "prompt": PROMPT, "stream": True, "n": n, "temperature": 1, "min_tokens": tokens[0], "max_tokens": tokens[1]})
        self.request = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        self.port, self.on_token, self.on_end, self.rest, self.asked = port, on_token, on_end, b"", None

    async def run(self):
        loop = asyncio.get_running_loop()
        self.done = loop.create_future()
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        try:
            await loop.sock_connect(self.socket, ("127.0.0.1", self.port))
            self.asked = time.time()
            await loop.sock_sendall(self.socket, self.request)
            loop.add_reader(self.socket, self.read)
            await self.done
        finally:
            loop.remove_reader(self.socket)
            self.socket.close()

    def read(self):
        data, more, _, _ = self.socket.recvmsg(1 << 16, 64)
        seconds, nanoseconds = struct.unpack("qq", more[0][2]) if more else (0, 0)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.take(line, seconds + nanoseconds * 1e-9)
        if not data and not self.done.done():
            self.done.set_exception(AssertionError(f"cut off: {lines}"))

    def take(self, line, now):
        if line.startswith(b"HTTP/") and b" 200 " not in line:
            self.done.set_exception(AssertionError(line))
        elif b"[DONE]" in line:
            self.done.set_result(None)
        elif line.startswith(b"data:"):
            if self.on_token:
                self.on_token(now, INDEX.search(line)[1])
            if self.on_end and b'"finish_reason":null' not in line.replace(b" ", b""):
                self.on_end(now)


async def wait_behind(server, greedy, modest, calls, n, tries):
    """Behind `calls` calls of n choices: (seconds of a step, [(seconds from a free place, steps, seconds from asking)], requests that have not ended)."""
    ends, came, live = [], {}, 0                # came: when the last tokens of each choice came

    async def one_of_many(number):
        nonlocal live
        live += 1
        await Stream(server.port, greedy, n, (300, 800), lambda now, index: came.setdefault((number, index), []).append(now), ends.append).run()

    many = [asyncio.create_task(one_of_many(i)) for i in range(calls)]
    while live < calls:
        await asyncio.sleep(0.5)
    await asyncio.sleep(5)      # all are there
    waits, steps = [], []
    for _ in range(tries):
        for tokens in came.values():
            tokens[:] = tokens[-1:]
        first = []
        call = Stream(server.port, modest, 1, (2, 2), lambda now, _: first.append(now))
        await call.run()
        asked = call.asked
        free = next((t for t in ends if asked + ON_ITS_WAY <= t <= first[0]), asked)
        waits.append((first[0] - free, max(sum(free < t <= first[0] for t in tokens) for tokens in came.values()), first[0] - asked))
        steps += [b - a for tokens in came.values() for a, b in zip(tokens, tokens[1:])]
        await asyncio.sleep(0.3)
    left = calls * n - len(ends)
    for task in many:
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    return statistics.median(steps), waits, left


async def keep_asking(server, key, streams, until):
    async def one():
        while time.monotonic() < until:
            await Stream(server.port, key, 1, (n := random.randrange(16, 64), n)).run()
    await asyncio.gather(*(one() for _ in range(streams)), return_exceptions=True)


async def share(server, seconds):
    keys = server.new_tenant("three", 3), server.new_tenant("one", 1)
    until = time.monotonic() + seconds + 20
    asking = [asyncio.create_task(keep_asking(server, key, 400, until)) for key in keys]
    await asyncio.sleep(10)
    before = server.usage("three"), server.usage("one")
    await asyncio.sleep(seconds)
    after = server.usage("three"), server.usage("one")
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    return [tuple(x - y for x, y in zip(a, b)) for a, b in zip(after, before)]


async def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--punica", default=str(ROOT / "build/punica"))
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--tries", type=int, default=30)
    options.add_argument("--streams", type=int, default=10000)
    o = options.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()                # with so many streams it stops everything for longer than a step
    with tempfile.TemporaryDirectory() as folder:
        server = Server(o.punica, Path(folder), "--max-connections", str(2 * o.streams), "--max-queue", str(o.streams + 1000), "--max-batch", "64", "--threads", "1")
        try:
            greedy, modest = server.new_tenant("greedy"), server.new_tenant("modest")
            for name, calls, n in (("crowd", o.streams, 1), ("choices", 78, 128)):
                step, waits, left = await wait_behind(server, greedy, modest, calls, n, o.tries)
                seconds, steps, asked = zip(*waits)
                told = ", ".join(f"{steps.count(k)} times {k}" for k in sorted(set(steps)))
                print(f"{name}: {calls * n} requests, {left} of them not ended after {o.tries} tries; a step takes {step * 1e3:.1f} ms (median). From a place that falls free "
                      f"to the first token: {told} steps; {statistics.median(seconds) * 1e3:.0f} ms (median), {max(seconds) * 1e3:.0f} (most); "
                      f"from asking {statistics.median(asked) * 1e3:.0f}, {max(asked) * 1e3:.0f}", flush=True)
                await asyncio.sleep(2)
            (p3, o3), (p1, o1) = await share(server, o.seconds)
            print(f"shares: weight 3 was given {p3} tokens of prompts and {o3} of output, weight 1 {p1} and {o1}: output {o3 / o1:.3f} to 1, "
                  f"service (prompt + 2 output) {(p3 + 2 * o3) / (p1 + 2 * o1):.3f} to 1")
        finally:
            server.stop()


sys.exit(asyncio.run(main()))
