#!/usr/bin/env python3
"""A burst of prompts at servers that speak OpenAI's API: how late the last of them has its first token, and when all is done.

    tests/perf/burst.py NAME=HOST:PORT [NAME=HOST:PORT ...] [--streams 32] [--prompt-len 32] [--gen-len 64] [--rounds 9]

The servers take turns, so that a noisy machine is noisy for all of them. Prompts are random token ids, new ones in each round, so that no prefix cache
helps. A first token is the first event with text: serve a model whose tokens all have text (tools/random_model.py --tokens). Times are the
kernel's stamps of when bytes came. Needs nothing but Python.
"""
import argparse
import json
import random
import selectors
import socket
import statistics
import struct
import time

SO_TIMESTAMPNS = 35             # Linux: when bytes came


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


class Server:
    def __init__(self, words):
        self.name, _, address = words.partition("=")
        host, _, port = address.rpartition(":")
        self.address = (host, int(port))
        with socket.create_connection(self.address) as s:
            s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: s.recv(1 << 16), b""))
        self.model = json.JSONDecoder().raw_decode(answer.partition(b"\r\n\r\n")[2].decode().lstrip("0123456789abcdef\r\n"))[0]["data"][0]["id"]
        self.last_first, self.median_first, self.between, self.all_done = [], [], [], []


class Stream:
    """One call: when each event with text came, and when the answer was complete."""

    def __init__(self, server, prompt, gen_len):
        body = json.dumps({"model": server.model, "prompt": prompt, "stream": True, "temperature": 0, "max_tokens": gen_len, "ignore_eos": True}).encode()
        self.request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        self.socket = socket.create_connection(server.address)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.rest, self.tokens, self.end = b"", [], None

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


def burst(server, prompts, gen_len):
    streams = [Stream(server, prompt, gen_len) for prompt in prompts]
    begin = time.time()
    with selectors.DefaultSelector() as ready:
        for s in streams:
            s.socket.sendall(s.request)
            ready.register(s.socket, selectors.EVENT_READ, s)
        while ready.get_map():
            for key, _ in ready.select():
                key.data.read()
                if key.data.end:
                    ready.unregister(key.fileobj)
                    key.fileobj.close()
    first = [s.tokens[0] - begin for s in streams]
    server.last_first.append(max(first))
    server.median_first.append(statistics.median(first))
    server.between += [b - a for s in streams for a, b in zip(s.tokens, s.tokens[1:])]
    server.all_done.append(max(s.end for s in streams) - begin)
    return sum(len(s.tokens) for s in streams)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", type=Server, metavar="NAME=HOST:PORT")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--prompt-len", type=int, default=32)
    parser.add_argument("--gen-len", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--vocab", type=int, nargs=2, default=(256, 4000), metavar=("FROM", "TO"), help="token ids that prompts are made of")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two bursts")
    args = parser.parse_args()
    for turn in range(args.rounds + 1):
        for server in args.servers:
            prompts = [random.choices(range(*args.vocab), k=args.prompt_len) for _ in range(args.streams)]
            n = burst(server, prompts, args.gen_len)
            time.sleep(args.pause)
            if turn == 0:       # for nobody: programs and caches are cold
                print(f"{server.name}: {n} events with text of {args.streams * args.gen_len} tokens")
                server.last_first, server.median_first, server.between, server.all_done = [], [], [], []
    print("server: seconds to the last first token (each round), its median; to the first token, median; between tokens, 99 %; until all is done, median")
    for s in args.servers:
        rounds = " ".join(f"{x:.3f}" for x in s.last_first)
        print(f"{s.name}: {rounds}; {statistics.median(s.last_first):.3f}; {statistics.median(s.median_first):.3f}; "
              f"{percentile(s.between, 0.99):.3f}; {statistics.median(s.all_done):.3f}")


if __name__ == "__main__":
    main()
