"""Scheduler, runners and workers as real processes with the demo model; the test itself is the frontend (wire.py).

Streams must come out of every fault with exactly the tokens of an undisturbed run.
"""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import wire
from cluster import DEMO, SECRET, Cluster, deadly_environment, wait_for
from conftest import PROGRAM
from serving import metric, raw

STOP, LENGTH, FAILED, KILLS_WORKERS = 0, 1, 2, 6
N_STREAMS, N_TOKENS = 6, 150
LONG = wire.sampling(temperature=0.8, seed=11, ignore_eos=True)
ADAPTERS = ["", "sql", "rot13", "french", "shout", "json"]


class Streams:
    """A frontend's bookkeeping: submits, takes tokens in order, submits again after a lost link."""

    def __init__(self, cluster, n=N_STREAMS, n_tokens=N_TOKENS):
        self.cluster = cluster
        self.prompt = {i: [20 + i, 30 + i, 40 + i] for i in range(1, n + 1)}
        self.output = {i: [] for i in self.prompt}
        self.arrival = {i: time.time() - 1 + i * 1e-3 for i in self.prompt}
        self.n_tokens = n_tokens
        self.ends, self.wanted_ends = {}, {}
        self.connect()

    def connect(self):
        self.link = wait_for(self.try_link, "a scheduler")
        for i, prompt in self.prompt.items():
            if i not in self.ends:
                self.link.submit(i, prompt + self.output[i], self.n_tokens, adapter=ADAPTERS[i % len(ADAPTERS)],
                                 n_prompt=len(prompt), params=LONG, arrival=self.arrival[i])

    def try_link(self):
        try:
            return wire.Link(self.cluster.address, SECRET)
        except OSError:
            return None

    def take(self):
        """One message. Every token is the next one of its stream."""
        try:
            tokens, ends = self.link.results()
        except (ConnectionError, OSError, wire.Refused):
            self.link.close()
            self.connect()
            return
        for id, index, new, _ in tokens:
            assert index == len(self.output[id]) and id not in self.ends, (id, index, len(self.output[id]))
            self.output[id] += new
        for id, why, text in ends:
            assert why == self.wanted_ends.get(id, LENGTH), (id, why, text)
            self.ends[id] = why

    def until(self, n):
        """Until all of them together have so many tokens."""
        while sum(map(len, self.output.values())) < n and len(self.ends) < len(self.prompt):
            self.take()

    def finish(self):
        while len(self.ends) < len(self.prompt):
            self.take()
        self.link.close()
        return self.output


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The tokens of an undisturbed run."""
    c = Cluster(tmp_path_factory.mktemp("undisturbed"))
    try:
        c.scheduler()
        c.runner()
        return Streams(c).finish()
    finally:
        c.close()


def half_way(streams):
    streams.until(N_STREAMS * N_TOKENS // 2)
    assert len(streams.ends) < N_STREAMS


def test_tokens_are_those_of_generate(cluster, punica):
    prompts = [{"prompt": [20 + i, 21, 22], "adapter": a or None, "max_tokens": 12} for i, a in enumerate(ADAPTERS)]
    options = [x for a in ADAPTERS if a for x in ("--adapter", f"{a}={DEMO / 'adapters' / a}")]
    done = punica("generate", "--model", DEMO / "model", *options, "--prompts", "-", "--json",
                  stdin="".join(json.dumps(p) + "\n" for p in prompts))
    wanted = [json.loads(line) for line in done.stdout.splitlines()]
    cluster.scheduler()
    cluster.runner()
    link = wire.Link(cluster.address, SECRET)
    for i, p in enumerate(prompts):
        link.submit(i + 1, p["prompt"], 12, adapter=p["adapter"] or "")
    got, ends = {i + 1: [] for i in range(len(prompts))}, {}
    while len(ends) < len(prompts):
        tokens, over = link.results()
        for id, index, new, _ in tokens:
            assert index == len(got[id])
            got[id] += new
        ends.update({id: why for id, why, _ in over})
    for i, w in enumerate(wanted):
        assert got[i + 1] == w["token_ids"]
        assert ends[i + 1] == (STOP if w["finish_reason"] == "stop" else LENGTH)


def test_a_bad_request_fails_alone(cluster):
    cluster.scheduler()
    cluster.runner()
    link = wire.Link(cluster.address, SECRET)
    bad = {1: dict(tokens=[1, 2], adapter="nowhere"), 2: dict(tokens=[1, 2], adapter="../adapters/sql"),
           3: dict(tokens=[999999]), 4: dict(tokens=[1], params=wire.message([(1, ("f", -1.0))])), 5: dict(tokens=[]),
           6: dict(tokens=[1], params=b"\xff\xff\xff")}
    for id, request in bad.items():
        link.submit(id, max_tokens=4, **request)
    link.submit(7, [1, 2, 3], 4, params=wire.sampling(ignore_eos=True))
    ends = {}
    while len(ends) < len(bad) + 1:
        ends.update({id: (why, text) for id, why, text in link.results()[1]})
    assert ends.pop(7)[0] == LENGTH
    assert all(why == FAILED and text for why, text in ends.values()), ends
    assert "nowhere" in ends[1][1] and "vocabulary" in ends[3][1] and "temperature" in ends[4][1]


def test_a_cancel_frees_everything(cluster):
    cluster.scheduler()
    cluster.runner()
    cluster.wait_gpus(1)
    free = wait_for(lambda: cluster.signals()["gpus"][0]["pages_free"], "pages")
    streams = Streams(cluster, n_tokens=900)
    streams.until(30)
    assert cluster.signals()["gpus"][0]["pages_free"] < free
    for id in streams.prompt:
        streams.link.cancel(id)
    wait_for(lambda: cluster.signals()["running"] == 0 and cluster.signals()["gpus"][0]["pages_free"] == free, "all is free")


def test_a_frontend_that_goes_takes_its_requests_along(cluster):
    cluster.scheduler()
    cluster.runner()
    streams = Streams(cluster, n_tokens=900)
    streams.until(30)
    streams.link.close()
    wait_for(lambda: cluster.signals()["running"] == 0, "nothing runs")


def test_a_shortage_of_pages_changes_no_token(cluster, expected):
    cluster.scheduler()
    cluster.runner("--kv-pages", 24)
    assert Streams(cluster).finish() == expected
    assert metric(f"http://{cluster.http}", "punica_requests_evicted_total") > 0


def test_a_killed_worker_is_started_again(cluster, expected):
    cluster.scheduler()
    runner = cluster.runner()
    streams = Streams(cluster)
    half_way(streams)
    os.kill(runner.children()[0], signal.SIGKILL)
    assert streams.finish() == expected
    runner.wait_log("ended: killed by signal 9; starting it again")


def test_a_worker_that_dies_often_is_back_soon(cluster):
    """Others wait for it, whoever kills it: the pause before it is started again does not grow beyond two seconds."""
    cluster.scheduler()
    runner = cluster.runner()
    for n in range(1, 10):
        wait_for(lambda: runner.log().count("is ready on") == n, "it is back")
        os.kill(runner.children()[0], signal.SIGKILL)
        wait_for(lambda: runner.log().count("starting it again") == n, "that is noticed")
    killed = time.monotonic()               # without the limit it would be 25.6 s after this one
    wait_for(lambda: runner.log().count("is ready on") == 10, "it is back")
    assert time.monotonic() - killed < 15


def test_a_hung_worker_is_killed(cluster, expected):
    cluster.scheduler()
    runner = cluster.runner("--hang-seconds", 3)
    streams = Streams(cluster)
    half_way(streams)
    os.kill(runner.children()[0], signal.SIGSTOP)
    assert streams.finish() == expected
    runner.wait_log("ended: hung")


class Limp(threading.Thread):
    """Lets a process run for a hundredth of the time only."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.over = pid, False
        self.start()

    def run(self):
        while not self.over:
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.3)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.003)

    def stop(self):
        self.over = True
        self.join()


def test_a_slow_gpu_is_left_until_it_recovers(cluster, expected):
    """It has the largest working set, but new requests and those it had go on elsewhere; when it is fast again it is used again."""
    scheduler = cluster.scheduler()
    runners = {}
    for n in (1, 2):
        r = cluster.runner("--hang-seconds", 120)
        cluster.wait_gpus(n)
        runners.update({g["uuid"]: r for g in cluster.signals()["gpus"] if g["uuid"] not in runners})
    assert Streams(cluster).finish() == expected
    busy = max(runners)                     # with equal working sets the highest is preferred
    worker = runners[busy].children()[0]

    def is_slow():
        return {g["uuid"]: g["slow"] for g in cluster.signals()["gpus"]} == {uuid: uuid == busy for uuid in runners}

    def is_slow_and_stopped():
        """Where others use the machine it limps less than it should, and what it is tried out with may show that it is fast: so it is stopped while it is slow."""
        limp = Limp(worker)
        with ThreadPoolExecutor(1) as pool:
            streams = pool.submit(Streams(cluster).finish)
            try:
                wait_for(lambda: is_slow() or streams.done(), "it is slow, or there was nothing to see")
            finally:
                limp.stop()
            os.kill(worker, signal.SIGSTOP)
            time.sleep(0.5)                 # what it said before that
            slow = is_slow()
            if not slow:
                os.kill(worker, signal.SIGCONT)
            assert streams.result() == expected
        return slow
    wait_for(is_slow_and_stopped, "it is slow", 120)
    try:
        assert f"GPU {busy} is slow: a step takes" in scheduler.log()
        assert Streams(cluster).finish() == expected
        assert is_slow()
        assert f'punica_gpu_slow{{uuid="{busy}"}} 1' in cluster.get("/metrics")
        assert "ended" not in runners[busy].log()
    finally:
        os.kill(worker, signal.SIGCONT)
    scheduler.wait_log(f"GPU {busy} is as fast as it should be again")
    assert not any(g["slow"] for g in cluster.signals()["gpus"])


def test_a_request_that_kills_its_workers_fails_alone(cluster, expected, tmp_path):
    deadly = [1001, 1003, 1007, 1013, 1019]
    env = deadly_environment(deadly, tmp_path)
    cluster.scheduler()
    runners = [cluster.runner(env=env) for _ in range(2)]
    cluster.wait_gpus(2)
    streams = Streams(cluster)
    streams.until(N_STREAMS * N_TOKENS // 4)
    id = N_STREAMS + 1
    streams.prompt[id], streams.output[id], streams.arrival[id] = deadly, [], time.time()
    streams.wanted_ends[id] = KILLS_WORKERS
    streams.link.submit(id, deadly, N_TOKENS, params=LONG, arrival=streams.arrival[id])
    output = streams.finish()
    assert output.pop(id) == [] and output == expected
    n_died = sum(r.log().count("ended: killed by signal 6") for r in runners)
    assert 3 <= n_died <= 5             # with others at most twice, then three times alone


def test_gpus_that_kill_all_their_workers_hurt_nobody(cluster, tmp_path):
    """Whoever was alone on those has not killed them."""
    cluster.scheduler()
    cluster.runner("--max-batch", 2)
    env = deadly_environment([], tmp_path)              # of any command
    broken = [cluster.runner(env=env) for _ in range(2)]
    cluster.wait_gpus(1)
    streams = Streams(cluster, 60, 1500)                # most have to wait
    while any(runner.log().count("ended: killed by signal 6") < 5 for runner in broken):
        streams.take()                                  # nobody ends as a killer
    streams.link.close()


def test_a_killed_runner_takes_its_workers_along_and_loses_no_request(cluster, expected):
    cluster.scheduler()
    first = cluster.runner()
    streams = Streams(cluster)
    half_way(streams)
    worker = first.children()[0]
    first.kill()
    wait_for(lambda: not os.path.exists(f"/proc/{worker}") or open(f"/proc/{worker}/stat").read().split()[2] == "Z", "no worker")
    cluster.runner()
    assert streams.finish() == expected


def test_a_stopped_runner_is_left_and_comes_back(cluster, expected):
    cluster.scheduler()
    first = cluster.runner()
    cluster.wait_gpus(1)
    streams = Streams(cluster)
    half_way(streams)
    first.kill(signal.SIGSTOP)
    cluster.runner()
    assert streams.finish() == expected
    first.kill(signal.SIGCONT)
    cluster.wait_gpus(2)
    assert len(first.children()) == 1 and "ended" not in first.log()


def test_a_restarted_scheduler_gets_everything_back(cluster, expected):
    scheduler = cluster.scheduler()
    cluster.runner()
    streams = Streams(cluster)
    half_way(streams)
    scheduler.kill()
    scheduler.wait()
    cluster.scheduler()
    assert streams.finish() == expected


def test_a_drained_runner_hands_its_requests_on_and_exits(cluster, expected):
    cluster.scheduler()
    first = cluster.runner()
    cluster.wait_gpus(1)
    streams = Streams(cluster)
    half_way(streams)
    second = cluster.runner()
    cluster.wait_gpus(2)
    first.kill(signal.SIGTERM)
    assert streams.finish() == expected
    assert first.wait() == 0
    cluster.wait_gpus(1)
    second.kill(signal.SIGTERM)
    assert second.wait() == 0


def test_a_second_sigterm_exits_at_once(cluster):
    cluster.scheduler()
    runner = cluster.runner()
    streams = Streams(cluster, n_tokens=900)
    streams.until(10)
    runner.kill(signal.SIGTERM)
    runner.wait_log("draining")
    runner.kill(signal.SIGTERM)
    assert runner.wait(10) == 0
    streams.link.close()


def test_several_workers_on_one_runner(cluster, expected):
    cluster.scheduler()
    workers = cluster.runner("--workers", 2, "--max-batch", 3).children
    cluster.wait_gpus(2)
    for worker in workers():
        os.kill(worker, signal.SIGSTOP)         # streams might end before anybody looks
    streams = Streams(cluster)
    wait_for(lambda: [g["running"] for g in cluster.signals()["gpus"]] == [3, 3] and cluster.signals()["scale_up"], "each has its part")
    for worker in workers():
        os.kill(worker, signal.SIGCONT)
    assert streams.finish() == expected


def test_strangers_are_refused_and_told_why(cluster, one_golden):
    scheduler = cluster.scheduler()
    runner = cluster.runner(secret="another secret of the tests")
    runner.wait_log(r"refused by scheduler \S+ at " + cluster.address + ": wrong secret")
    scheduler.wait_log(r"refused runner \S+ at 127\.0\.0\.1:\d+: wrong secret")
    with pytest.raises(wire.Refused, match="wrong secret"):
        wire.Link(cluster.address, "a third secret of the tests")
    with pytest.raises(wire.Refused, match="version 99"):
        wire.Link(cluster.address, SECRET, version=99)
    scheduler.wait_log("refused .*version 99")
    cluster.frontend()
    scheduler.wait_log(r"frontend \S+ at \S+ is up")
    other = cluster.runner(model=one_golden.model)
    other.wait_log("refused by scheduler .* its model is .* but this cluster serves llama-")
    scheduler.wait_log("refused runner .* its model is .* but this cluster serves llama-")
    assert "lost" not in scheduler.log()


def test_the_secret_stays_with_the_process_that_needs_it(cluster):
    cluster.scheduler()
    runner = cluster.runner()
    worker = wait_for(runner.children, "a worker")[0]
    wait_for(lambda: b"\0worker\0" in open(f"/proc/{worker}/cmdline", "rb").read(), "the worker's own program")     # not the runner's copy
    environment = wait_for(lambda: open(f"/proc/{worker}/environ", "rb").read(), "an environment")
    assert b"PATH=" in environment and b"PUNICA_SECRET" not in environment


def test_a_worker_whose_runner_is_gone_does_not_load_the_model():
    commands, writer = os.pipe()
    os.close(writer)
    done = subprocess.run(["sh", "-c", 'exec "$0" worker --model "$1" 3<&0 4>&1', PROGRAM, DEMO / "model"], stdin=commands,
                          capture_output=True, timeout=60)
    os.close(commands)
    assert done.returncode == 0 and done.stdout == b"", done.stderr


BAD_CALLS = {"another method": b"POST /health HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
             "long headers": b"GET /health HTTP/1.1\r\nX: " + b"x" * 20000,
             "a long body": b"GET /health HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n",
             "half a line": b"GET /health HTTP"}


@pytest.mark.parametrize("what", BAD_CALLS)
def test_the_port_for_operators_has_limits(cluster, what):
    cluster.scheduler()
    host, port = cluster.http.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as s:
        s.sendall(BAD_CALLS[what])
        try:
            answer = s.recv(4096)
        except ConnectionError:
            answer = b""
    assert not answer.startswith(b"HTTP/1.1 200")
    assert "ok" in cluster.get("/health")


def test_links_can_use_tls(cluster, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-keyout", key, "-out", cert, "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    scheduler = cluster.scheduler("--tls-cert", cert, "--tls-key", key)
    cluster.runner("--tls-ca", cert)
    cluster.wait_gpus(1)
    plain = cluster.runner()
    plain.wait_log("cannot reach " + cluster.address)
    scheduler.wait_log(r"did not say who it is: TLS: ")
    assert len(cluster.signals()["gpus"]) == 1


def test_the_scale_hook_is_run(cluster, tmp_path):
    said, status = tmp_path / "said", tmp_path / "status"
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\nenv >{status}; grep SigIgn /proc/$$/status >>{status}; echo "$@" >>{said}\nexit 1\n')
    hook.chmod(0o755)
    scheduler = cluster.scheduler("--scale-hook", hook, "--hook-every", 1)
    wait_for(lambda: said.exists() and said.read_text() == "up\nup\n", "up, and again as long as that is wanted")
    scheduler.wait_log("scale hook .*: exit code 1")
    assert "PUNICA_SECRET" not in status.read_text()
    ignored = int(re.search(r"SigIgn:\s*(\w+)", status.read_text())[1], 16)
    assert not ignored >> signal.SIGPIPE - 1 & 1
    cluster.runner("--workers", 2)
    cluster.wait_gpus(2)
    spare = cluster.signals()["scale_down"]
    assert len(spare) == 1
    wait_for(lambda: said.read_text().endswith(f"up\ndown {spare[0]}\ndown {spare[0]}\n"), "down")


def test_bad_options_are_one_line(punica, tmp_path, monkeypatch):
    monkeypatch.delenv("PUNICA_SECRET", raising=False)
    assert "secret" in punica.refuses("scheduler")
    short = tmp_path / "short"
    short.write_text("abc\n")
    short.chmod(0o600)
    assert "shorter" in punica.refuses("scheduler", "--secret-file", short)
    monkeypatch.setenv("PUNICA_SECRET", SECRET)
    assert "nonsense" in punica.refuses("scheduler", "--listen", "nonsense")
    assert "/nowhere" in punica.refuses("scheduler", "--listen", "127.0.0.1:0", "--tls-cert", "/nowhere", "--tls-key", "/nowhere")
    assert "--scheduler" in punica.refuses("runner")
    assert "config.json" in punica.refuses("runner", "--scheduler", "127.0.0.1:1", "--model", "/nowhere")


def test_a_frontend_is_ready_when_there_is_a_gpu(cluster):
    cluster.scheduler()
    frontend = cluster.frontend()

    def ready():
        return raw(frontend.http, "GET", "/ready")

    wait_for(lambda: b"no GPU" in ready()[2], "there is a scheduler, and no GPU")
    assert ready()[0] == 503 and raw(frontend.http, "GET", "/health")[0] == 200
    runner = cluster.runner()
    wait_for(lambda: ready()[0] == 200, "there is a GPU")
    runner.kill()
    wait_for(lambda: ready()[0] == 503, "it is gone")
