#!/usr/bin/env python3
"""The life of adapters under load, in a cluster of real processes: 1 scheduler, 2 frontends, 2 runners, each with a disk cache of its
own, one store, and a web server as source. Clients ask for adapters by Zipf's law, while adapters are loaded, replaced in place, rolled
back and unloaded, and workers are killed. An adapter's weights are random, made of its name and version, so that an answer tells
which version made it; every answer must be, whole, that of a version that the name had when the request began.

    PUNICA_BIN=build/punica python3 tests/faults/adapter_life.py [--device cpu] [--adapters 300] [--slots 16] [--host 64] [--kept 64] [--rounds 4] [--seconds 20]

Each round has a quiet half, with the same clients and nothing else, and one with changes and kills; the times between tokens of other streams,
whose adapters nobody touches, are compared at the 99th percentile. Adapters that there is room for: --slots on a device, --host in a worker's host
memory where the device has memory of its own, --kept in a host's disk cache. Needs nothing but Python's standard library.

An answer is that of a version if its tokens and their log-probabilities are. On the CPU they do not depend on who shares a batch; on a GPU they do by
rounding, which may turn a tie: where the first token differs, the expected one must be as likely as the one that was drawn, within TOLERANCE.
"""
import argparse
import http.client
import json
import multiprocessing
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from cluster import DEMO, Cluster, wait_for  # noqa: E402
from program import PROGRAM  # noqa: E402
from tenant_store import ADMIN, Store  # noqa: E402
from web_site import Site  # noqa: E402

PROMPT = "Tom of Lima ordered 12 red kites at 20 pesos each on 5 May 2021; he hates them."
RANK, HIDDEN, LAYERS, N_TOKENS = 4, 256, 6, 12
IMAGE_BYTES = LAYERS * 2 * RANK * HIDDEN * 2            # of an adapter in host memory, where its parts have 16 bits
SPECIAL = ("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>")  # tokens that texts do not have
GRACE_S = 5                     # what a frontend may know late on a busy machine; a second is what is promised
TOLERANCE = {"cpu": 1e-4, "cuda": 0.15}                    # of log-probabilities


def weights(seed):
    """An adapter of the demo model: its two files."""
    rng, header, at, data = random.Random(seed), {}, 0, []
    for layer in range(LAYERS):
        for part, shape, scale in (("A", [RANK, HIDDEN], 0.1), ("B", [HIDDEN, RANK], 0.1)):
            raw = array("h")
            raw.frombytes(rng.randbytes(2 * RANK * HIDDEN))
            values = array("f", [x * scale / 32768 for x in raw]).tobytes()
            header[f"base_model.model.model.layers.{layer}.self_attn.o_proj.lora_{part}.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [at, at + len(values)]}
            at += len(values)
            data.append(values)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 64, "target_modules": ["o_proj"], "base_model_name_or_path": "demo", "bias": "none"}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": struct.pack("<Q", len(head)) + head + b"".join(data)}


class Expected:
    """What `punica generate` answers with an adapter, and whether an answer of a server is that."""

    def __init__(self, line, tolerance):
        made = json.loads(line)
        self.text, self.logprobs, self.tolerance = made["text"], [t["logprob"] for t in made["logprobs"]], tolerance

    def goes_on(self, at, token):
        return token in SPECIAL or self.text.startswith(token, at)

    def is_answer(self, logprobs):
        """logprobs: as /v1/completions has them, of the first tokens at least. After a tie nothing more can be said. The other one of a tie may
        have the same letters next: what is expected is known as text, and "R" was drawn where "</s>", without text and with "R" behind it, was as likely."""
        at, tied = 0, False
        for token, said, top, wanted in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], self.logprobs):
            if abs(said - wanted) > self.tolerance:
                return tied
            tied = tied or any(other != token and self.goes_on(at, other) and abs(said - p) <= self.tolerance for other, p in top.items())
            if not self.goes_on(at, token):
                return tied
            at += 0 if token in SPECIAL else len(token)
        return len(logprobs["tokens"]) >= N_TOKENS


def expect(device, folder, contents):
    """{(name, content): Expected}"""
    lines, args = [], []
    for name, content in contents:
        args += ["--adapter", f"{name}-{content}={folder / name / str(content)}"]
        lines.append(json.dumps({"prompt": PROMPT, "adapter": f"{name}-{content}", "max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True,
                                 "logprobs": 0}))
    done = subprocess.run([PROGRAM, "generate", "--device", device, "--memory-share", "0.1", "--model", DEMO / "model", *args, "--prompts", "-", "--json"],
                          input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return {key: Expected(line, TOLERANCE[device]) for key, line in zip(contents, done.stdout.splitlines())}


def call(address, key, method, path, body=None):
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


class History:
    """What a name was when: contents with the times from which they held, by the operator's clock."""

    def __init__(self):
        self.lock, self.of = threading.Lock(), {}

    def begin(self, name, content):
        """It becomes this content (None: nothing) at some time between now and when the change, which is returned, is ended."""
        change = [content, time.monotonic(), float("inf")]
        with self.lock:
            self.of.setdefault(name, []).append(change)
        return change

    def possible(self, name, began, ended):
        """What it may have been for a request that came to a frontend between these times."""
        with self.lock:
            told = list(self.of.get(name, [(None, 0, 0)]))
        last = max((i for i, (_, _, end) in enumerate(told) if end + GRACE_S < began), default=0)
        return {content for content, start, _ in told[last:] if start <= ended}


class Life:
    def __init__(self, folder, device, n_adapters, slots, host, kept, n_contents=3, n_steady=2):
        """n_contents: of each name; a change goes to one of them."""
        self.device, self.n_contents, self.folder, self.rng, self.history = device, n_contents, folder, random.Random(1), History()
        self.names = [f"a{i:03d}" for i in range(n_adapters)]
        self.steady = [f"steady{i}" for i in range(n_steady)]
        self.contents = [(name, c) for name in self.names for c in range(n_contents)] + [(name, 0) for name in self.steady]
        self.write_adapters()
        self.expected = expect(device, folder / "adapters", self.contents)
        self.bad, self.counts, self.stop = [], Counter(), threading.Event()
        self.start(slots, host, kept)

    def write_adapters(self):
        files = {}
        for name, content in self.contents:
            to = self.folder / "adapters" / name / str(content)
            to.mkdir(parents=True)
            for file, data in weights(f"{name} {content}").items():
                (to / file).write_bytes(data)
                files[f"/{name}/{content}/{file}"] = data
        self.size = sum(len(d) for d in weights("x").values())
        self.site = Site(files)

    def start(self, slots, host, kept):
        store, key = Store(self.folder / "store.db"), self.folder / "key"
        key.write_text(ADMIN)
        key.chmod(0o600)
        self.key = store.tenant("load", adapters=["*"])
        self.cluster = Cluster(self.folder)
        self.cluster.scheduler()
        room = ("--allow-network", "127.0.0.1", "--cache-bytes", int(self.size * (kept + 0.5)))
        worker = ("--device", self.device, "--memory-share", 0.1, "--adapter-slots", slots, "--adapter-host-bytes", IMAGE_BYTES * host)
        self.runners = [self.cluster.runner("--cache", self.folder / f"runner{i}", *worker, *room) for i in range(2)]
        self.fronts = [self.cluster.frontend("--store", store.url, "--admin-key-file", key, "--cache", self.folder / f"front{i}", "--adapter-updates",
                                             *room).http for i in range(2)]
        self.cluster.wait_gpus(2)
        for name in self.names + self.steady:
            self.load(name, 0, False)
        wait_for(lambda: all(call(f, self.key, "POST", "/v1/completions", self.body(self.steady[-1]))[0] == 200 for f in self.fronts), "all is known")

    def body(self, name, **more):
        return {"model": name, "prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True, "logprobs": 3, **more}

    # Changes

    def told(self, name, content, *asked):
        change = self.history.begin(name, content)
        status, text = call(self.rng.choice(self.fronts), ADMIN, *asked)
        assert status == 200, (asked, status, text)
        change[2] = time.monotonic()
        return json.loads(text)

    def load(self, name, content, inplace):
        return self.told(name, content, "POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": f"{self.site.url}/{name}/{content}",
                                                                           "load_inplace": inplace})

    def change(self):
        """Of names that many ask for, mostly."""
        name = self.names[min(int(self.rng.paretovariate(0.6)) - 1, len(self.names) - 1)]
        now = self.history.of[name][-1][0]
        if now is None:
            self.counts["loaded"] += 1
            self.load(name, self.rng.randrange(self.n_contents), False)
            return
        what = self.rng.choice(["replace", "replace", "roll back", "unload"])
        record = json.loads(call(self.fronts[0], ADMIN, "GET", f"/v1/adapters/{name}")[1])
        earlier = [v for v in record["versions"] if v["version"] != record["current"]]
        if what == "unload":
            self.told(name, None, "DELETE", f"/v1/adapters/{name}")
        elif what == "roll back" and earlier:
            version = self.rng.choice(earlier)
            self.told(name, int(version["source"].rsplit("/", 1)[1]), "PUT", f"/v1/adapters/{name}", {"version": version["version"]})
        else:
            what = "replace"
            self.load(name, self.rng.choice([c for c in range(self.n_contents) if c != now]), True)
        self.counts[what] += 1

    # Clients

    def check(self, name, began, first, status, text):
        could = self.history.possible(name, began, first)
        if status == 404 and None in could:
            self.counts["answered 404"] += 1
            return
        said = json.loads(text)["choices"][0] if status == 200 else None
        contents = {c for c in range(self.n_contents) if said and self.expected[name, c].is_answer(said["logprobs"])}
        if not contents & could:
            self.bad.append(f"{name}: {status}, contents {contents}, could be {could}: {text[:300]}")
        self.counts["answers"] += 1
        self.counts["answers to the letter"] += any(self.expected[name, c].text == said["text"] for c in contents)
        self.counts["answers that two versions might give"] += len(contents) > 1

    def client(self, seed, until):
        rng = random.Random(seed)
        while time.monotonic() < until and not self.bad:
            name = self.names[min(int(rng.paretovariate(0.6)) - 1, len(self.names) - 1)]
            began = time.monotonic()
            status, text = call(rng.choice(self.fronts), self.key, "POST", "/v1/completions", self.body(name))
            self.check(name, began, time.monotonic(), status, text)

    def run(self, seconds, clients, changes, kill_every):
        """changes a second, and a worker killed now and then; 0: a quiet time."""
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=self.client, args=(i, until)) for i in range(clients)]
        for t in threads:
            t.start()
        kill_at = time.monotonic() + kill_every
        while changes and time.monotonic() < until and not self.bad:
            self.change()
            if kill_every and time.monotonic() > kill_at:
                children = self.rng.choice(self.runners).children()
                if children:
                    os.kill(children[0], signal.SIGKILL)
                    self.counts["kills"] += 1
                kill_at += kill_every
            time.sleep(1 / changes)
        for t in threads:
            t.join()

    def memory(self):
        """Adapters in the memory of GPUs and of their hosts, and how often they came there from where, as a frontend sees it."""
        page = call(self.fronts[0], ADMIN, "GET", "/metrics")[1]
        found = {tier: int(re.search(rf'adapters_in_memory{{tier="{tier}"}} (\d+)', page)[1]) for tier in ("device", "host")}
        return found | {f"from {tier}": int(re.search(rf"adapter_load_from_{tier}_seconds_count (\d+)", page)[1]) for tier in ("host", "disk")}

    def end(self):
        self.site.end()
        said = "".join(f"== {p.log_path.name}\n{p.log()[-2000:]}\n" for p in self.cluster.processes) if self.bad else ""
        self.cluster.close()
        assert not self.bad, said + "\n".join(self.bad[:10])


def measure(address, key, body, expected, out, stop):
    """In a process of its own: one stream after the other, and when each of its tokens came."""
    while not stop.is_set():
        connection = http.client.HTTPConnection(address, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps({**body, "max_tokens": 400, "stream": True}), {"Authorization": f"Bearer {key}"})
        came = [(line, time.monotonic()) for line in connection.getresponse() if line.startswith(b"data: {")]
        connection.close()
        first = [json.loads(line[6:])["choices"][0]["logprobs"] for line, _ in came[:N_TOKENS]]
        logprobs = {part: sum((f[part] for f in first), []) for part in ("tokens", "token_logprobs", "top_logprobs")}
        out.put((expected.is_answer(logprobs), [at for _, at in came]))


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p))]


def main():
    a = argparse.ArgumentParser()
    for name, value in (("adapters", 300), ("slots", 16), ("host", 64), ("kept", 64), ("rounds", 4), ("clients", 6), ("kill-every", 8), ("contents", 3)):
        a.add_argument(f"--{name}", type=int, default=value)
    a.add_argument("--seconds", type=float, default=20)
    a.add_argument("--changes", type=float, default=4)
    a.add_argument("--device", choices=TOLERANCE, default="cpu")
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), o.device, o.adapters, o.slots, o.host, o.kept, o.contents)
        out, stop = multiprocessing.Queue(), multiprocessing.Event()
        streams = [multiprocessing.Process(target=measure, args=(life.fronts[i % 2], life.key, life.body(name), life.expected[name, 0], out, stop))
                   for i, name in enumerate(life.steady)]
        for s in streams:
            s.start()
        spans = []
        for i in range(o.rounds):
            for busy in (False, True) if i % 2 == 0 else (True, False):
                began = time.monotonic()
                life.run(o.seconds, o.clients, o.changes if busy else 0, o.kill_every if busy else 0)
                spans.append((busy, began, time.monotonic()))
        stop.set()
        memory = life.memory()
        got = [out.get(timeout=60)]
        while any(s.is_alive() for s in streams) or not out.empty():
            try:
                got.append(out.get(timeout=0.2))
            except Exception:
                pass
        gaps = {False: [], True: []}
        for good, times in got:
            assert good, "a steady stream has another text"
            for x, y in zip(times, times[1:]):
                for busy, began, ended in spans:
                    if began <= y < ended:
                        gaps[busy].append(y - x)
        life.end()
        p99 = {busy: percentile(g, 0.99) for busy, g in gaps.items()}
        print(json.dumps({"counts": life.counts, "memory": memory, "tokens": {("busy" if b else "quiet"): len(g) for b, g in gaps.items()},
                          "p50_ms": {("busy" if b else "quiet"): round(1000 * percentile(g, 0.5), 2) for b, g in gaps.items()},
                          "p99_ms": {("busy" if b else "quiet"): round(1000 * v, 2) for b, v in p99.items()},
                          "ratio": round(p99[True] / p99[False], 3)}))
        return 0 if p99[True] <= 1.5 * p99[False] else 1


if __name__ == "__main__":
    sys.exit(main())
