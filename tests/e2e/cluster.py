"""A cluster of real processes on loopback, for tests: start, look, hurt, stop.

Every process writes its log to a file of its own; what a test waits for is a condition, never a time.
"""
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

import wire
from program import PROGRAM, ROOT

DEMO = ROOT / "demo"
SECRET = "the secret of the tests"
PATIENCE_S = 60


def wait_for(condition, what, patience=PATIENCE_S):
    """The first true value of condition(), asked again and again."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{patience} s passed, and still not: {what}"
        time.sleep(0.01)


def deadly_environment(tokens, folder):
    """Of a runner whose workers die of every request with these tokens in its prompt."""
    library = folder / "deadly_request.so"
    subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, ROOT / "tests/faults/deadly_request.c"], check=True)
    return {"LD_PRELOAD": str(library), "DEADLY_BYTES": b"".join(map(wire.varint, tokens)).hex(),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


class Process:
    def __init__(self, log, *args, env=None):
        self.log_path = log
        self.args = args
        with open(log, "a") as out:
            self.popen = subprocess.Popen([PROGRAM, *map(str, args)], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          env=env, start_new_session=True)

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_log(self, pattern):
        """The match of a line it has written."""
        return wait_for(lambda: re.search(pattern, self.log()), f"{self.args[0]} says {pattern}")

    def children(self):
        try:
            with open(f"/proc/{self.pid}/task/{self.pid}/children") as f:
                return [int(pid) for pid in f.read().split()]
        except FileNotFoundError:
            return []

    def kill(self, number=signal.SIGKILL):
        self.popen.send_signal(number)

    def wait(self, patience=PATIENCE_S):
        return self.popen.wait(patience)


class Cluster:
    """scheduler(), frontend(), runner() start a process; close() kills what is left and reads the logs for sanitizers' reports."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self.address = self.http = None
        self.reach = None               # where runners and frontends find the scheduler, if not there

    def start(self, name, *args, secret=SECRET, env=None):
        """secret: in its environment; None: nowhere."""
        log = self.folder / f"{len(self.processes)}-{name}.log"
        p = Process(log, name, *args, env={**os.environ, **({"PUNICA_SECRET": secret} if secret else {}), **(env or {})})
        self.processes.append(p)
        return p

    def scheduler(self, *args, **how):
        """Where the one before it was, if there was one."""
        p = self.start("scheduler", "--listen", self.address or "127.0.0.1:0", "--http", self.http or "127.0.0.1:0", *args, **how)
        m = p.wait_log(r"listens on (\S+), HTTP on (\S+)")
        self.address, self.http = m[1], m[2]
        return p

    def runner(self, *args, model=DEMO / "model", **how):
        return self.start("runner", "--scheduler", self.reach or self.address, "--model", model, "--adapters", DEMO / "adapters",
                          "--threads", 1, *args, **how)

    def frontend(self, *args, listen="127.0.0.1:0", **how):
        """Its `http` is where clients come in; `listen`: where one before it was."""
        p = self.start("frontend", "--listen", listen, "--scheduler", self.reach or self.address, "--model", DEMO / "model", "--name", "demo",
                       "--adapters", DEMO / "adapters", *args, **how)
        p.http = p.wait_log(r"listens on http://(\S+)")[1]
        return p

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
            return answer.read().decode()

    def signals(self):
        try:
            return json.loads(self.get("/v1/signals"))
        except OSError:
            return {"gpus": [], "running": None}

    def wait_gpus(self, n):
        wait_for(lambda: len(self.signals()["gpus"]) == n, f"{n} GPUs")

    def close(self):
        for p in self.processes:
            if p.popen.poll() is None:
                p.kill(signal.SIGCONT)
                p.kill()
                p.wait()
        for p in self.processes:
            text = p.log()
            assert "Sanitizer" not in text and "CHECK" not in text, text[-4000:]
