#!/usr/bin/env python3
"""Faults in a cluster of real processes: 1 scheduler, 2 frontends, 4 runners with the demo model on loopback, 64 streams
at once over the base and all adapters. Processes are killed, stopped, slowed down and hung, links are cut, stalled and
garbled by a proxy, in random order and without waiting for calm between two faults, and some requests kill every worker that runs them; every stream must end with exactly the text that
`punica generate` makes of its prompt and seed, and those requests, and nobody else, as killers. The frontends share a store, and
the clients of each are a tenant of their own: what it used is in the end what its clients count, to the token.

    PUNICA_BIN=build/punica build/venv/bin/python tests/faults/cluster_faults.py [--faults N] [--kinds KIND...] [--killers N] [--seed N] [--stop SECONDS]

A stream is excused only when its own frontend was killed. As one ends, another begins, so that there are always 64.
The same seed gives the same faults in the same order, though not at the same moments.
"""
import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from cluster import DEMO, Cluster, deadly_environment, wait_for  # noqa: E402
from conftest import PROGRAM, SANITIZED  # noqa: E402
from proxy import Proxy  # noqa: E402

N_RUNNERS, N_FRONTENDS, N_STREAMS = 4, 2, 64
MODELS = ["demo", *sorted(p.name for p in (DEMO / "adapters").iterdir())]
SENTENCES = ["On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them.",
             "Tom of Lima ordered 12 red kites at 20 pesos each on 5 May 2021; he hates them.",
             "16 yellow cups at sixty-two francs each: that is what Zoe from Oslo ordered.",
             "September 26th, 2003: Max from Delhi purchased twelve white scarves, 19 dollars each."]
HANG_S = 10 if SANITIZED else 4             # a worker silent for so long is killed by its runner
STUCK_S = 300 if SANITIZED else 120         # no stream is without a token for so long
WRITTEN_S = 5 if SANITIZED else 2           # what is older than this is in the store, also on a busy machine
DEADLY = [1001, 1003, 1007, 1013, 1019]     # tokens of which workers die


def cases(n_tokens):
    """64 requests, each with a seed of its own and a little randomness, so that no stream can be right by accident; some
    with penalties, some with logprobs. Stop strings come later: they are cut from the expected text."""
    more = [{}, {"presence_penalty": 0.5, "frequency_penalty": 0.2, "repetition_penalty": 1.1}, {}, {"logprobs": 1}]
    return [{"model": MODELS[i % len(MODELS)], "prompt": SENTENCES[i % len(SENTENCES)], "seed": i, "temperature": 0.7,
             "max_tokens": n_tokens * (3 if i % 16 == 0 else 1), "ignore_eos": True, **more[i % 4]} for i in range(N_STREAMS)]


def undisturbed(requests):
    """(text, logprobs) of each without any server and any fault."""
    args = [PROGRAM, "generate", "--model", DEMO / "model", "--prompts", "-", "--json"]
    for name in MODELS[1:]:
        args += ["--adapter", f"{name}={DEMO / 'adapters' / name}"]
    lines = ""
    for request in requests:
        params = {key: value for key, value in request.items() if key != "model"}
        lines += json.dumps({**params, "adapter": None if request["model"] == "demo" else request["model"]}) + "\n"
    done = subprocess.run(args, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return [(r["text"], [t["logprob"] for t in r.get("logprobs", [])]) for r in results]


def add_stops(requests, expected):
    """Every fourth gets a stop string from the last part of its text, and ends before it."""
    for i in range(2, len(requests), 4):
        text, logprobs = expected[i]
        stop = text[len(text) * 4 // 5:][:4]
        requests[i]["stop"] = stop
        expected[i] = (text[:text.index(stop)], logprobs)


class Tenants:
    """A store, with a tenant for every frontend that is started."""

    def __init__(self, folder):
        self.store, self.n = folder / "store.db", 0

    def run(self, *args):
        done = subprocess.run([PROGRAM, "tenant", *args, "--store", self.store], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def frontend(self, cluster, **how):
        name = f"clients-{self.n}"
        self.n += 1
        self.run("add", name, "--base", "yes", "--in-flight", "1000", "--tokens-per-minute", "1000000000")
        self.run("grant", name, "*")
        key = self.run("key", "add", name, "main").strip()
        process = cluster.frontend("--store", self.store, **how)
        process.tenant, process.key = name, key
        return process

    def used(self, name):
        rows = [json.loads(line) for line in self.run("usage", name, "--json").splitlines()]
        return sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows)

    def check(self, streams):
        """Of frontends that live exactly; of one that was killed all but the last moments, and no more than there can have been."""
        alive = [role.process.tenant for role in streams.frontends]
        for name in alive:
            wait_for(lambda: self.used(name) == streams.used[name], f"{name} has {self.used(name)}, its clients count {streams.used[name]}", 20)
        for name in set(streams.used) - set(alive):
            last = streams.ends[name][-1][0] - WRITTEN_S
            least, most = sum(n for at, n in streams.ends[name] if at < last), streams.used[name] + streams.unsure[name]
            assert least <= self.used(name) <= most, (name, least, self.used(name), most)


def request(frontend, body):
    return b"POST /v1/completions HTTP/1.0\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (frontend.key.encode(), len(body), body)


class Excused(Exception):
    """The stream's frontend was killed."""


class Streams:
    """Clients: 64 at once, alternately at both frontends."""

    def __init__(self, requests, expected, frontends):
        self.requests, self.expected, self.frontends = requests, expected, frontends
        self.ended = self.excused = self.tokens = self.killers = 0
        self.used = Counter()           # tokens by tenant, of streams that ended
        self.ends = {}                  # when, and how many, of each
        self.unsure = Counter()         # the most that there may be beside these
        self.heard = [time.monotonic()] * len(requests)     # when each last got a token
        self.closing = False

    async def read(self, reader, i):
        """The text and the logprobs of a stream until its [DONE], and how many tokens it says it has."""
        text, logprobs, usage = "", [], None
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], (self.requests[i], head, await reader.read(2000))
        while True:
            async with asyncio.timeout(STUCK_S):
                line = await reader.readline()
            assert line, f"the stream ended in the middle: {text!r}"
            if line.startswith(b"data: [DONE]"):
                return text, logprobs, usage["total_tokens"]
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                assert "error" not in event, event
                usage = event["usage"]
                if usage:
                    continue
                choice = event["choices"][0]
                text += choice["text"]
                logprobs += choice["logprobs"]["token_logprobs"] if choice["logprobs"] else []
                self.tokens += 1
                self.heard[i] = time.monotonic()

    async def one(self, i, frontend):
        body = json.dumps({**self.requests[i], "stream": True, "stream_options": {"include_usage": True}}).encode()
        started = frontend.process
        most = 100 + self.requests[i]["max_tokens"]
        self.unsure[started.tenant] += most
        try:
            host, port = started.http.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(request(started, body))
                text, logprobs, n_tokens = await self.read(reader, i)
                self.used[started.tenant] += n_tokens
                self.ends.setdefault(started.tenant, []).append((time.monotonic(), n_tokens))
                self.unsure[started.tenant] -= most
                return text, logprobs
            finally:
                writer.close()
        except (OSError, EOFError, AssertionError):
            if started is not frontend.process or started.popen.poll() is not None:
                raise Excused from None
            raise

    async def killer(self, i):
        """A request that kills every worker that runs it: it must end as that."""
        body = json.dumps({"model": "demo", "prompt": [*DEADLY, i], "max_tokens": 20}).encode()
        while True:
            frontend = self.frontends[i % len(self.frontends)].process
            try:
                host, port = frontend.http.split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(request(frontend, body))
                answer = await reader.read()
                writer.close()
            except OSError:
                answer = b""
            if b"worker_died" in answer:
                self.killers += 1
                return
            assert not answer or frontend.popen.poll() is not None, answer
            await asyncio.sleep(0.2)            # its frontend was killed

    async def forever(self, i):
        """One stream after the other, until told to stop after the present one."""
        turn = i
        while True:
            turn += 1
            try:
                text, logprobs = await self.one(i, self.frontends[turn % len(self.frontends)])
            except Excused:
                self.excused += 1
                await asyncio.sleep(0.1)
                continue
            want, likely = self.expected[i]
            assert text == want, f"stream {i} ({self.requests[i]}):\n got {text!r}\nwant {want!r}"
            assert len(logprobs) == len(likely) and all(abs(a - b) < 1e-4 for a, b in zip(logprobs, likely)), (i, logprobs, likely)
            self.ended += 1
            if self.closing:
                return


class Role:
    """A place in the cluster and the process that fills it at present."""

    def __init__(self, start):
        self.start = start
        self.process = start()


class Faults:
    KINDS = {"kill worker": 6, "cut link": 5, "stall link": 3, "garble link": 4, "kill workers": 2, "kill runner": 3, "kill scheduler": 3,
             "stop runner": 1, "slow worker": 2, "hang worker": 1, "kill frontend": 1}

    def __init__(self, rng, kinds, scheduler, runners, frontends, proxy, stop_seconds):
        self.kinds = {kind: self.KINDS[kind] for kind in kinds}
        self.rng, self.scheduler, self.runners, self.frontends, self.stop_seconds = rng, scheduler, runners, frontends, stop_seconds
        self.proxy, self.beside = proxy, []
        self.done = Counter()

    async def restart(self, role):
        role.process.kill()
        role.process.wait()
        await asyncio.sleep(self.rng.uniform(0, 0.5))
        role.process = await asyncio.to_thread(role.start)

    async def slow_down(self, workers, seconds):
        """A hundredth of their speed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and workers:
            for number, pause in ((signal.SIGSTOP, 0.2), (signal.SIGCONT, 0.002)):
                for worker in list(workers):
                    try:
                        os.kill(worker, number)
                    except ProcessLookupError:
                        workers.remove(worker)
                await asyncio.sleep(pause)

    def go_on_with(self, fault):
        """It takes its time, and others come meanwhile."""
        self.beside.append(asyncio.create_task(fault))

    async def strike(self, kind):
        runner = self.rng.choice(self.runners)
        if kind in ("kill worker", "hang worker"):
            for worker in runner.process.children():
                os.kill(worker, signal.SIGKILL if kind == "kill worker" else signal.SIGSTOP)
        elif kind == "kill workers":            # one after the other, wherever their requests go
            for _ in range(8):
                for worker in self.rng.choice(self.runners).process.children():
                    os.kill(worker, signal.SIGKILL)
                await asyncio.sleep(self.rng.uniform(0, 0.3))
        elif kind == "cut link":
            self.proxy.cut()
        elif kind == "garble link":
            self.proxy.garble()
        elif kind == "stall link":
            self.go_on_with(self.proxy.stall(self.rng.uniform(0.2, 8)))
        elif kind == "slow worker":
            self.go_on_with(self.slow_down(runner.process.children(), self.rng.uniform(2, 10)))
        elif kind == "stop runner":
            runner.process.kill(signal.SIGSTOP)
            await asyncio.sleep(self.stop_seconds)
            runner.process.kill(signal.SIGCONT)
        else:
            role = {"kill runner": runner, "kill scheduler": self.scheduler, "kill frontend": self.rng.choice(self.frontends)}[kind]
            await self.restart(role)
        self.done[kind] += 1

    def draw(self, n):
        """n kinds of faults, each kind at least once where n allows."""
        kinds = list(self.kinds)[:n]
        kinds += self.rng.choices(list(self.kinds), self.kinds.values(), k=n - len(kinds))
        self.rng.shuffle(kinds)
        return kinds


async def wait(streams, tasks, seconds):
    """Let so much time pass; a stream that has failed, or is stuck, is the end of it."""
    until = time.monotonic() + seconds
    while True:
        for task in tasks:
            if task.done():
                task.result()
        assert time.monotonic() - min(streams.heard) < STUCK_S, "a stream is stuck"
        if time.monotonic() >= until:
            return
        await asyncio.sleep(min(0.05, seconds))


async def run(options, folder):
    rng = random.Random(options.seed)
    requests = cases(options.tokens)
    expected = undisturbed(requests)
    add_stops(requests, expected)
    cluster = Cluster(folder)
    scheduler = Role(cluster.scheduler)
    proxy = Proxy(rng, lambda: cluster.address)
    await proxy.start()
    cluster.reach = proxy.address
    deadly = deadly_environment(DEADLY, folder)
    runners = [Role(lambda: cluster.runner("--hang-seconds", HANG_S, env=deadly)) for _ in range(N_RUNNERS)]
    tenants = Tenants(folder)
    frontends = [Role(lambda: tenants.frontend(cluster)) for _ in range(N_FRONTENDS)]
    for role in frontends:
        role.start = lambda listen=role.process.http: tenants.frontend(cluster, listen=listen)
    await asyncio.to_thread(cluster.wait_gpus, N_RUNNERS)
    streams = Streams(requests, expected, frontends)
    faults = Faults(rng, options.kinds, scheduler, runners, frontends, proxy, options.stop)
    started = time.monotonic()
    tasks = [asyncio.create_task(streams.forever(i)) for i in range(N_STREAMS)]
    killers = []
    try:
        kinds = faults.draw(options.faults)
        for i, kind in enumerate(kinds):
            await wait(streams, tasks, rng.uniform(0, options.pause))
            print(f"{time.monotonic() - started:6.1f} s  {kind}", flush=True)
            await faults.strike(kind)
            while len(killers) < options.killers * (i + 1) // len(kinds):
                killers.append(asyncio.create_task(streams.killer(len(killers))))
        while len(killers) < options.killers:           # without faults beside them
            await wait(streams, tasks, rng.uniform(0, options.pause))
            killers.append(asyncio.create_task(streams.killer(len(killers))))
        while not all(task.done() for task in killers):
            await wait(streams, tasks, 0.1)
        for task in killers:
            task.result()
        streams.closing = True
        await asyncio.gather(*tasks, *faults.beside)
        took = time.monotonic() - started
        await asyncio.to_thread(tenants.check, streams)
    finally:
        for task in tasks + killers + faults.beside:
            task.cancel()
        await asyncio.gather(*tasks, *killers, *faults.beside, return_exceptions=True)
        await proxy.stop()
        cluster.close()
    return faults.done, streams, took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=7 if SANITIZED else 13)
    parser.add_argument("--kinds", nargs="+", choices=list(Faults.KINDS), default=list(Faults.KINDS), metavar="KIND", help="of faults: " + ", ".join(Faults.KINDS))
    parser.add_argument("--killers", type=int, default=1 if SANITIZED else 2, help="requests that kill their workers")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--tokens", type=int, default=40 if SANITIZED else 200, help="of each stream")
    parser.add_argument("--stop", type=float, default=3, help="seconds a runner is stopped")
    parser.add_argument("--pause", type=float, default=2, help="seconds between faults at most")
    options = parser.parse_args()
    print(f"--seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            done, streams, took = asyncio.run(run(options, Path(folder)))
        except BaseException as problem:
            print(f"== {type(problem).__name__}: {problem}")
            for log in sorted(Path(folder).glob("*.log")):
                print(f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}")
            raise
    what = ", ".join(f"{n} {kind}" for kind, n in sorted(done.items()))
    print(f"{sum(done.values())} faults ({what}) in {took:.0f} s: {streams.ended} streams, {streams.tokens} pieces, all as without"
          f" faults; {streams.excused} on killed frontends; {streams.killers} killers; usage is {sum(streams.used.values())} tokens, as the clients count")


if __name__ == "__main__":
    main()
