"""What clients meet before their request: TLS, browsers' questions (CORS), and a server that is asked to stop."""
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time

import pytest
from cluster import wait_for
from openai import OpenAI
from serving import Server, raw


def make_certificate(folder, name):
    """A certificate of its own authority for 127.0.0.1: (its file, its key's)."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"), "first")


@pytest.fixture(scope="module")
def secure(files):
    server = Server("--ssl-certfile", str(files[0]), "--ssl-keyfile", str(files[1]), "--cors", "https://page.example", "--cors", "http://localhost:3000")
    yield server
    assert server.stop() == 0


def connect(server, files):
    host, port = server.address.split(":")
    return http.client.HTTPSConnection(host, int(port), timeout=60, context=ssl.create_default_context(cafile=str(files[0])))


def completion(tokens=60, **params):
    return json.dumps({"model": "demo", "prompt": "Once", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **params})


def test_answers_and_streams_by_tls(secure, files):
    connection = connect(secure, files)
    texts = []
    for stream in (False, True, False):         # one behind the other on one connection
        connection.request("POST", "/v1/completions", completion(stream=stream))
        answer = connection.getresponse()
        body = answer.read().decode()
        assert answer.status == 200
        parts = [json.loads(x[6:]) for x in body.split("\n\n") if x.startswith("data: {")] if stream else [json.loads(body)]
        texts.append("".join(p["choices"][0]["text"] for p in parts))
    assert texts[0] and len(set(texts)) == 1
    connection.close()


def test_large_bodies_by_tls(secure, files):
    """More than a record, and more than the kernel takes at once."""
    connection = connect(secure, files)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "demo", "messages": [{"role": "user", "content": "x " * 400_000}]}))
    answer = connection.getresponse()
    assert answer.status == 400 and json.loads(answer.read())["error"]["code"] == "context_length_exceeded"
    connection.close()


def test_many_streams_by_tls(secure, files):
    results = []

    def one(i):
        connection = connect(secure, files)
        connection.request("POST", "/v1/completions", completion(stream=True, prompt=f"Number {i % 3}"))
        results.append((i % 3, connection.getresponse().read().count(b"data: {")))
        connection.close()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 24 and len(set(results)) == 3 and all(n > 1 for _, n in results)


def test_without_tls_there_is_no_answer(secure):
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        raw(secure.address, "GET", "/health")
    with pytest.raises(ssl.SSLError):
        http.client.HTTPSConnection(*secure.address.split(":"), timeout=10, context=ssl.create_default_context()).request("GET", "/health")


def serial(server):
    host, port = server.address.split(":")
    return ssl.get_server_certificate((host, int(port)))


def test_certificates_are_read_again(secure, files, tmp_path):
    before, old = serial(secure), [f.read_bytes() for f in files]
    files[0].write_text("nothing")
    secure.kill(signal.SIGHUP)
    wait_for(lambda: "stays as it was" in secure.log(), "the log tells of a bad certificate")
    assert serial(secure) == before
    new = make_certificate(tmp_path, "second")
    for to, f in zip(files, new):
        os.replace(f, to)
    secure.kill(signal.SIGHUP)
    wait_for(lambda: serial(secure) != before, "the new certificate is shown")
    for f, text in zip(files, old):
        f.write_bytes(text)
    secure.kill(signal.SIGHUP)
    wait_for(lambda: serial(secure) == before, "the old certificate is shown again")


def test_bad_files_and_origins(punica, tmp_path, files):
    assert "missing.pem" in punica.refuses("serve", "--listen", "127.0.0.1:0", "--ssl-certfile", tmp_path / "missing.pem", "--ssl-keyfile", files[1])
    assert "go together" in punica.refuses("serve", "--ssl-certfile", files[0])
    assert "--cors" in punica.refuses("serve", "--cors", "page.example")


def ask(server, files, method, path, headers):
    connection = connect(server, files)
    connection.request(method, path, b"", headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_browsers_may_ask(secure, files):
    asks = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, x-stainless-lang"}
    preflight = ask(secure, files, "OPTIONS", "/v1/chat/completions", asks)
    assert preflight.status == 204 and preflight.headers["Access-Control-Allow-Origin"] == "https://page.example"
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"] and "x-stainless-lang" in preflight.headers["Access-Control-Allow-Headers"]
    for path, allowed in (("/v1/adapters/sql", {"PUT", "DELETE"}), ("/admin/v1/tenants/a", {"PATCH", "DELETE"})):
        methods = ask(secure, files, "OPTIONS", path, {**asks, "Access-Control-Request-Method": "DELETE"}).headers["Access-Control-Allow-Methods"]
        assert allowed <= set(methods.split(", "))
    assert ask(secure, files, "GET", "/v1/models", {"Origin": "https://page.example"}).headers["Access-Control-Expose-Headers"] == "*"
    for path in ("/v1/models", "/nothing", "/v1/models/nope"):
        assert ask(secure, files, "GET", path, {"Origin": "http://localhost:3000"}).headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    for headers in ({"Origin": "https://other.example"}, {}):
        answer = ask(secure, files, "GET", "/v1/models", headers)
        assert answer.headers["Access-Control-Allow-Origin"] is None and answer.headers["Vary"] == "Origin"


def test_streams_are_seen_by_pages_of_any_origin():
    server = Server("--cors", "*")
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, default_headers={"Origin": "https://x.example"})
    with client.completions.with_streaming_response.create(model="demo", prompt="Once", max_tokens=3, stream=True) as answer:
        assert answer.headers["access-control-allow-origin"] == "https://x.example"
    assert server.stop() == 0


def begin_stream(server, tokens):
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.request("POST", "/v1/completions", completion(tokens, stream=True))
    answer = connection.getresponse()
    answer.read(10)
    return connection, answer


def test_ctrl_c_tells_what_it_waits_for():
    server = Server()
    streams = [begin_stream(server, n) for n in range(50, 950, 90)]
    worker = server.children()[0]
    os.kill(worker, signal.SIGSTOP)             # a fast one would end all streams before the server says how far it is
    server.kill(signal.SIGINT)
    wait_for(lambda: re.search(r"waiting for \d+ requests to end, up to 60 s", server.log()), "it says what it waits for")

    def is_told_after_some_steps():
        os.kill(worker, signal.SIGCONT)
        time.sleep(0.05)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.7)                         # it looks twice a second
        return re.search(r"\d+ requests? left", server.log())
    wait_for(is_told_after_some_steps, "it says how far it is")
    os.kill(worker, signal.SIGCONT)
    assert all(b"[DONE]" in answer.read() for _, answer in streams)
    assert server.stop() == 0


def test_ctrl_c_twice_ends_at_once():
    server = Server()
    stream = begin_stream(server, 950)
    worker = server.children()[0]
    os.kill(worker, signal.SIGSTOP)             # the stream might end by itself
    server.kill(signal.SIGINT)
    wait_for(lambda: "waiting for 1 request to end" in server.log(), "it says what it waits for")
    os.kill(worker, signal.SIGCONT)
    start = time.monotonic()
    server.kill(signal.SIGINT)
    assert server.stop() == 0 and time.monotonic() - start < 20
    stream[0].close()
