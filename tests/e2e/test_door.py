"""The door to `punica serve`: strict framing, and bounds on what clients may cost. Bare sockets, since no client
library would say such things."""
import http.client
import json
import os
import re
import select
import shutil
import socket
import threading
import time

import cluster
import pytest
from cluster import wait_for
from conftest import PROGRAM, ROOT, SANITIZED
from serving import Server, raw

DEMO = ROOT / "demo"
MB = 1 << 20
memory_counts = pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not the program's")


def dial(server):
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), 60)


def read_all(connection):
    parts = []
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)


def say(server, text):
    """All that is answered to these bytes, until the server closes."""
    with dial(server) as connection:
        connection.sendall(text)
        return read_all(connection)


def post(body, *headers, path="/v1/completions"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def request(**params):
    return {"model": "demo", "prompt": "Once upon a time", "max_tokens": 5, "temperature": 0, **params}


def error_of(answer):
    """(status, error) of an answer that is OpenAI's error object and the connection's last."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Type: application/json" in head, answer
    return int(head.split()[1]), json.loads(body)["error"]


def memory(server):
    """Bytes that the process holds, without its workers."""
    with open(f"/proc/{server.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) * 1024


POST = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
BAD = [("two lengths", POST + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
       ("blank before the colon", POST + "Content-Length : 2\r\n\r\n{}", 400),
       ("signed length", POST + "Content-Length: +2\r\n\r\n{}", 400),
       ("hexadecimal chunk", POST + "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n", 400),
       ("junk behind a chunk's size", POST + "Transfer-Encoding: chunked\r\n\r\n2 junk\r\n{}\r\n0\r\n\r\n", 400),
       ("bare LF", "POST /v1/completions HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}", 400),
       ("NUL", POST + "X: a\0b\r\nContent-Length: 2\r\n\r\n{}", 400),
       ("two hosts", "GET /health HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
       ("no host", "GET /health HTTP/1.1\r\n\r\n", 400),
       ("folded", POST + "X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}", 400),
       ("length and chunks", POST + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
       ("unknown coding", POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
       ("HTTP/2 without asking", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
       ("long head", "GET /health HTTP/1.1\r\nHost: x\r\nX: " + 20000 * "a" + "\r\n\r\n", 431),
       ("long path", "GET /" + 9000 * "a" + " HTTP/1.1\r\nHost: x\r\n\r\n", 414),
       ("expectation", POST + "Expect: miracles\r\nContent-Length: 2\r\n\r\n", 417),
       ("compressed", POST + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n", 415)]


@pytest.mark.parametrize("name, text, status", BAD, ids=[b[0] for b in BAD])
def test_framing(server, name, text, status):
    """One answer, in OpenAI's form; what follows the bad request is not looked at."""
    answer = say(server, text.encode("latin-1") + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    got, error = error_of(answer)
    assert got == status and error["type"] in ("invalid_request_error", "server_error") and error["code"] and error["message"]
    assert len(re.findall(rb"HTTP/1\.1 \d", answer)) == 1 and b"Connection: close" in answer


def test_methods(server):
    for method, path, status, allow in [("OPTIONS", "/v1/completions", 204, "POST, OPTIONS"), ("OPTIONS", "/health", 204, "GET, HEAD, OPTIONS"),
                                        ("DELETE", "/health", 405, "GET, HEAD, OPTIONS"), ("GET", "/v1/chat/completions", 405, "POST, OPTIONS"),
                                        ("BREW", "/health", 501, None), ("OPTIONS", "*", 204, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
                                        ("POST", "/v1/adapters/x", 405, "GET, HEAD, PUT, DELETE, OPTIONS")]:
        got, headers, body = raw(server.address, method, path)
        assert (got, headers["Allow"]) == (status, allow), (method, path)
        assert body == b"" if status == 204 else json.loads(body)["error"]["message"]


def test_old_clients(server):
    """HTTP/1.0: answers without chunks, and the connection is closed unless they ask."""
    answer = say(server, b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(json.dumps(request(stream=True))) +
                 json.dumps(request(stream=True)).encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head and b"chunked" not in head and body.startswith(b"data: {") and body.endswith(b"data: [DONE]\n\n")
    twice = b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /health HTTP/1.0\r\n\r\n"
    assert say(server, twice).count(b'{"status":"ok"}') == 2


@pytest.mark.parametrize("stream", [False, True])
def test_half_closed(server, stream):
    """Who has said all and closes its half of the connection gets its answer."""
    with dial(server) as connection:
        connection.sendall(post(request(stream=stream, max_tokens=300, ignore_eos=True)))
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 ") and b" 200 OK" in answer
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") if stream else json.loads(answer.rpartition(b"\r\n\r\n")[2])["usage"]["completion_tokens"] == 300


def test_half_closed_pipeline(server):
    with dial(server) as connection:
        connection.sendall(post(request()) + post(request(stream=True)) + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 200 OK") == 3


def test_gone_is_not_half_closed(serve):
    """Who closes all of it is noticed, though it looks the same at first: nothing is computed for it any more."""
    server = serve("--max-batch", "1")
    running = dial(server)
    running.sendall(post(request(stream=True, max_tokens=900, ignore_eos=True)))
    assert running.recv(100)
    gone = [dial(server) for _ in range(4)]
    for i, connection in enumerate(gone):                                # they wait behind the first
        connection.sendall(post(request(stream=i % 2 == 0)))
    wait_for(lambda: server.metric("punica_live_calls") == 5, "all are there")
    for connection in gone:
        connection.close()
    wait_for(lambda: server.metric("punica_live_calls") <= 1, "they are gone", 5)
    for i in range(20):
        with dial(server) as connection:                                 # request and end in one piece
            connection.sendall(post(request(stream=i % 2 == 0)))
    wait_for(lambda: server.metric("punica_live_calls") <= 1, "they are gone too", 5)
    running.close()
    wait_for(lambda: server.metric("punica_live_calls") == 0, "all are gone")


def test_incomplete(server):
    for text in (b"GET /hea", post(b"{}")[:-1], POST.encode() + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel"):
        with dial(server) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            assert error_of(read_all(connection))[1]["code"] == "incomplete_request"


def test_continue(server):
    """The body is asked for if it is wanted, and only then."""
    body = json.dumps(request()).encode()
    with dial(server) as connection:
        connection.sendall(post(body, "Expect: 100-continue")[:-len(body)])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert b"HTTP/1.1 200 OK" in connection.recv(65536)
    with dial(server) as connection:
        connection.sendall(POST.encode() + b"Expect: 100-continue\r\nContent-Length: 9999999999\r\n\r\n")
        status, error = error_of(read_all(connection))
        assert status == 413 and error["code"] == "body_too_large"
    with dial(server) as connection:                                    # it does not wait: nothing but the answer comes
        connection.sendall(post(body, "Expect: 100-continue", "Connection: close"))
        assert read_all(connection).startswith(b"HTTP/1.1 200 OK")


def test_names(server):
    for path in ("/v1/models/%00", "/v1/models/sql%00", "/v1/models/..%2fadapters%2fsql", "/v1/models/%ff%fe"):
        status, _, body = raw(server.address, "GET", path)
        assert status == 404 and json.loads(body)["error"]["code"] == "model_not_found", path
    assert raw(server.address, "GET", "/v1/models/%73ql")[0] == 200


def test_deadlines(serve):
    """For a head, for a whole request however it drips, and for a connection that is not used."""
    server = serve("--client-timeout", "1")
    head, body, idle, silent = (dial(server) for _ in range(4))
    started = time.monotonic()
    idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    stop = threading.Event()

    def drip():
        head.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        body.sendall(POST.encode() + b"Content-Length: 100000\r\n\r\n")
        while not stop.wait(0.1):
            try:
                head.sendall(b"X: y\r\n")
                body.sendall(b" ")
            except OSError:
                pass
    thread = threading.Thread(target=drip)
    thread.start()
    try:
        for connection in (head, body):
            answer = read_all(connection)
            assert not answer or error_of(answer)[0] == 408, answer
        assert read_all(idle).count(b"HTTP/1.1 200 OK") == 1 and read_all(silent) == b""
        assert time.monotonic() - started < 15
    finally:
        stop.set()
        thread.join()


def test_connections(serve):
    """At the cap those who keep us waiting make room, longest first; when all are served, operators still get in."""
    server = serve("--max-connections", "20")
    wait_for(lambda: raw(server.address, "GET", "/ready")[0] == 200, "it is ready")
    idle = [dial(server) for _ in range(50)]
    idle[-1].sendall(b"GET /hea")
    assert raw(server.address, "POST", "/v1/completions", json.dumps(request()))[0] == 200
    wait_for(lambda: server.metric("punica_http_connections") <= 21, "only so many are open")
    assert idle[0].recv(1) == b""                                       # the first ones had to go
    idle[-1].sendall(b"lth HTTP/1.1\r\nHost: x\r\n\r\n")
    assert idle[-1].recv(12) == b"HTTP/1.1 200"                         # the last ones not
    busy = [dial(server) for _ in range(20)]
    for connection in busy:
        connection.sendall(post(request(stream=True, max_tokens=900, ignore_eos=True)))
    for connection in busy:
        assert connection.recv(12) == b"HTTP/1.1 200"
    late = [dial(server) for _ in range(60)]                            # and strangers sit on the reserve
    status, headers, body = raw(server.address, "POST", "/v1/completions", json.dumps(request()))
    assert status == 503 and headers["Retry-After"] and json.loads(body)["error"]["code"] == "too_many_connections"
    for path in ("/health", "/ready", "/metrics"):
        status, _, body = raw(server.address, "GET", path)
        assert status == 200, (path, body)
    for connection in idle + busy + late:
        connection.close()
    wait_for(lambda: server.metric("punica_live_calls") == 0, "all are gone")
    assert raw(server.address, "POST", "/v1/completions", json.dumps(request()))[0] == 200


def test_scheduler_page(tmp_path):
    """Strangers at the scheduler's page: operators and runners still get in, though files are few."""
    with_few = tmp_path / "few_files"
    with_few.write_text(f'#!/bin/sh\nulimit -n 160\nexec "{PROGRAM}" "$@"\n')
    with_few.chmod(0o755)
    c = cluster.Cluster(tmp_path)
    original, cluster.PROGRAM = cluster.PROGRAM, with_few
    try:
        c.scheduler()
    finally:
        cluster.PROGRAM = original
    try:
        host, port = c.http.split(":")
        strangers = [socket.create_connection((host, int(port)), 10) for _ in range(300)]
        for stranger in strangers[::2]:
            stranger.sendall(b"GET /heal")
        c.runner()
        c.wait_gpus(1)
        assert json.loads(c.get("/health"))["status"] == "ok"
        status, _, body = raw(c.http, "GET", "/nothing")
        assert status == 404 and json.loads(body)["error"]["code"] == "unknown_url"
        assert raw(c.http, "POST", "/health")[0] == 405 and raw(c.http, "HEAD", "/metrics")[2] == b""
        for stranger in strangers:
            stranger.close()
    finally:
        c.close()


def large(n=8 * MB - 100):
    """A body of so many bytes, most of them one prompt."""
    head = b'{"model": "demo", "max_tokens": 3, "prompt": "'
    return head + b"word and " * ((n - len(head) - 2) // 9) + b'"}'


def small():
    """A request that is too large to be prepared at once."""
    return json.dumps(request(unknown="x" * 17000)).encode()


def small_latency(server):
    start = time.monotonic()
    status, _, body = raw(server.address, "POST", "/v1/completions", small())
    assert status == 200, body
    return time.monotonic() - start


def test_length_is_judged_first(server):
    """A prompt that cannot fit is refused in less time than its tokens would take."""
    start = time.monotonic()
    status, _, body = raw(server.address, "POST", "/v1/completions", large())
    assert status == 400 and json.loads(body)["error"]["code"] == "context_length_exceeded"
    assert time.monotonic() - start < 10
    status, _, body = raw(server.address, "POST", "/v1/completions", json.dumps(request(prompt="word " * 700)))
    assert status == 400 and re.search(r"your prompt has \d+ tokens", json.loads(body)["error"]["message"])


def test_abandoned_bodies(serve):
    """80 bodies of 8 MB whose clients leave at once: nobody else waits for them, and their memory is given back."""
    server = serve()
    before, body = memory(server), post(large())
    threads = []
    for i in range(80):
        def throw(i=i):
            with dial(server) as connection:
                try:
                    connection.sendall(body if i % 2 else body[:-1])
                except OSError:
                    pass                        # refused, since there are too many
        threads.append(threading.Thread(target=throw))
        threads[-1].start()
    worst = max(small_latency(server) for _ in range(5))
    for thread in threads:
        thread.join()
    worst = max(worst, *(small_latency(server) for _ in range(5)))
    assert worst < 15                   # it was 105 s
    wait_for(lambda: server.metric("punica_live_calls") == 0 and server.metric("punica_request_memory_bytes") == 0, "all are done with")
    if not SANITIZED:
        wait_for(lambda: memory(server) - before < 60 * MB, f"memory is given back, {memory(server) - before}", 10)


@memory_counts
def test_nested_bodies(serve):
    """JSON that is far larger in memory than as text."""
    server = serve()
    before, peak, stop = memory(server), [0], threading.Event()

    def watch():
        while not stop.wait(0.002):
            peak[0] = max(peak[0], memory(server))
    watcher = threading.Thread(target=watch)
    watcher.start()
    for piece in (b"[],", b"{},", b"1,", b'"",'):
        body = b'{"model": "demo", "prompt": [' + piece * (7 * MB // len(piece)) + b"[]]}"
        status, _, answer = raw(server.address, "POST", "/v1/completions", body)
        assert status in (400, 413), answer
    stop.set()
    watcher.join()
    assert peak[0] - before < 160 * MB, (peak[0] - before) / MB
    wait_for(lambda: memory(server) - before < 40 * MB, f"memory is given back, {memory(server) - before}", 10)


@memory_counts
def test_little_memory(tmp_path):
    """150 bodies of 8 MB at once where the process may have 1.5 GB: what does not fit is refused; streams go on."""
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -v {1536 * 1024}\nexec "{PROGRAM}" "$@"\n')
    limited.chmod(0o755)
    original, cluster.PROGRAM = cluster.PROGRAM, limited
    try:
        server = Server()
    finally:
        cluster.PROGRAM = original
    try:
        stream = dial(server)
        stream.sendall(post(request(stream=True, max_tokens=1000, ignore_eos=True)))
        body, statuses, lock = post(large(), "Connection: close"), [], threading.Lock()

        def throw():
            with dial(server) as connection:
                try:
                    connection.sendall(body)
                except OSError:
                    pass
                answer = read_all(connection)
                with lock:
                    statuses.append(int(answer[9:12] or 0))
        threads = [threading.Thread(target=throw) for _ in range(150)]
        for thread in threads:
            thread.start()
        latency = small_latency(server)
        for thread in threads:
            thread.join()
        assert len(statuses) == 150 and set(statuses) <= {0, 400, 503} and statuses.count(400) > 10, statuses
        assert latency < 15 and small_latency(server) < 15
        assert read_all_of_stream(stream).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert server.popen.poll() is None and server.stop() == 0
    finally:
        server.end()


def read_all_of_stream(connection):
    text = b""
    while not text.endswith(b"0\r\n\r\n"):
        part = connection.recv(65536)
        assert part, text[-200:]
        text += part
    return text


def test_memory_is_refused(serve):
    """More than the budget: 503 with the time to come back, also for who asks before it sends; small ones pass."""
    server = serve("--max-memory", str(17 * MB))
    held = dial(server)
    held.sendall(post(large())[:7 * MB])                # stays incomplete
    wait_for(lambda: server.metric("punica_request_memory_bytes") > 6 * MB, "it is there")
    status, headers, body = raw(server.address, "POST", "/v1/completions", large())
    assert status == 503 and headers["Retry-After"] and json.loads(body)["error"]["code"] == "out_of_memory"
    with dial(server) as connection:
        connection.sendall(POST.encode() + b"Expect: 100-continue\r\nContent-Length: 8000000\r\n\r\n")
        assert error_of(read_all(connection))[0] == 503
    assert small_latency(server) < 15
    held.close()
    wait_for(lambda: server.metric("punica_request_memory_bytes") == 0, "it is given back")
    assert raw(server.address, "POST", "/v1/completions", large())[0] == 400


def test_outputs_are_paid_for(serve):
    """A call whose outputs are more than the budget ends; what it had is given back."""
    server = serve("--max-memory", str(2 * MB))
    params = request(n=100, max_tokens=900, logprobs=20, ignore_eos=True)
    status, headers, body = raw(server.address, "POST", "/v1/completions", json.dumps(params))
    assert status == 503 and headers["Retry-After"] and json.loads(body)["error"]["code"] == "out_of_memory"
    assert server.metric("punica_request_memory_bytes") == 0 and server.metric("punica_live_requests") == 0
    assert raw(server.address, "POST", "/v1/completions", json.dumps(request(logprobs=20)))[0] == 200


def test_bodies_do_not_end_what_runs(serve):
    """Strangers hold all the memory there is for bodies: outputs that run have their own."""
    server = serve("--max-memory", str(12 * MB))
    stream = dial(server)
    stream.sendall(post(request(stream=True, max_tokens=900, logprobs=5, ignore_eos=True)))
    held = [dial(server) for _ in range(8)]
    for connection in held:
        connection.sendall(post(large(1800000))[:-1])
    wait_for(lambda: server.metric("punica_request_memory_bytes") > 5 * MB, "they are there")
    status, _, body = raw(server.address, "POST", "/v1/completions", json.dumps(request(max_tokens=900, logprobs=20, ignore_eos=True)))
    assert status == 200, body
    assert read_all_of_stream(stream).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    for connection in [stream, *held]:
        connection.close()
    wait_for(lambda: server.metric("punica_request_memory_bytes") == 0, "it is given back")


def test_long_grammars_do_not_hold_up_short_ones(serve):
    """Forty of a few bytes that take as long to compile as any may: neither bodies nor grammars of others wait for them."""
    server = serve()
    waiting = [dial(server) for _ in range(40)]
    for i, connection in enumerate(waiting):
        connection.sendall(post(request(guided_regex=f".*a.{{{100 + i}}}x")))
    start = time.monotonic()
    assert small_latency(server) < 15                   # it was 60 s and more
    assert raw(server.address, "POST", "/v1/completions", json.dumps(request(guided_regex="[a-z]{3}")))[0] == 200
    assert time.monotonic() - start < 20
    error = error_of(read_answer(waiting[0]))[1]
    assert error["param"] == "guided_regex" and "too large" in error["message"]
    for connection in waiting:
        connection.close()
    wait_for(lambda: server.metric("punica_live_calls") == 0, "those that nobody waits for are dropped")


def read_answer(connection):
    """Of an answer with a length."""
    text = b""
    while b"\r\n\r\n" not in text or len(text.partition(b"\r\n\r\n")[2]) < int(re.search(rb"Content-Length: (\d+)", text)[1]):
        part = connection.recv(65536)
        assert part, text
        text += part
    return text


def test_many_adapters(serve, tmp_path):
    """Listing thousands of adapters holds nobody up. Under a sanitizer fewer take as long."""
    n = 4000 if SANITIZED else 20000
    for i in range(n):
        (tmp_path / f"adapter-{i:05d}").symlink_to(DEMO / "adapters/sql")
    server = serve("--model", DEMO / "model", "--adapters", tmp_path)
    wants_list, wants_health = dial(server), dial(server)

    def is_passed():
        """Whether who asks behind it is answered before the list. A machine that is busy with others may have made it by then."""
        wants_list.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.01)
        wants_health.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in wants_health.recv(1000)
        is_first = not select.select([wants_list], [], [], 0)[0]
        answer = http.client.HTTPResponse(wants_list)
        answer.begin()
        assert len(json.loads(answer.read())["data"]) == n + 1
        return is_first
    wait_for(is_passed, "the list holds nobody up")
    (tmp_path / "new").symlink_to(DEMO / "adapters/sql")
    ids = [m["id"] for m in json.loads(raw(server.address, "GET", "/v1/models")[2])["data"]]
    assert "new" in ids                                 # never older than the question


def test_no_paths_in_errors(serve, tmp_path):
    """What is wrong with an adapter's files is told, not where they are."""
    for name in ("cut", "empty"):
        shutil.copytree(DEMO / "adapters/sql", tmp_path / name)
    weights = tmp_path / "cut/adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    (tmp_path / "empty/adapter_model.safetensors").unlink()
    shutil.copytree(DEMO / "adapters/sql", tmp_path / "template")
    (tmp_path / "template/chat_template.jinja").write_text("{% for %}")
    (tmp_path / "template/tokenizer_config.json").write_text("{")
    server = serve("--model", DEMO / "model", "--adapters", tmp_path, "--log-level", "info")
    for name in ("cut", "empty", "template"):
        for path, body in (("/v1/completions", request(model=name)),
                           ("/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "x"}]})):
            status, _, answer = raw(server.address, "POST", path, json.dumps(body))
            assert str(tmp_path).encode() not in answer and b"/tmp" not in answer, answer
            assert status == 200 or name.encode() in answer or b"template" in answer, answer


def test_one_folder_holds_nobody_up(serve, tmp_path):
    """Weights that are a FIFO, a device, or far too many: who asks for them is told, or waits; who asks for others does not."""
    for name in ("sql", "french", "fifo", "fifo2", "zero", "zero2", "sparse", "sparse2"):
        shutil.copytree(DEMO / "adapters" / ("french" if name == "french" else "sql"), tmp_path / name)
        weights = tmp_path / name / "adapter_model.safetensors"
        if "sparse" in name:
            os.truncate(weights, 1 << 38)
        elif name not in ("sql", "french"):
            weights.unlink()
            os.mkfifo(weights) if "fifo" in name else weights.symlink_to("/dev/zero")
    server = serve("--model", DEMO / "model", "--name", "demo", "--adapters", tmp_path)
    waiting = [dial(server) for _ in range(2)]
    for i, connection in enumerate(waiting):
        connection.sendall(post(request(model=("sparse", "sparse2")[i])))
    for name in ("fifo", "fifo2", "zero", "zero2"):
        status, _, body = raw(server.address, "POST", "/v1/completions", json.dumps(request(model=name)))
        message = json.loads(body)["error"]["message"]
        assert status == 400 and name in message and "adapter_model.safetensors is not a regular file" in message
    assert raw(server.address, "POST", "/v1/completions", json.dumps(request(model="french")))[0] == 200
    assert small_latency(server) < 15
    for connection in waiting:
        connection.close()
    wait_for(lambda: server.metric("punica_live_calls") == 0, "what nobody waits for is dropped")
    assert len(server.children()) == 1 and "ended" not in server.log()


def test_access_log(serve):
    server = serve()
    raw(server.address, "POST", "/v1/completions", json.dumps(request(model="sql", ignore_eos=True)))
    raw(server.address, "POST", "/v1/completions", "{")
    raw(server.address, "GET", "/v1/nothing")
    raw(server.address, "GET", "/v1/models")
    say(server, b"nonsense\r\n\r\n")
    client = r"client 127\.0\.0\.1:\d+ key -"
    server.wait_log(rf"info POST /v1/completions 200 {client} adapter sql prompt \d+ output 5 first 0\.\d+ total 0\.\d+\n")
    server.wait_log(rf"info POST /v1/completions 400 {client} adapter - prompt - output - first - total 0\.\d+\n")
    server.wait_log(rf"info GET /v1/nothing 404 {client} adapter -")
    server.wait_log(rf"info GET /v1/models 200 {client} adapter -")
    server.wait_log(rf"info - - 400 {client} adapter -")
