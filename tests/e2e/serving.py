"""`punica serve` for tests: start, wait until ready, look at its metrics, stop."""
import http.client
import os
import re
import signal
import tempfile
import time
import urllib.request
from pathlib import Path

from cluster import Process


class Served(Process):
    """A process that logs into a file of its own, and ends well."""

    def __init__(self, *args, env=None):
        handle, path = tempfile.mkstemp(prefix="punica-test-", suffix=".log")
        os.close(handle)
        super().__init__(Path(path), *args, env={**os.environ, **(env or {})})

    def stop(self):
        """Its exit code. Sanitizers must have had nothing to say."""
        if self.popen.poll() is None:
            self.kill(signal.SIGTERM)
        code = self.wait()
        said = self.log()
        self.end()
        assert "Sanitizer" not in said and "runtime error" not in said, said
        return code


    def end(self):
        """Whatever has happened, nothing of it is left."""
        if self.popen.poll() is None:
            self.kill(signal.SIGKILL)
            self.wait()
        self.log_path.unlink(missing_ok=True)


class Server(Served):
    """`punica serve` on a port of its own. banner: what it says when it is ready."""

    def __init__(self, *args):
        super().__init__("serve", "--listen", "127.0.0.1:0", *args)
        try:
            self.banner = self.wait_log(r"(?s)punica serves on .*\n    -d .*\n")[0]
        except AssertionError:
            self.end()                  # nobody else knows of it yet
            raise
        self.url, self.address = re.search(r"(https?://(\S+))", self.banner).groups()

    def metric(self, name):
        return metric(self.url, name)


def hold_stream(server, begin):
    """(stream, its first piece, worker): a stream, the only request there is, whose worker is stopped in the middle of it. Where a fast worker has
    ended it before a busy machine lets the test stop it, another one is begun."""
    while True:
        stream = begin()
        first, worker = next(stream), server.children()[0]
        os.kill(worker, signal.SIGSTOP)
        live = server.metric("punica_live_requests")
        time.sleep(0.2)                 # what the worker had said by then
        if live and server.metric("punica_live_requests"):
            return stream, first, worker
        os.kill(worker, signal.SIGCONT)
        for _ in stream:
            pass


def metric(url, name):
    """The sum of a metric over its labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    found = [float(line.split()[-1]) for line in lines if re.match(re.escape(name) + r"(\{.*\})? ", line)]
    assert found, name
    return sum(found)


def raw(address, method, path, body=b"", headers=None):
    """(status, headers, body) of a request as it is."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()
