"""Thousands of strangers at the scheduler's door, of every kind, and few file descriptors: those who belong there come in all the
same, and those who are there do not notice. Real processes."""
import os
import resource
import socket
import statistics
import struct
import threading
import time

import pytest
import wire
from cluster import SECRET, wait_for

N_STRANGERS, DESCRIPTORS = 3000, 300
UPGRADE = (b"GET /punica/link HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")


def frame(payload):
    return bytes([0x82, 0x80 | 126]) + struct.pack(">H", len(payload)) + bytes(4) + payload


HELLO = frame(wire.message([(wire.HELLO, wire.message([(1, wire.VERSION), (2, wire.FRONTEND), (3, "stranger"), (4, ("x", 7)),
                                                      (6, bytes(32))]))]))
KINDS = {"silent": b"", "slow": UPGRADE, "garbage": os.urandom(300) + b"\r\n\r\n", "almost a member": UPGRADE + HELLO}


class Flood(threading.Thread):
    """Keeps N_STRANGERS connections open, new ones for those that are closed, as fast as they can be made."""

    def __init__(self, address, kind, source):
        super().__init__(daemon=True)
        host, port = address.split(":")
        self.to, self.kind, self.source = (host, int(port)), kind, source
        self.stop, self.n, self.open = False, 0, []

    def connect(self):
        s = socket.socket()
        try:
            s.settimeout(2)
            s.bind((self.source, 0))
            s.connect(self.to)
            s.setblocking(False)
            data = KINDS[self.kind]
            s.send(data[:1] if self.kind == "slow" else data)
            self.n += 1
            self.open.append((s, 1))
        except OSError:
            s.close()

    def next_byte(self, s, at):
        """Of a slow one; the place of the next."""
        if self.kind == "slow":
            s.send(KINDS["slow"][at:at + 1] or b"x")
        if not s.recv(4096):
            raise OSError("closed")
        return at + 1

    def run(self):
        while not self.stop:
            if len(self.open) < N_STRANGERS:
                self.connect()
            if len(self.open) >= N_STRANGERS or self.n % 200 == 0:
                self.look()

    def look(self):
        kept = []
        for s, at in self.open:
            try:
                kept.append((s, self.next_byte(s, at)))
            except BlockingIOError:
                kept.append((s, at))
            except OSError:
                s.close()
        self.open = kept

    def end(self):
        self.stop = True
        self.join()
        for s, _ in self.open:
            s.close()


@pytest.fixture
def cluster(cluster):
    """With as many descriptors as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield cluster
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors(p):
    return len(os.listdir(f"/proc/{p.pid}/fd"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.7"], ids=["of our own address", "of another"])
def test_members_come_in_through_a_flood(cluster, kind, source):
    scheduler = cluster.scheduler()
    resource.prlimit(scheduler.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    before = descriptors(scheduler)
    flood = Flood(cluster.address, kind, source)
    flood.start()
    try:
        wait_for(lambda: flood.n > 2 * DESCRIPTORS, "a flood")
        runner = cluster.runner()
        cluster.wait_gpus(1)
        took = [comes_in(cluster.address)[0] for _ in range(50)]
        wait_for(lambda: flood.n > N_STRANGERS, "thousands")
        took += [comes_in(cluster.address)[0] for _ in range(50)]
        # A member whose connection the kernel had no room for is heard a second later, when its SYN is sent again. The bounds
        # are for a machine that compiles beside this, and the flood is of this very process: alone, under ASan, the median is below 0.2 s.
        assert statistics.median(took) < 2 and max(took) < 15, took
        assert "lost" not in runner.log()
        link = comes_in(cluster.address)[1]
        link.submit(1, [20, 30, 40], 20)
        answer(link)
        link.close()
        assert descriptors(scheduler) <= DESCRIPTORS
    finally:
        flood.end()
    runner.kill()
    wait_for(lambda: descriptors(scheduler) <= before, "all descriptors are back")


def comes_in(address):
    """A member tries again when it does not get in, as links do. How long it took, and its link."""
    start = time.monotonic()

    def tries():
        try:
            return wire.Link(address, SECRET)
        except (OSError, wire.Refused):
            return None
    link = wait_for(tries, "a member is let in", 20)
    return time.monotonic() - start, link


def answer(link):
    """To its end, with all its tokens."""
    tokens, ends = [], []
    while not ends:
        new, ends = link.results()
        tokens += [t for _, _, more, _ in new for t in more]
    assert len(tokens) > 0
