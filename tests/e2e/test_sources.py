"""Where adapters come from: `punica adapter fetch` against files, archives, servers that break off, lie and are slow, a stand-in of the
hub's API, and moto, which checks S3's signatures as AWS does. All of them are on this host, whose addresses must be allowed; what is
not allowed is 127.0.0.2."""
import hashlib
import io
import json
import os
import resource
import subprocess
import tarfile
import threading
import time
import zipfile

import pytest
from cluster import wait_for
from conftest import FAMILIES, PROGRAM, Golden

GOLDEN = Golden(next(f for f in FAMILIES if f.name == "llama2"))
ADAPTER = GOLDEN.adapters["all"]
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FILES = {name: (ADAPTER / name).read_bytes() for name in (CONFIG, WEIGHTS)}
DIGEST = hashlib.sha256(FILES[CONFIG] + FILES[WEIGHTS]).hexdigest()
LOCAL = ("--allow-network", "127.0.0.1")
HALF = len(FILES[WEIGHTS]) // 2


FOLDER = {f"/mine/{name}": data for name, data in FILES.items()}


class Fetch:
    """`punica adapter fetch` into one cache."""

    def __init__(self, punica, cache):
        self.punica, self.cache = punica, cache

    def args(self, source, *options):
        return ["adapter", "fetch", str(source), "--model", str(GOLDEN.model), "--cache", str(self.cache), "--json", *map(str, options)]

    def __call__(self, source, *options):
        done = self.punica(*self.args(source, *options))
        assert done.returncode == 0, done.stderr
        got = json.loads(done.stdout)
        folder = self.cache / got["id"]
        assert got["folder"] == str(folder) and got["digest"] == DIGEST and got["id"].split("+")[0] == DIGEST
        for name, data in FILES.items():
            assert (folder / name).read_bytes() == data
        assert got["bytes"] == sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        assert not any((self.cache / ".downloads").iterdir()) and not any((self.cache / ".trash").iterdir())
        return got

    def refuses(self, source, *options):
        said = self.punica.refuses(*self.args(source, *options))
        assert not self.kept()
        return said

    def kept(self):
        return sorted(p.name for p in self.cache.iterdir() if len(p.name) >= 64) if self.cache.exists() else []


@pytest.fixture
def fetch(punica, tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("AWS_", "HF_")):
            monkeypatch.delenv(name)
    return Fetch(punica, tmp_path / "cache")


def tar_of(files, mode="w:gz", folder=""):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as t:
        for name, data in files.items() if isinstance(files, dict) else files:
            info = tarfile.TarInfo(folder + name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(files, folder=""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            z.writestr(folder + name, data)
    return out.getvalue()


# Files of this host, and archives

def test_a_directory_and_archives(fetch, tmp_path):
    assert fetch(f"file:{ADAPTER}#sha256={DIGEST.upper()}")["rank"] == 8
    assert fetch(ADAPTER)["id"] == DIGEST
    more = {"README.md": b"hello", **FILES, "checkpoint-5/" + CONFIG: b"{}"}
    for name, data in {"a.tar": tar_of(FILES, "w"), "b.tgz": tar_of(more, folder="./mine/"), "c.tar.gz": tar_of(more),
                       "d.zip": zip_of(more, "mine/")}.items():
        (tmp_path / name).write_bytes(data)
        assert fetch(f"file://{tmp_path}/{name}")["id"] == DIGEST
    assert fetch.kept() == [DIGEST]


def test_a_chat_template_makes_another_adapter_of_the_same_weights(fetch, tmp_path):
    files = {**FILES, "chat_template.jinja": b"{{ messages }}", "additional_chat_templates/tool_use.jinja": b"tools"}
    (tmp_path / "a.zip").write_bytes(zip_of(files))
    got = fetch(f"file:{tmp_path}/a.zip")
    assert got["id"] != DIGEST and (fetch.cache / got["id"] / "additional_chat_templates/tool_use.jinja").read_bytes() == b"tools"
    assert fetch(ADAPTER)["id"] == DIGEST
    assert len(fetch.kept()) == 2


def linked(name, to, kind):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, to
        t.addfile(info)
        weights = tarfile.TarInfo(WEIGHTS)
        weights.size = len(FILES[WEIGHTS])
        t.addfile(weights, io.BytesIO(FILES[WEIGHTS]))
    return out.getvalue()


@pytest.mark.parametrize("name, data, says", [
    ("up.tar", tar_of({**FILES, "../evil": b"x"}), "leads out of it"),
    ("deep.zip", zip_of({**FILES, "a/../../evil": b"x"}), "leads out of it"),
    ("root.tar", tar_of({**FILES, "/tmp/evil": b"x"}), "leads out of it"),
    ("link.tar", linked(CONFIG, "/etc/passwd", tarfile.SYMTYPE), "not a plain file"),
    ("hard.tar", linked(CONFIG, "/etc/passwd", tarfile.LNKTYPE), "not a plain file"),
    ("two.tar", tar_of({f"{d}/{n}": b for d in "ab" for n, b in FILES.items()}), "more than one adapter"),
    ("twice.tar", tar_of([*FILES.items(), (WEIGHTS, b"")]), "has it twice"),
    ("none.zip", zip_of({"README.md": b"x"}), "no adapter_config.json"),
    ("half.tgz", tar_of(FILES)[:60000], "truncated gzip"),
    ("noise.zip", os.urandom(1000), "the archive cannot be read"),
    ("empty.tar.gz", b"", "cannot be read"),
    ("many.tar", tar_of({str(i): b"" for i in range(10001)}, "w"), "more than 10000 entries"),
    ("bomb.zip", zip_of({CONFIG: FILES[CONFIG], WEIGHTS: bytes(50_000_000)}), "more than the 1000000 bytes"),
    ("bomb.tgz", tar_of({**FILES, "other": bytes(50_000_000)}), "more than the 1000000 bytes"),
    ("config.zip", zip_of({CONFIG: b"{", WEIGHTS: FILES[WEIGHTS]}), "adapter_config.json"),
    ("bin.zip", zip_of({CONFIG: FILES[CONFIG], "adapter_model.bin": b"x"}), "adapter_model.safetensors"),
    ("weights.zip", zip_of({CONFIG: FILES[CONFIG], WEIGHTS: FILES[WEIGHTS][:-1]}), "adapter_model.safetensors"),
], ids=lambda v: v if isinstance(v, str) and "." in v and " " not in v else "")
def test_bad_archives(fetch, tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data)
    said = fetch.refuses(f"file:{tmp_path}/{name}", "--max-adapter-bytes", 1000000)
    assert says in said and name in said and "/cache/" not in said


@pytest.mark.parametrize("source, says", [
    ("mine", "must begin with"), ("ftp://host/x.zip", "must begin with"), ("hf://mine", "OWNER/NAME"), ("hf://a/b@../c", "no revision"),
    ("s3://", "BUCKET/KEY"), ("http://", "not a valid URL"), ("http://a b/", "not a valid URL"), ("http://a/\nb", "control characters"), ("file://other/x", "another host"),
    ("file:/nowhere", "No such file"), (f"file:{ADAPTER}#md5=0", "sha256="), (f"file:{ADAPTER}#sha256={'0' * 64}", DIGEST),
    ("http://nobody:secret@/x?token=secret", "not a valid URL"), ("file:/dev/zero.zip", "No such file"),
])
def test_bad_sources(fetch, source, says):
    said = fetch.refuses(source)
    assert says in said and "token" not in said


def test_what_does_not_fit_the_base_or_the_limit_is_not_kept(fetch, tmp_path):
    assert "bytes" in fetch.refuses(ADAPTER, "--max-adapter-bytes", 100000)
    said = fetch.refuses(ADAPTER, "--cache-bytes", 100000)
    assert "the disk cache has 100000 in all" in said and str(fetch.cache) not in said           # tenants are told, too
    other = Golden(next(f for f in FAMILIES if f.name == "mistral"))
    done = fetch.punica("adapter", "fetch", ADAPTER, "--model", other.model, "--cache", fetch.cache)
    assert done.returncode == 2 and "file:" in done.stderr and "tensor" in done.stderr
    assert fetch.kept() == []


# HTTP

def test_a_folder_and_an_archive_over_http(fetch, site):
    s = site({**FOLDER, "/a.tar.gz": tar_of(FILES)})
    fetch(f"{s.url}/mine", *LOCAL)
    fetch(f"{s.url}/mine/?key=secret", *LOCAL)
    fetch(f"{s.url}/a.tar.gz?key=secret#sha256={DIGEST}", *LOCAL)
    assert [path for path, _ in s.asked if WEIGHTS in path] == [f"/mine/{WEIGHTS}", f"/mine/{WEIGHTS}?key=secret"]
    said = fetch.punica.refuses(*fetch.args(f"{s.url}/none.zip?key=secret", *LOCAL))
    assert "answered 404" in said and "secret" not in said


def test_what_breaks_off_is_continued(fetch, site):
    s = site(FOLDER, {f"/mine/{WEIGHTS}": lambda h, data: h.whole_or_range(data, send=40000)})
    fetch(f"{s.url}/mine", *LOCAL)
    ranges = s.ranges(f"/mine/{WEIGHTS}")
    assert ranges[0] is None and ranges[1:] == ["bytes=40000-", "bytes=80000-", "bytes=120000-"]


def test_what_breaks_off_and_cannot_be_continued_fails_soon(fetch, site):
    s = site(FOLDER, {f"/mine/{WEIGHTS}": lambda h, data: h.whole_or_range(data, send=40000)}, etags=False)
    assert "ended after 40000 bytes" in fetch.refuses(f"{s.url}/mine", *LOCAL)
    assert s.ranges(f"/mine/{WEIGHTS}") == [None] * 4


def test_killed_in_the_middle_and_continued_by_the_next(fetch, site):
    """Nothing is seen of it but its part; and the next process asks for the rest only."""
    halted, path = threading.Event(), f"/mine/{WEIGHTS}"

    def half(handler, data):
        handler.whole_or_range(data, send=HALF)
        handler.wfile.flush()
        halted.wait(120)
    s = site(FOLDER, {path: half})
    process = subprocess.Popen([PROGRAM, *fetch.args(f"{s.url}/mine", *LOCAL)])
    part = fetch.cache / ".downloads" / hashlib.sha256(f"{s.url}/mine".encode()).hexdigest() / "1.part"
    try:
        wait_for(lambda: part.exists() and part.stat().st_size == HALF, "half of it is there")
        assert fetch.kept() == []
    finally:
        process.kill()
        process.wait()
        halted.set()
    assert part.stat().st_size == HALF and fetch.kept() == []
    del s.how[path]
    fetch(f"{s.url}/mine", *LOCAL)
    assert s.ranges(path) == [None, f"bytes={HALF}-"]


def test_what_the_disk_has_no_room_for_is_not_left_there(fetch, site):
    s = site({**FOLDER, "/a.tar": tar_of(FILES, "w")})
    for source in (f"{s.url}/mine", f"{s.url}/a.tar"):
        done = subprocess.run([PROGRAM, *fetch.args(source, *LOCAL)], capture_output=True, text=True, restore_signals=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, resource.RLIM_INFINITY)))
        assert done.returncode == 2 and "File too large" in done.stderr and str(fetch.cache) not in done.stderr
        assert not any((fetch.cache / ".downloads").iterdir()) and fetch.kept() == []
    fetch(f"{s.url}/mine", *LOCAL)


def test_what_changed_meanwhile_is_fetched_anew(fetch, site):
    other = bytes(len(FILES[WEIGHTS]))
    path = f"/mine/{WEIGHTS}"

    def once(handler, _):
        del s.how[path]
        handler.whole_or_range(other, send=HALF)
    s = site(FOLDER, {path: once})
    fetch(f"{s.url}/mine", *LOCAL)
    assert s.ranges(path) == [None, f"bytes={HALF}-"]


def claim(length):
    def how(handler, data):
        handler.send_response(200)
        handler.send_header("Content-Length", str(length(data)))
        handler.end_headers()
        try:
            handler.wfile.write(data)
        except OSError:
            pass
        handler.close_connection = True
    return how


def endless(handler, _):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"10000\r\n" + bytes(65536) + b"\r\n")
    except OSError:
        handler.close_connection = True


def endless_trailers(handler, _):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        handler.wfile.write(b"0\r\n")
        for _ in range(10000):                      # 100 MB
            handler.wfile.write((b"x: " + b"x" * 995 + b"\r\n") * 10)
    except OSError:
        pass
    handler.close_connection = True


def wrong_range(handler, data):
    if not handler.headers["Range"]:
        return handler.whole_or_range(data, send=HALF)
    return handler.reply(206, data[HALF - 100:], **{"Content-Range": f"bytes {HALF - 100}-{len(data) - 1}/{len(data)}"}, **handler.etag(data))


@pytest.mark.parametrize("how, says", [
    (claim(lambda data: len(data) + 1), "before all that the server had promised"),
    (claim(lambda data: len(data) - 1), "adapter_model.safetensors"),
    (claim(lambda data: 10 ** 12), "it is 1000000000000 bytes; at most 1000000"),
    (claim(lambda data: "many"), "adapter_model.safetensors"),
    (claim(lambda data: -5), "adapter_model.safetensors"),
    (endless, "larger than the 1000000 bytes"),
    (endless_trailers, "header fields without end"),
    (wrong_range, "another range"),
    (lambda h, data: h.reply(200, b""), "adapter_model.safetensors"),
    (lambda h, data: h.reply(500, b"sorry"), "answered 500"),
    (lambda h, data: h.reply(204, b""), "answered 204"),
    (lambda h, data: h.wfile.write(b"what?\r\n\r\n"), "adapter_model.safetensors"),
], ids=["long", "short", "huge", "word", "negative", "endless", "trailers", "range", "empty", "500", "204", "noise"])
def test_servers_that_lie(fetch, site, how, says):
    s = site(FOLDER, {f"/mine/{WEIGHTS}": how})
    began = time.monotonic()
    assert says in fetch.refuses(f"{s.url}/mine", *LOCAL, "--max-adapter-bytes", 1000000)
    assert time.monotonic() - began < 20


def trickle(handler, data):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    try:
        for byte in data:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.2)
    except OSError:
        handler.close_connection = True


def test_a_server_that_is_slow(fetch, site):
    s = site(FOLDER, {f"/mine/{CONFIG}": trickle})
    began = time.monotonic()
    assert "the time allowed for it was over" in fetch.refuses(f"{s.url}/mine", *LOCAL, "--fetch-seconds", 0.5)
    s.how[f"/mine/{CONFIG}"] = lambda h, _: time.sleep(3)            # not even a head comes
    assert "the time allowed for it was over" in fetch.refuses(f"{s.url}/mine", *LOCAL, "--fetch-seconds", 0.5)
    s.how[f"/mine/{CONFIG}"] = trickle
    assert time.monotonic() - began < 20
    s.etags = False
    assert "too slow" in fetch.refuses(f"{s.url}/mine", *LOCAL, "--stall-seconds", 1)


def test_two_fetch_the_same_at_once(fetch, site):
    s = site(FOLDER)
    both = [subprocess.Popen([PROGRAM, *fetch.args(f"{s.url}/mine", *LOCAL)], stdout=subprocess.PIPE) for _ in range(2)]
    assert [json.loads(p.communicate(timeout=30)[0])["id"] for p in both] == [DIGEST] * 2
    assert fetch.kept() == [DIGEST]


# Addresses

@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "10.1.2.3", "169.254.169.254", "[fe80::1]",
                                  "[fd00::1]", "[64:ff9b::7f00:1]", "2130706433", "0x7f.1", "224.0.0.1"])
def test_addresses_that_are_not_public_are_refused(fetch, host):
    said = fetch.refuses(f"http://{host}:9/mine.zip")
    assert "is not a public address, and its network is not allowed" in said


def test_redirects_end_at_the_same_border(fetch, site):
    there = site(FOLDER)
    to = {"private": "http://127.0.0.2:9/mine.zip", "file": f"file://{ADAPTER}/{CONFIG}", "loop.zip": None}
    s = site(how={f"/{name}/{CONFIG}": lambda h, _, to=url: h.reply(302, b"", Location=to) for name, url in to.items() if url})
    s.how["/loop.zip"] = lambda h, _: h.reply(302, b"", Location="/loop.zip")
    s.how[f"/good/{CONFIG}"] = lambda h, _: h.reply(307, b"", Location=f"{there.url}/mine/{CONFIG}")
    s.how[f"/good/{WEIGHTS}"] = lambda h, _: h.reply(302, b"", Location=f"{there.url}/mine/{WEIGHTS}")
    assert "127.0.0.2 is not a public address" in fetch.refuses(f"{s.url}/private", *LOCAL)
    assert "rotocol" in fetch.refuses(f"{s.url}/file", *LOCAL)
    assert "redirects" in fetch.refuses(f"{s.url}/loop.zip", *LOCAL)
    fetch(f"{s.url}/good", *LOCAL)


def test_a_proxy_of_the_environment_is_not_asked(fetch, site, monkeypatch):
    s, proxy = site(FOLDER), site()
    monkeypatch.setenv("http_proxy", proxy.url)
    fetch(f"{s.url}/mine", *LOCAL)
    assert proxy.asked == []


# The hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def hub(site, cdn, names=(CONFIG, WEIGHTS, "README.md"), token="hf_token"):
    """Small files are answered at once, the weights by a redirect to another host, as the hub does."""
    listing = json.dumps({"id": "me/mine", "sha": COMMIT, "siblings": [{"rfilename": n} for n in names]}).encode()
    at = f"/me/mine/resolve/{COMMIT}"
    return site({"/api/models/me/mine/revision/main": listing, "/api/models/me/mine/revision/refs%2Fpr%2F1": listing, f"{at}/{CONFIG}": FILES[CONFIG]},
                {f"{at}/{WEIGHTS}": lambda h, _: h.reply(302, b"", Location=f"{cdn.url}/blob?signed=yes")}, token=token)


def test_the_hub(fetch, site, monkeypatch):
    cdn = site({"/blob": FILES[WEIGHTS]}, {"/blob": lambda h, data: h.whole_or_range(data, send=70000)})
    h = hub(site, cdn)
    monkeypatch.setenv("HF_ENDPOINT", h.url)
    assert "answered 401" in fetch.refuses("hf://me/mine", *LOCAL)
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    assert fetch("hf://me/mine", *LOCAL)["revision"] == COMMIT
    assert fetch("hf://me/mine@refs/pr/1", *LOCAL)["revision"] == COMMIT
    assert all("Authorization" not in headers for _, headers in cdn.asked) and cdn.asked[1][1]["Range"] == "bytes=70000-"
    assert "answered 404" in fetch.punica.refuses(*fetch.args("hf://me/other", *LOCAL))


@pytest.mark.parametrize("listing, says", [
    (b"{", "hf://me/mine"), (b"[]", "names no commit"), (json.dumps({"sha": "../../x"}).encode(), "names no commit"),
    (json.dumps({"sha": COMMIT, "siblings": 5}).encode(), "lists no files"),
    (json.dumps({"sha": COMMIT, "siblings": [{"rfilename": CONFIG}, 7, {}]}).encode(), "has no adapter_model.safetensors"),
])
def test_a_hub_that_answers_strangely(fetch, site, monkeypatch, listing, says):
    s = site({"/api/models/me/mine/revision/main": listing})
    monkeypatch.setenv("HF_ENDPOINT", s.url)
    assert says in fetch.refuses("hf://me/mine", *LOCAL)


# S3

@pytest.fixture(scope="module")
def s3():
    """(endpoint, key, secret) of moto's server with a bucket, which from then on answers nobody without a right signature."""
    import boto3
    import requests
    from moto.server import ThreadedMotoServer
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    url = "http://%s:%d" % server.get_host_and_port()
    how = {"endpoint_url": url, "region_name": "eu-west-2", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
    store, users = boto3.client("s3", **how), boto3.client("iam", **how)
    store.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-2"})
    for name, data in FILES.items():
        store.put_object(Bucket="bucket", Key=f"team a+b/mine/{name}", Body=data)
    store.put_object(Bucket="bucket", Key="mine.zip", Body=zip_of(FILES))
    users.create_user(UserName="punica")
    rights = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    users.put_user_policy(UserName="punica", PolicyName="all", PolicyDocument=json.dumps(rights))
    key = users.create_access_key(UserName="punica")["AccessKey"]
    requests.post(f"{url}/moto-api/reset-auth", data="0", timeout=10).raise_for_status()
    yield url, key["AccessKeyId"], key["SecretAccessKey"]
    server.stop()


def test_s3(fetch, s3, monkeypatch):
    url, key, secret = s3
    for name, value in {"ENDPOINT_URL": url, "REGION": "eu-west-2", "ACCESS_KEY_ID": key, "SECRET_ACCESS_KEY": secret + "x"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    assert "answered 403" in fetch.refuses("s3://bucket/mine.zip", *LOCAL)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    fetch("s3://bucket/mine.zip", *LOCAL)
    fetch("s3://bucket/team a+b/mine/", *LOCAL)
    assert "answered 404" in fetch.punica.refuses(*fetch.args("s3://bucket/none.zip", *LOCAL))
    assert "answered 404" in fetch.punica.refuses(*fetch.args("s3://other/mine.zip", *LOCAL))
    assert "is not a public address" in fetch.punica.refuses(*fetch.args("s3://bucket/mine.zip"))


def test_s3_by_the_files_of_its_tools(fetch, s3, monkeypatch, tmp_path):
    """Credentials and settings of a profile, where the environment has none."""
    url, key, secret = s3
    for name in ("ENDPOINT_URL", "ENDPOINT_URL_S3", "REGION", "DEFAULT_REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    (tmp_path / ".aws").mkdir()
    credentials, config = tmp_path / ".aws/credentials", tmp_path / ".aws/config"
    credentials.write_text(f"# ours\n[default]\naws_access_key_id = {key}\naws_secret_access_key = wrong\n\n[team]\naws_access_key_id={key}\r\n aws_secret_access_key = no\n"
                           f"aws_secret_access_key={secret}\n[other]\naws_secret_access_key = x\n")
    config.write_text(f"[default]\nregion = eu-west-2\nendpoint_url = {url}\n[profile team]\nregion = eu-west-2\nendpoint_url = {url}\ns3 =\n  endpoint_url = http://127.0.0.2:9\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "answered 403" in fetch.refuses("s3://bucket/mine.zip", *LOCAL)
    monkeypatch.setenv("AWS_PROFILE", "team")
    fetch("s3://bucket/mine.zip", *LOCAL)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)                # the environment goes before
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "answered 403" in fetch.punica.refuses(*fetch.args("s3://bucket/mine.zip", *LOCAL))


def test_s3_signs_the_session_and_continues(fetch, site, monkeypatch):
    """Against a server of ours: temporary credentials are named and signed, also when the rest is asked for; a redirect is not
    followed with them."""
    s = site({"/bucket/mine.zip": zip_of(FILES)}, {"/bucket/mine.zip": lambda h, data: h.whole_or_range(data, send=70000)})
    s.how["/bucket/moved.zip"] = lambda h, _: h.reply(301, b"", Location="/bucket/mine.zip")
    for name, value in {"ENDPOINT_URL_S3": s.url + "/", "ENDPOINT_URL": "http://127.0.0.2:9", "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s", "SESSION_TOKEN": "t"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    assert "a redirect, which is not followed" in fetch.refuses("s3://bucket/moved.zip", *LOCAL)
    fetch("s3://bucket/mine.zip", *LOCAL)
    for _, headers in s.asked:
        assert headers["x-amz-security-token"] == "t" and "Credential=k/" in headers["Authorization"]
        assert "x-amz-security-token" in headers["Authorization"] and "/us-east-1/s3/aws4_request" in headers["Authorization"]
    assert s.asked[-1][1]["Range"] == "bytes=70000-"
