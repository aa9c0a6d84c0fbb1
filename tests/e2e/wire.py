"""A frontend's side of a link, written from the documents alone: WebSocket (RFC 6455), protobuf's encoding and the
handshake of src/net/session.h and proof.h, with nothing but the standard library. Stands for a frontend where a test wants to see
what crosses the wire.
"""
import base64
import hashlib
import hmac
import os
import select
import socket
import struct
import time

VERSION = 3
FRONTEND = 0
HELLO, SUBMIT, CANCEL, RESULTS, PROOF = 1, 2, 3, 4, 10


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """One field: int as varint, float as double, ("f", x) as float, ("x", n) as fixed64, bytes and str by length."""
    if isinstance(value, tuple):
        kind, x = value
        return varint(number << 3 | (5 if kind == "f" else 1)) + struct.pack("<f" if kind == "f" else "<Q", x)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, (bytes, str)):
        data = value.encode() if isinstance(value, str) else value
        return varint(number << 3 | 2) + varint(len(data)) + data
    return varint(number << 3) + varint(value & (1 << 64) - 1)


def message(fields):
    return b"".join(field(number, value) for number, value in fields)


def parse(data):
    """{number: [values]}; fixed64 as int, length-delimited as bytes."""
    out, i = {}, 0

    def read_varint():
        nonlocal i
        n = shift = 0
        while True:
            byte = data[i]
            i += 1
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return n

    while i < len(data):
        key = read_varint()
        kind = key & 7
        if kind == 0:
            value = read_varint()
        elif kind == 1:
            value = struct.unpack_from("<Q", data, i)[0]
            i += 8
        elif kind == 2:
            n = read_varint()
            value = data[i:i + n]
            i += n
        else:
            value = struct.unpack_from("<I", data, i)[0]
            i += 4
        out.setdefault(key >> 3, []).append(value)
    return out


def packed_varints(data):
    out, n, shift = [], 0, 0
    for byte in data:
        n |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            out.append(n)
            n = shift = 0
    return out


def sampling(temperature=0.0, seed=0, ignore_eos=False):
    return message([(1, ("f", temperature)), (3, ("f", 1.0)), (5, ("f", 1.0)), (8, ("x", seed)), (10, int(ignore_eos))])


class Refused(Exception):
    pass


class Link:
    """Connects and proves itself, as a frontend that does not say which model it has."""

    def __init__(self, address, secret, version=VERSION):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.keys = None                        # until both have proved themselves
        self.upgrade()
        nonce = os.urandom(32)
        hello = message([(HELLO, message([(1, version), (2, FRONTEND), (3, "test"), (4, ("x", int.from_bytes(os.urandom(8), "little"))),
                                          (6, nonce)]))])
        self.send(hello)
        theirs = self.receive()
        self.send(message([(PROOF, message([(1, self.mac(secret, b"connecting", hello, theirs))]))]))
        proof = parse(parse(self.receive())[PROOF][0])[1][0]
        assert proof == self.mac(secret, b"listening", hello, theirs)
        self.keys = {side: self.mac(secret, side, hello, theirs, b"punica messages: ") for side in (b"connecting", b"listening")}
        self.counts = dict.fromkeys(self.keys, 0)

    def seal(self, side, data):
        """The keyed checksum of the next message of a side."""
        number = struct.pack("<Q", self.counts[side])
        self.counts[side] += 1
        return hmac.new(self.keys[side], number + data, hashlib.sha256).digest()[:16]

    @staticmethod
    def mac(secret, side, mine, theirs, purpose=b"punica link: "):
        text = purpose + side
        for part in (mine, theirs):
            text += struct.pack("<Q", len(part)) + part
        return hmac.new(secret.encode(), text, hashlib.sha256).digest()

    def upgrade(self):
        key = base64.b64encode(os.urandom(16))
        self.socket.sendall(b"GET /punica/link HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            b"Sec-WebSocket-Key: " + key + b"\r\nSec-WebSocket-Version: 13\r\n\r\n")
        while b"\r\n\r\n" not in self.data:
            self.fill(10)
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        assert head.startswith(b"HTTP/1.1 101 ") and b"Sec-WebSocket-Accept: " + accept in head, head

    def fill(self, timeout):
        ready = select.poll()
        ready.register(self.socket, select.POLLIN)
        if not ready.poll(1000 * timeout):
            raise TimeoutError
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("closed")
        self.data += data

    def frame(self, opcode, payload):
        mask = os.urandom(4)
        n = len(payload)
        size = bytes([0x80 | n]) if n < 126 else bytes([0x80 | 126]) + struct.pack(">H", n) if n < 65536 \
            else bytes([0x80 | 127]) + struct.pack(">Q", n)
        masked = (int.from_bytes(payload, "little") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "little")).to_bytes(n, "little")
        self.socket.sendall(bytes([0x80 | opcode]) + size + mask + masked)

    def send(self, data):
        self.frame(2, self.seal(b"connecting", data) + data if self.keys else data)

    def next_frame(self):
        """(opcode, payload) at the front of what has come, or None."""
        d = self.data
        if len(d) < 2:
            return None
        n, at = d[1] & 0x7F, 2
        assert not d[1] & 0x80, "a server does not mask"
        if n >= 126:
            at = 4 if n == 126 else 10
            if len(d) < at:
                return None
            n = int.from_bytes(d[2:at], "big")
        if len(d) < at + n:
            return None
        self.data = d[at + n:]
        return d[0] & 0xF, d[at:at + n]

    def receive(self, timeout=30):
        """The next message's bytes; pings are answered."""
        end = time.monotonic() + timeout
        while True:
            frame = self.next_frame()
            if frame is None:
                self.fill(max(0, end - time.monotonic()))
            elif frame[0] == 9:
                self.frame(10, frame[1])
            elif frame[0] == 8:
                raise Refused(frame[1][2:].decode())
            elif frame[0] == 2 and self.keys:
                assert frame[1][:16] == self.seal(b"listening", frame[1][16:])
                return frame[1][16:]
            elif frame[0] == 2:
                return frame[1]

    def submit(self, id, tokens, max_tokens, adapter="", n_prompt=None, params=None, arrival=None):
        body = [(1, ("x", id)), (11, time.time() - arrival if arrival else 0.0), (3, adapter),
                (4, b"".join(map(varint, tokens))), (5, n_prompt or len(tokens)), (6, max_tokens), (7, params or sampling())]
        self.send(message([(SUBMIT, message(body))]))

    def cancel(self, id):
        self.send(message([(CANCEL, message([(1, ("x", id))]))]))

    def results(self, timeout=30):
        """Of the next Results: [(id, index, tokens, logprobs)], [(id, why, message)]."""
        message = {}
        while RESULTS not in message:           # how many GPUs there are is not asked for
            message = parse(self.receive(timeout))
        r = parse(message[RESULTS][0])
        tokens, ends = [], []
        for data in r.get(1, []):
            t = parse(data)
            tokens.append((t[1][0], t.get(3, [0])[0], packed_varints(t[4][0]), t.get(5, [b""])[0]))
        for data in r.get(2, []):
            e = parse(data)
            ends.append((e[1][0], e.get(3, [0])[0], e.get(4, [b""])[0].decode()))
        return tokens, ends

    def close(self):
        self.socket.close()
