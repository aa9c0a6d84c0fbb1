#!/usr/bin/env python3
"""Requests at servers that speak OpenAI's API, which take turns: tokens per second, and how late first tokens are.

    tests/perf/beside.py NAME=HOST:PORT [NAME=HOST:PORT ...] [--requests 64] [--at-once 32] [--adapters 0,1,8] [--rounds 5] [--csv FILE]

As many requests as --at-once begin together; each next one begins when one has ended. With as many at once as requests, it is a burst. Requests take
N adapters in turn, those that the server names in /v1/models (punica, vLLM, SGLang) or in /lora-adapters (llama.cpp). Prompts are random token ids,
new ones in each round, so that no prefix cache helps. A first token is the first event with text: serve a model whose tokens all have text
(tools/random_model.py --tokens). Times are the kernel's stamps of when bytes came. Needs nothing but Python.
"""
import argparse
import csv
import json
import random
import selectors
import socket
import statistics
import struct
import time

SO_TIMESTAMPNS = 35             # Linux: when bytes came
WARM_UP_LEN = 4                 # tokens of each request while programs and caches are cold
FIGURES = ("seconds", "tokens_per_s", "first_median_s", "first_last_s", "between_99_s")


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


class Server:
    def __init__(self, words):
        self.name, _, address = words.partition("=")
        host, _, port = address.rpartition(":")
        self.address = (host, int(port))
        models = self.get("/v1/models")["data"]
        self.model = models[0]["id"]
        self.by_name = [m["id"] for m in models[1:]]
        self.by_number = [] if self.by_name else [a["id"] for a in self.get("/lora-adapters", missing=[])]

    def get(self, path, missing=None):
        with socket.create_connection(self.address) as s:
            s.sendall(b"GET %s HTTP/1.0\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())
            head, _, body = b"".join(iter(lambda: s.recv(1 << 16), b"")).partition(b"\r\n\r\n")
        status = head.partition(b"\r\n")[0]
        if b" 200 " not in status and missing is None:
            raise SystemExit(f"{self.name}: GET {path}: {status.decode()}")
        if b" 200 " not in status:
            return missing
        return json.JSONDecoder().raw_decode(body.decode().lstrip("0123456789abcdef\r\n"))[0]

    def ask(self, adapter):
        """The part of a request that names its adapter; None: the base model."""
        if self.by_number:      # what is not named has scale 0; without "lora" all have what they were loaded with
            return {"model": self.model, "lora": [{"id": self.by_number[adapter or 0], "scale": 0 if adapter is None else 1}]}
        return {"model": self.model if adapter is None else self.by_name[adapter]}


class Stream:
    """One call: when it began, when each event with text came, and when the answer was complete."""

    def __init__(self, server, adapter, prompt, gen_len):
        body = json.dumps(server.ask(adapter) | {"prompt": prompt, "stream": True, "temperature": 0, "max_tokens": gen_len, "ignore_eos": True}).encode()
        self.request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        self.address, self.socket = server.address, None
        self.rest, self.tokens, self.begin, self.end = b"", [], None, None

    def connect(self):
        self.socket = socket.create_connection(self.address)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def start(self, ready):
        self.begin = time.time()
        self.socket.sendall(self.request)
        ready.register(self.socket, selectors.EVENT_READ, self)

    def read(self):
        data, more, _, _ = self.socket.recvmsg(1 << 16, 64)
        assert data, f"cut off: {self.rest}"
        seconds, nanoseconds = struct.unpack("qq", more[0][2]) if more else (time.time(), 0)
        now = seconds + nanoseconds * 1e-9
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            assert not line.startswith(b"HTTP/") or b" 200 " in line, line
            if line.startswith(b"data: [DONE]"):
                self.end = now
            elif line.startswith(b"data:") and json.loads(line[5:])["choices"][0]["text"]:
                self.tokens.append(now)


def run_round(server, n_adapters, gen_len, args):
    """Runs all requests, each of gen_len tokens; returns the figures, and how many events had text."""
    prompts = [random.choices(range(*args.vocab), k=args.prompt_len) for _ in range(args.requests)]
    adapters = [i % n_adapters if n_adapters else None for i in range(len(prompts))]
    streams = [Stream(server, adapter, prompt, gen_len) for adapter, prompt in zip(adapters, prompts)]
    waiting = iter(streams)
    with selectors.DefaultSelector() as ready:
        together = [next(waiting) for _ in range(args.at_once)]
        for one in together:
            one.connect()
        for one in together:
            one.start(ready)
        while ready.get_map():
            for key, _ in ready.select():
                key.data.read()
                if not key.data.end:
                    continue
                ready.unregister(key.fileobj)
                key.fileobj.close()
                if one := next(waiting, None):
                    one.connect()
                    one.start(ready)
    seconds = max(s.end for s in streams) - min(s.begin for s in streams)
    first = [s.tokens[0] - s.begin for s in streams]
    between = [b - a for s in streams for a, b in zip(s.tokens, s.tokens[1:])]
    figures = (seconds, len(streams) * gen_len / seconds, statistics.median(first), max(first), percentile(between, 0.99))
    return dict(zip(FIGURES, figures)), sum(len(s.tokens) for s in streams)


def numbers(words):
    return [int(word) for word in words.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", type=Server, metavar="NAME=HOST:PORT")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--adapters", type=numbers, default=[0], metavar="N[,N...]", help="that requests take in turn; 0: the base model. Each N is run")
    parser.add_argument("--prompt-len", type=int, default=32)
    parser.add_argument("--gen-len", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5, help="for each server")
    parser.add_argument("--vocab", type=int, nargs=2, default=(256, 4000), metavar=("FROM", "TO"), help="token ids that prompts are made of")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two rounds")
    parser.add_argument("--csv", help="append the figures of each round to this file")
    args = parser.parse_args()
    args.at_once = min(args.at_once, args.requests)
    for server in args.servers:
        if max(args.adapters) > max(len(server.by_name), len(server.by_number)):
            parser.error(f"{server.name} has fewer adapters than {max(args.adapters)}")
    return args


def run_rounds(n_adapters, args):
    """Returns the figures of all rounds by the server's name; the servers take turns, after a short round that does not count."""
    rounds = {server.name: [] for server in args.servers}
    for server in args.servers:
        run_round(server, n_adapters, WARM_UP_LEN, args)
    for turn in range(args.rounds):
        for server in args.servers:
            time.sleep(args.pause)
            figures, n = run_round(server, n_adapters, args.gen_len, args)
            rounds[server.name].append(figures)
            if turn == 0:
                print(f"{server.name}, {n_adapters} adapters: {n} events with text of {args.requests * args.gen_len} tokens")
    return rounds


def show(name, rounds):
    columns = {figure: [r[figure] for r in rounds] for figure in FIGURES}
    print(f"{name}: " + ", ".join(f"{figure} {statistics.median(c):.4g} ({min(c):.4g} to {max(c):.4g})" for figure, c in columns.items()))


def append_csv(n_adapters, rounds, args):
    with open(args.csv, "a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            out.writerow(["system", "adapters", "requests", "at_once", "prompt_len", "gen_len", *FIGURES])
        for name, figures in ((name, f) for name, each in rounds.items() for f in each):
            out.writerow([name, n_adapters, args.requests, args.at_once, args.prompt_len, args.gen_len,
                          *(f"{figures[figure]:.4f}" for figure in FIGURES)])


def main():
    args = arguments()
    for n_adapters in args.adapters:
        rounds = run_rounds(n_adapters, args)
        for name, each in rounds.items():
            show(name, each)
        if args.csv:
            append_csv(n_adapters, rounds, args)


if __name__ == "__main__":
    main()
