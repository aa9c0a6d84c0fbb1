"""Who may speak with whom, and what signals do: secrets that are changed while everything runs, certificates for roles,
SIGHUP and SIGQUIT, logs that nobody reads. Real processes, with the demo model."""
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest
import wire
from cluster import DEMO, Cluster, wait_for
from conftest import PROGRAM
from serving import Served, Server, raw

OLD, NEW = "the old secret of these tests", "the new secret of these tests"


class Stream:
    """A call that streams, read by a thread; `events` grows, and ends with the last line of a stream that is whole."""

    def __init__(self, address, max_tokens=800):
        self.connection = http.client.HTTPConnection(address, timeout=60)
        self.connection.request("POST", "/v1/completions", json.dumps({
            "model": "demo", "prompt": "Once upon a time", "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "ignore_eos": True}), {"Content-Type": "application/json"})
        self.events, self.failure = [], None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for line in self.connection.getresponse():
                if line.startswith(b"data: "):
                    self.events.append(line[6:].strip())
        except (OSError, http.client.HTTPException) as e:
            self.failure = e

    def has(self, n):
        return wait_for(lambda: len(self.events) > n, f"{n} events; {self.failure}")

    def text(self):
        """What it said, to its end."""
        self.thread.join(60)
        assert not self.failure and self.events[-1] == b"[DONE]", (self.failure, self.events[-3:])
        return "".join(c["text"] for e in self.events[:-1] for c in json.loads(e)["choices"])


def write_secret(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)


def hang_up(*processes):
    """SIGHUP, and until each has said that it has read its files again."""
    for p in processes:
        n = p.log().count("have been read again")
        p.kill(signal.SIGHUP)
        wait_for(lambda: p.log().count("have been read again") > n, "it has read them")


def test_a_secret_is_changed_while_streams_run(cluster, tmp_path):
    secret = tmp_path / "secret"
    write_secret(secret, OLD)
    how = {"secret": None}
    scheduler = cluster.scheduler("--secret-file", secret, **how)
    runner = cluster.runner("--secret-file", secret, **how)
    frontend = cluster.frontend("--secret-file", secret, **how)
    cluster.wait_gpus(1)
    everybody = scheduler, runner, frontend
    expected = Stream(frontend.http, 300).text()
    stream = Stream(frontend.http, 800)
    stream.has(10)
    for lines in (OLD, NEW), (NEW, OLD):
        write_secret(secret, *lines)
        hang_up(*everybody)
        time.sleep(1.5)                         # longer than from one ping to the next
    assert not any("lost" in p.log() for p in everybody), "no link had to go"
    wire.Link(cluster.address, OLD).close()     # still accepted
    wire.Link(cluster.address, NEW).close()
    write_secret(secret, NEW)
    hang_up(*everybody)                         # links made by the old one end, and are made anew
    scheduler.wait_log("no longer accepted")
    cluster.wait_gpus(1)
    assert stream.text().startswith(expected)
    with pytest.raises(wire.Refused, match="wrong secret"):
        wire.Link(cluster.address, OLD)
    wire.Link(cluster.address, NEW).close()
    assert len(Stream(frontend.http, 20).text()) > 0


def test_a_bad_file_changes_nothing(cluster, tmp_path):
    secret = tmp_path / "secret"
    write_secret(secret, OLD)
    scheduler = cluster.scheduler("--secret-file", secret, secret=None)
    secret.write_text("short")
    scheduler.kill(signal.SIGHUP)
    scheduler.wait_log("shorter than 16 characters; make one with: openssl rand -hex 32; secret and certificates stay as they were")
    wire.Link(cluster.address, OLD).close()


def test_weak_and_open_secrets_are_refused(punica, tmp_path):
    secret = tmp_path / "secret"
    write_secret(secret, "1234567890123456")
    assert "easy to guess; make one with: openssl rand -hex 32" in punica.refuses("scheduler", "--secret-file", secret)
    write_secret(secret, OLD)
    secret.chmod(0o644)
    assert "chmod 600" in punica.refuses("runner", "--scheduler", "127.0.0.1:1", "--model", DEMO / "model", "--secret-file", secret)


def secret_shows(pid, secret):
    """Whether /proc shows the secret to whoever may look at a process."""
    shown = b"".join(open(f"/proc/{pid}/{name}", "rb").read() for name in ("environ", "cmdline"))
    assert b"PATH=" in shown
    return secret.encode() in shown or b"PUNICA_SECRET" in shown.replace(b"PUNICA_SECRET=\0", b"")


def test_no_process_shows_the_secret(cluster):
    scheduler = cluster.scheduler(secret=OLD)
    runner = cluster.runner(secret=OLD)
    frontend = cluster.frontend(secret=OLD)
    cluster.wait_gpus(1)
    for pid in scheduler.pid, runner.pid, frontend.pid, runner.children()[0]:
        assert not secret_shows(pid, OLD)


def test_workers_of_serve_do_not_get_it_either():
    served = Served("serve", "--listen", "127.0.0.1:0", env={"PUNICA_SECRET": OLD})
    served.wait_log("punica serves on")
    worker = served.children()[0]
    assert not secret_shows(worker, OLD) and not secret_shows(served.pid, OLD)
    assert b"PUNICA_SECRET" not in open(f"/proc/{worker}/environ", "rb").read()
    assert served.stop() == 0


class Authority:
    """Certificates as docs/OPERATIONS.md says to make them."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.ca = folder / "ca.pem"
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=punica CA",
                     "-keyout", folder / "ca.key", "-out", self.ca)

    def openssl(self, *args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)

    def issue(self, name, *names):
        """Options of a process with a certificate for these names."""
        cert, key, request, more = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr", "ext"))
        more.write_text("subjectAltName=" + ",".join(names) + "\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key,
                     "-out", request)
        self.openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial", "-days", "2",
                     "-extfile", more, "-out", cert)
        return "--tls-cert", cert, "--tls-key", key, "--tls-ca", self.ca


def test_certificates_for_roles_instead_of_a_secret(cluster, tmp_path):
    authority = Authority(tmp_path / "ca")
    how = {"secret": None}
    scheduler = cluster.scheduler(*authority.issue("scheduler", "IP:127.0.0.1", "URI:punica:scheduler"), **how)
    runner_has = authority.issue("runner", "DNS:gpu1", "URI:punica:runner")
    cluster.runner(*runner_has, **how)
    cluster.wait_gpus(1)
    false = cluster.frontend(*runner_has, **how)
    false.wait_log("refused by scheduler .*does not say that its owner is a frontend")
    scheduler.wait_log("refused frontend .*does not say that its owner is a frontend")
    frontend = cluster.frontend(*authority.issue("frontend", "URI:punica:frontend"), **how)
    scheduler.wait_log(r"frontend \S+ at \S+ is up")
    assert len(Stream(frontend.http, 50).text()) > 0
    stranger = cluster.runner(*Authority(tmp_path / "other").issue("runner", "URI:punica:runner")[:4], "--tls-ca", authority.ca, **how)
    stranger.wait_log("cannot reach|refused|lost")
    bare = cluster.runner("--tls-ca", authority.ca)             # it knows a secret, and has no certificate
    bare.wait_log("cannot reach|refused|lost")
    assert len(cluster.signals()["gpus"]) == 1
    impostor = Cluster(tmp_path)                # a runner's certificate does not make a scheduler, also for its right address
    impostor.processes = cluster.processes
    impostor.scheduler(*authority.issue("impostor", "IP:127.0.0.1", "URI:punica:runner"), **how)
    deceived = impostor.runner(*runner_has, **how)
    deceived.wait_log("refused .*does not say that its owner is a scheduler")


def served_certificate(address):
    done = subprocess.run(["openssl", "s_client", "-connect", address], input="", capture_output=True, text=True, timeout=30)
    return done.stdout


def test_certificates_are_read_again(cluster, tmp_path):
    authority = Authority(tmp_path / "ca")
    options = authority.issue("first", "IP:127.0.0.1", "URI:punica:scheduler")
    scheduler = cluster.scheduler(*options[:4])
    runner = cluster.runner("--tls-ca", authority.ca)
    cluster.wait_gpus(1)
    assert "CN = first" in served_certificate(cluster.address) or "CN=first" in served_certificate(cluster.address)
    renewed = authority.issue("second", "IP:127.0.0.1", "URI:punica:scheduler")
    os.replace(renewed[1], options[1])
    os.replace(renewed[3], options[3])
    hang_up(scheduler)
    assert "second" in served_certificate(cluster.address)
    assert "lost" not in runner.log()
    (tmp_path / "ca/ca.pem").write_text("this is no certificate")
    runner.kill(signal.SIGHUP)
    runner.wait_log("cannot use TLS authorities .*stay as they were")


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM])
def test_serve_drains(number):
    server = Server()
    stream = Stream(server.address, 300)
    stream.has(5)
    server.kill(number)
    wait_for(lambda: refuses(server.address), "no new clients")
    assert len(stream.text()) > 0
    assert server.stop() == 0


def refuses(address):
    try:
        return raw(address, "GET", "/health")[0] != 200
    except OSError:
        return True


def test_sigquit_drains_runner_and_frontend(cluster):
    scheduler = cluster.scheduler()
    first = cluster.runner()
    cluster.wait_gpus(1)
    frontend = cluster.frontend()
    stream = Stream(frontend.http)
    stream.has(5)
    cluster.runner()
    cluster.wait_gpus(2)
    first.kill(signal.SIGQUIT)
    assert first.wait() == 0
    frontend.kill(signal.SIGQUIT)
    assert len(stream.text()) > 0
    assert frontend.wait() == 0
    scheduler.kill(signal.SIGQUIT)
    assert scheduler.wait() == 0


def test_sighup_opens_the_log_anew_and_streams_go_on(tmp_path):
    log, old = tmp_path / "punica.log", tmp_path / "punica.log.1"
    server = Server("--log-file", log, "--log-level", "info")
    stream = Stream(server.address, 600)
    stream.has(5)
    log.rename(old)
    server.kill(signal.SIGHUP)
    os.kill(server.children()[0], signal.SIGHUP)                # as a terminal that goes would: workers do not care
    os.kill(server.children()[0], signal.SIGQUIT)
    wait_for(log.exists, "a new one")
    assert len(stream.text()) > 0
    size = old.stat().st_size
    assert size > 0
    server.kill(signal.SIGTERM)
    assert server.wait() == 0
    assert old.stat().st_size == size and "draining" in log.read_text()
    server.end()


def test_sighup_of_a_terminal_that_is_gone_ends_it():
    """Whoever closes the terminal does not want it to go on unseen."""
    import pty
    pid, master = pty.fork()
    if pid == 0:
        os.execv(PROGRAM, [str(PROGRAM), "serve", "--listen", "127.0.0.1:0"])
    said = b""
    while b"punica serves on" not in said:
        said += os.read(master, 4096)
    os.close(master)
    end = time.monotonic() + 30
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        assert time.monotonic() < end, "it is still there"
        time.sleep(0.02)


def test_a_log_that_nobody_reads_stops_nobody(cluster, tmp_path):
    """A scheduler whose standard error is a full pipe, and strangers that give it much to say."""
    reader, writer = os.pipe()
    address, http_address = free_address(), free_address()
    p = subprocess.Popen([PROGRAM, "scheduler", "--listen", address, "--http", http_address, "--log-level", "debug"], stderr=writer,
                         env={**os.environ, "PUNICA_SECRET": OLD})
    try:
        wait_for(lambda: not refuses(http_address), "it is there")
        fill(writer)
        host, port = address.split(":")
        for i in range(3000):
            with socket.create_connection((host, int(port)), timeout=10) as s:
                s.sendall(b"GET /%d HTTP/1.1\r\n\r\n" % i)
                s.recv(100)
        assert not refuses(http_address)
        wire.Link(address, OLD).close()
        os.set_blocking(reader, False)
        text = b""

        def has_told():
            nonlocal text
            try:
                text += os.read(reader, 1 << 16)
            except BlockingIOError:
                pass
            return b"lines of this log were lost" in text
        wait_for(has_told, "how much was lost")
        lines = [line for line in text.split(b"\n")[:-1] if not line.startswith(b".")]
        assert len(lines) > 1000 and all(line[:2] == b"20" and line[23:24] == b"Z" for line in lines), "whole lines"
        p.send_signal(signal.SIGTERM)
        assert p.wait(30) == 0
    finally:
        p.kill()
        p.wait()
        os.close(reader)
        os.close(writer)


def fill(pipe):
    """To the brim, by a file of our own: whether it waits must not change for others."""
    again = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(again, b"." * 4095 + b"\n")
    except BlockingIOError:
        os.close(again)


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % s.getsockname()[1]
