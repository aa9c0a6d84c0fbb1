"""The registry of a store: what one frontend is told all frontends and hosts serve, and a tenant's adapters are its own. Every frontend and
every runner has a disk cache of its own, as if it were a host by itself; adapters come from a web server."""
import json
import resource
import signal
import threading
import time

import pytest
import requests
from cluster import Cluster, wait_for
from conftest import ROOT
from serving import metric
from test_sources import tar_of
from test_tenants import ADMIN, SENTENCE, Store, postgres  # noqa: F401 (a fixture)

DEMO = ROOT / "demo"
LOCAL = ("--allow-network", "127.0.0.1")
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def files_of(name):
    return {f.name: f.read_bytes() for f in (DEMO / "adapters" / name).iterdir()}


def folders(*names):
    return {f"/{name}/{f}": data for name in names for f, data in files_of(name).items()}


class Asker:
    """Somebody with a key, at one frontend."""

    def __init__(self, front, key):
        self.url, self.headers = f"http://{front.http}", {"Authorization": f"Bearer {key}"}

    def __call__(self, method, path, **how):
        return requests.request(method, self.url + path, headers=self.headers, timeout=120, **how)

    def load(self, name, source, inplace=False):
        return self("POST", "/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(source), "load_inplace": inplace})

    def unload(self, name):
        return self("POST", "/v1/unload_lora_adapter", json={"lora_name": name})

    def show(self, name):
        return self("GET", f"/v1/adapters/{name}")

    def names(self):
        return [a["name"] for a in self("GET", "/v1/adapters").json()["data"]]

    def models(self):
        return [m["id"] for m in self("GET", "/v1/models").json()["data"]]

    def ask(self, model, **params):
        return self("POST", "/v1/completions", json={"model": model, "prompt": SENTENCE, "temperature": 0, "max_tokens": 24, **params})

    def text(self, model, **params):
        got = self.ask(model, **params)
        assert got.status_code == 200, got.text
        return got.json()["choices"][0]["text"]

    def stream(self, model, **params):
        """Its texts as they come."""
        body = {"model": model, "prompt": SENTENCE, "temperature": 0, "stream": True, **params}
        with requests.post(self.url + "/v1/completions", headers=self.headers, json=body, stream=True, timeout=120) as got:
            assert got.status_code == 200, got.text
            for line in got.iter_lines():
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    assert "error" not in event, event
                    yield "".join(c["text"] for c in event["choices"])


class Hosts:
    """A scheduler, frontends and runners, each with a cache of its own, and one store."""

    def __init__(self, folder, url, n_frontends=2, n_runners=2, options=(), env=None):
        self.folder, self.store, self.cluster = folder, Store(url), Cluster(folder)
        self.key = folder / "admin"
        self.key.write_text(ADMIN)
        self.key.chmod(0o600)
        self.options, self.env = (*LOCAL, *options), env
        self.cluster.scheduler()
        self.runners = [self.runner() for _ in range(n_runners)]
        self.fronts = [self.cluster.frontend("--store", url, "--admin-key-file", self.key, "--cache", folder / f"front{i}", "--adapter-updates",
                                             *self.options, env=env) for i in range(n_frontends)]
        self.cluster.wait_gpus(n_runners)
        self.operators = [Asker(f, ADMIN) for f in self.fronts]

    def runner(self):
        n = len(list(self.folder.glob("runner*")))
        cache = self.folder / f"runner{n}"
        cache.mkdir()
        runner = self.cluster.runner("--cache", cache, *self.options, env=self.env)
        runner.cache = cache
        return runner

    def has(self, folder, adapter_id):
        return (self.folder / folder / adapter_id).is_dir()

    def askers(self, key):
        """At each frontend, when it knows the key."""
        all = [Asker(f, key) for f in self.fronts]
        wait_for(lambda: all[-1]("GET", "/v1/models").status_code == all[0]("GET", "/v1/models").status_code == 200, "the key is known")
        return all


@pytest.fixture
def hosts(tmp_path):
    made = []

    def make(url=None, **how):
        made.append(Hosts(tmp_path, url or tmp_path / "store.db", **how))
        return made[-1]
    yield make
    for one in made:
        one.cluster.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return request.getfixturevalue("postgres").url if request.param == "postgres" else tmp_path / "store.db"


def soon(condition, what):
    """A second is what is promised; a busy machine gets more."""
    began = time.monotonic()
    wait_for(condition, what, 20)
    print(f"{what}: {time.monotonic() - began:.2f} s")


def test_what_one_frontend_is_told_all_serve(url, hosts, site):
    here = hosts(url)
    one, two = here.operators
    s = site(folders("sql", "french"))
    key = here.store.tenant("ann", "--base", "yes", adapters=["mine", "sql", "french"])
    ann, ann_two = here.askers(key)
    sql, french = ann.text("sql"), ann.text("french")         # of the host's own folder
    got = one.load("mine", f"{s.url}/sql")
    assert got.status_code == 200, got.text
    first = got.json()["versions"][0]["id"]
    assert ann.text("mine") == sql                            # at once where it was told
    soon(lambda: "mine" in ann_two.models(), "the other frontend lists it")
    assert ann_two.text("mine") == sql and here.has("front1", first)
    assert any(here.has(r.cache.name, first) for r in here.runners)
    assert two.load("mine", f"{s.url}/french").json()["error"]["code"] == "already_loaded"
    got = two.load("mine", f"{s.url}/french", inplace=True)
    assert got.json()["current"] == 2 and ann_two.text("mine") == french
    soon(lambda: ann.text("mine") == french, "the other frontend serves the new version")
    assert two("PUT", "/v1/adapters/mine", json={"version": 1}).json()["current"] == 1
    soon(lambda: ann.text("mine") == sql, "and the old one again")
    assert two.unload("mine").status_code == 200 and ann_two.ask("mine").status_code == 404
    soon(lambda: ann.ask("mine").status_code == 404 and "mine" not in ann.models(), "it is gone")
    actions = [json.loads(line)["action"] for line in here.store("audit", "--json").splitlines()]
    assert actions[:4] == ["adapter remove", "adapter rollback", "adapter replace", "adapter add"]
    here.store("remove", "ann")


def test_a_stream_goes_on_with_its_version_on_a_host_that_never_had_it(hosts, site):
    """Its name is replaced, then removed, and its host dies: the other fetches the weights it began with."""
    here = hosts(n_frontends=1)
    operator, s = here.operators[0], site(folders("sql", "french"))
    ann = here.askers(here.store.tenant("ann", adapters=["mine", "sql"]))[0]
    long = {"max_tokens": 500, "ignore_eos": True}
    expected = ann.text("sql", **long)
    id = operator.load("mine", f"{s.url}/sql").json()["versions"][0]["id"]
    while True:                                 # on a busy machine a stream may end before it can be stopped
        stream = ann.stream("mine", **long)
        begun = next(stream)
        [serves] = [r for r in here.runners if here.has(r.cache.name, id)]
        [other] = [r for r in here.runners if r is not serves]
        serves.kill(signal.SIGSTOP)
        time.sleep(0.2)                         # what it had said by then
        if metric(ann.url, "punica_live_requests"):
            break
        serves.kill(signal.SIGCONT)
    assert operator.load("mine", f"{s.url}/french", inplace=True).status_code == 200
    assert operator.unload("mine").status_code == 200
    serves.kill(signal.SIGKILL)
    assert begun + "".join(stream) == expected
    assert here.has(other.cache.name, id)


def test_a_source_that_is_slow_or_gone_holds_up_only_who_asks_for_it(hosts, site):
    here = hosts(n_runners=1)
    one, two = here.operators
    ann, ann_two = here.askers(here.store.tenant("ann", adapters=["slow", "gone", "sql"]))
    go, asked = threading.Event(), threading.Semaphore(0)
    s = site(folders("sql", "french"))
    for name, folder in (("slow", "sql"), ("gone", "french")):
        assert one.load(name, f"{s.url}/{folder}").status_code == 200
    soon(lambda: {"slow", "gone"} <= set(ann_two.models()), "the other frontend knows them")

    def halt(handler, data):
        asked.release()
        go.wait(60)
        handler.whole_or_range(data)
    s.how[f"/sql/{WEIGHTS}"] = halt
    s.how[f"/french/{CONFIG}"] = lambda h, data: h.reply(404, b"")
    for asker in (ann, ann_two):                    # at a runner that does not have it, and at a frontend
        got = asker.ask("gone")
        assert got.status_code == 503 and "cannot be fetched" in got.json()["error"]["message"], got.text
        assert int(got.headers["Retry-After"]) >= 1 and got.json()["error"]["code"] == "adapter_unavailable"
        assert "answered 404" in got.json()["error"]["message"]
    texts = {}
    waiting = [threading.Thread(target=lambda a=a, i=i: texts.update({i: a.text("slow")})) for i, a in enumerate((ann, ann_two))]
    for w in waiting:
        w.start()
    assert asked.acquire(timeout=60) and asked.acquire(timeout=60)
    plain = ann.text("sql")
    assert ann_two.text("sql") == plain and texts == {}
    go.set()
    for w in waiting:
        w.join(60)
    assert texts == {0: plain, 1: plain}


def test_a_source_with_other_content_is_not_what_was_registered(hosts, site):
    here = hosts(n_runners=1)
    ann, ann_two = here.askers(here.store.tenant("ann", adapters=["mine"]))
    s = site(folders("sql"))
    assert here.operators[0].load("mine", f"{s.url}/sql").status_code == 200
    s.files.update({f"/sql/{name}": data for name, data in files_of("french").items()})
    soon(lambda: "mine" in ann_two.models(), "the other frontend knows it")
    for asker in (ann, ann_two):
        assert "digest" in asker.ask("mine").json()["error"]["message"]


def test_the_same_content_may_come_from_elsewhere_from_now_on(hosts, site):
    """Its source moves: it is loaded again from the new place, is the version that it was, and hosts that lack it fetch it there."""
    here = hosts(n_runners=1)
    ann, ann_two = here.askers(here.store.tenant("ann", adapters=["mine", "sql"]))
    s = site({**folders("sql"), **{f"/moved/{name}": data for name, data in files_of("sql").items()}})
    operator = here.operators[0]
    assert operator.load("mine", f"{s.url}/sql").status_code == 200
    for path in folders("sql"):
        del s.files[path]
    got = operator("PUT", "/v1/adapters/mine", json={"source": f"{s.url}/moved"}).json()
    assert got["current"] == 1 and [v["source"] for v in got["versions"]] == [f"{s.url}/moved"]
    soon(lambda: ann_two.ask("mine").status_code == 200, "the other frontend knows the new place")
    assert ann_two.text("mine") == ann.text("sql")


def test_tenants_have_adapters_of_their_own(hosts, site):
    here = hosts(n_runners=1)
    s, operator = site({**folders("sql", "french"), "/big.tgz": tar_of({**files_of("sql"), "other": bytes(50_000_000)})}), here.operators[0]
    sql_bytes, french_bytes = (sum(map(len, files_of(n).values())) for n in ("sql", "french"))
    limits = ("--max-adapters", "2", "--max-adapter-bytes", sql_bytes + french_bytes + 1000)
    ann, ann_two = here.askers(here.store.tenant("ann", *limits, adapters=["sql", "french"]))
    bob, bob_two = here.askers(here.store.tenant("bob", *limits, adapters=["*"]))
    eve = here.askers(here.store.tenant("eve"))[0]
    sql, french = ann.text("sql"), ann.text("french")

    # Each its own, under the same name.
    assert ann.load("mine", f"{s.url}/sql").status_code == 200
    assert bob.load("mine", f"{s.url}/french").status_code == 200
    assert ann.text("mine") == sql and bob.text("mine") == french
    soon(lambda: "mine" in bob_two.models() and "mine" in ann_two.models(), "the other frontend knows them")
    assert ann_two.text("mine") == sql and bob_two.text("mine") == french
    assert ann.names() == bob.names() == ["mine"] and sorted(operator.names()) == ["ann/mine", "bob/mine"]
    assert ann.text("ann/mine") == sql and "mine" in ann.models() and "ann/mine" not in ann.models()
    shown = ann.show("mine").json()
    assert shown["name"] == "mine" and shown["versions"][0]["by"].startswith("tenant:ann ") and "url" not in shown["versions"][0]

    # Another's is as if it were not there, also for one that was granted everything.
    for asker, name in ((bob, "ann/mine"), (eve, "ann/mine"), (eve, "mine"), (eve, "none")):
        refused = asker.ask(name)
        nothing = asker.ask("nobody/none")
        assert refused.status_code == 404 and refused.text.replace(name, "X") == nothing.text.replace("nobody/none", "X")
        assert asker("GET", f"/v1/models/{name}").status_code == 404
        assert name not in asker.models()
    for name in ("ann/mine", "ann%2Fmine", "..%2Fann%2Fmine", "bob/../ann/mine"):
        assert bob.show(name).status_code == 404, name
        assert bob("DELETE", f"/v1/adapters/{name}").status_code == 404, name
        assert bob("PUT", f"/v1/adapters/{name}", json={"version": 1}).status_code in (400, 404), name
    assert bob.unload("ann/mine").status_code in (400, 404)
    assert bob.load("ann/mine", f"{s.url}/french", inplace=True).status_code == 400
    for name in ("../mine", "a/b", ".hidden", "", "demo", "x\n", "x" * 300, "mine\0", "x\0y"):
        assert ann.load(name, f"{s.url}/sql").status_code == 400, name
    assert ann.text("mine") == sql and ann.show("mine").json()["current"] == 1

    # Limits: of none at all, of number, of bytes; nothing is asked of a source that would not be kept.
    s.asked.clear()
    assert eve.load("mine", f"{s.url}/sql").status_code == 403 and s.asked == []
    assert ann.load("other", f"{s.url}/french").status_code == 200
    s.asked.clear()
    got = ann.load("third", f"{s.url}/sql")
    assert got.status_code == 403 and got.json()["error"]["code"] == "too_many_adapters" and s.asked == []
    got = ann.load("mine", f"{s.url}/french", inplace=True)
    assert got.status_code in (400, 413) and "bytes" in got.json()["error"]["message"]
    assert bob.load("mine", f"{s.url}/sql", inplace=True).json()["current"] == 2         # the first version still fits
    assert "bytes" in bob.load("bomb", f"{s.url}/big.tgz").json()["error"]["message"]

    # Replace, roll back, unload: of its own.
    soon(lambda: bob_two.text("mine") == sql, "the new version at the other frontend")
    assert bob_two("PUT", "/v1/adapters/mine", json={"version": 1, "source": f"{s.url}/sql"}).status_code == 400          # one or the other
    assert bob_two("PUT", "/v1/adapters/mine", json={"version": 1}).status_code == 200 and bob_two.text("mine") == french
    assert bob_two("DELETE", "/v1/adapters/mine").json() == {"name": "mine", "removed": True}
    assert bob_two.ask("mine").status_code == 404 and ann.text("mine") == sql

    # What is shared by its owner's name.
    here.store("grant", "bob", "ann/mine")
    soon(lambda: "ann/mine" in bob.models(), "the grant")
    assert bob.text("ann/mine") == sql and bob.show("ann/mine").status_code == 404
    wait_for(lambda: here.store.usage("bob").get(("bob", "ann/mine")), "usage by the whole name")
    here.store("remove", "ann")
    soon(lambda: bob.ask("ann/mine").status_code == 404, "with a tenant go its adapters")
    assert operator.names() == []


def test_tenants_sources_are_strangers(hosts, site):
    """No files of the host, no private addresses, nor a way there by redirect; and not with the operator's credentials."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    listing = json.dumps({"sha": commit, "siblings": [{"rfilename": n} for n in (CONFIG, WEIGHTS)]}).encode()
    files = {"/api/models/me/mine/revision/main": listing, f"/api/models/me/mine/revision/{commit}": listing,
             **{f"/me/mine/resolve/{commit}/{n}": files_of("sql")[n] for n in (CONFIG, WEIGHTS)}}
    hub = site(files, token="hf_operator")
    s = site(folders("sql"), {f"/away/{CONFIG}": lambda h, _: h.reply(302, b"", Location="http://127.0.0.2:9/x")})
    here = hosts(n_runners=1, options=("--adapter-files", DEMO / "adapters"),
                 env={"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_operator", "AWS_ENDPOINT_URL_S3": s.url, "AWS_ACCESS_KEY_ID": "operator",
                      "AWS_SECRET_ACCESS_KEY": "secret"})
    operator, other = here.operators
    ann, ann_two = here.askers(here.store.tenant("ann", "--max-adapters", "9", adapters=["theirs"]))
    for source, says in ((DEMO / "adapters/sql", "not taken from files"), (f"file:{DEMO}/adapters/sql", "not taken from files"),
                         ("http://127.0.0.2:9/x.zip", "not a public address"), ("http://169.254.169.254/latest/x.zip", "not a public address"),
                         ("http://[::1]:9/x.zip", "not a public address"), (f"{s.url}/away", "127.0.0.2 is not a public address"),
                         ("hf://me/mine", "401")):
        got = ann.load("mine", source)
        assert got.status_code == 400 and says in got.json()["error"]["message"], (source, got.text)
    s.asked.clear()
    s.files.update({f"/bucket/french/{n}": d for n, d in files_of("french").items()})
    assert ann.load("mine", "s3://bucket/french").status_code == 200
    assert s.asked and not any("Authorization" in headers for _, headers in s.asked)
    assert all("hf_operator" not in str(headers) for _, headers in hub.asked)
    assert operator.load("theirs", "me/mine").status_code == 200       # the operator's are what operators use, on every host
    soon(lambda: "theirs" in ann_two.models(), "the other frontend knows it")
    assert ann_two.text("theirs") == ann.text("theirs") != ann.text("mine")
    # What a tenant registered is fetched without credentials on every host, too.
    s.asked.clear()
    assert ann_two.text("mine") and s.asked and not any("Authorization" in headers for _, headers in s.asked)


def test_changes_count_as_requests(hosts, site):
    """Of a tenant's requests per minute: each is a line of the audit log, and news to all frontends."""
    here = hosts(n_frontends=1, n_runners=0)
    s = site(folders("sql", "french"))
    ann = here.askers(here.store.tenant("ann", "--max-adapters", 9, "--requests-per-minute", 5))[0]
    for n, got in enumerate((ann.load("mine", f"{s.url}/sql"), ann.load("mine", f"{s.url}/french", inplace=True),
                             ann("PUT", "/v1/adapters/mine", json={"version": 1}), ann("PUT", "/v1/adapters/mine", json={"version": 2}),
                             ann("DELETE", "/v1/adapters/mine"))):
        assert got.status_code == 200 and got.headers["x-ratelimit-limit-requests"] == "5"
        assert int(got.headers["x-ratelimit-remaining-requests"]) >= 4 - n
    refused = [ann.load("mine", f"{s.url}/sql"), ann.unload("mine"), ann("DELETE", "/v1/adapters/mine"), ann("PUT", "/v1/adapters/mine", json={"version": 1})]
    assert 429 in [got.status_code for got in refused]
    got = next(got for got in refused if got.status_code == 429)
    assert got.json()["error"]["code"] == "rate_limit_exceeded" and "5 requests per minute" in got.json()["error"]["message"]
    assert 1 <= int(got.headers["Retry-After"]) <= 12 and got.headers["x-ratelimit-remaining-requests"] == "0"
    assert int(ann.ask("nobody").headers["x-ratelimit-remaining-requests"]) <= 1
    assert ann("GET", "/v1/adapters").status_code == 200
    changes = [json.loads(line)["action"] for line in here.store("audit", "ann", "--json").splitlines()]
    assert len([a for a in changes if a.startswith("adapter")]) <= 7


def test_a_full_disk_is_no_fault_of_the_source(hosts, site):
    """A tenant is told to try again, and nothing of the host; an operator is told why."""
    here = hosts(n_frontends=1, n_runners=0)
    s = site({**folders("sql"), "/sql.tgz": tar_of(files_of("sql"))})
    ann, operator = here.askers(here.store.tenant("ann", "--max-adapters", 9))[0], here.operators[0]
    pid = here.fronts[0].pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (sum(map(len, files_of("sql").values())) - 3000, resource.RLIM_INFINITY))
    for source in ("sql", "sql.tgz"):
        got = ann.load("mine", f"{s.url}/{source}")
        assert got.status_code == 503 and int(got.headers["Retry-After"]) >= 1, got.text
        assert got.json()["error"]["code"] == "adapter_not_loaded" and str(here.folder) not in got.text
        got = operator.load("mine", f"{s.url}/{source}")
        assert got.status_code == 503 and "File too large" in got.json()["error"]["message"], got.text
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert ann.load("mine", f"{s.url}/sql").status_code == 200


def test_a_tenant_loads_few_at_once(hosts, site):
    here = hosts(n_frontends=1, n_runners=0)
    go, asked = threading.Event(), threading.Semaphore(0)

    def halt(handler, data):
        asked.release()
        go.wait(60)
        handler.whole_or_range(data)
    s = site(folders("sql", "french"), {f"/sql/{WEIGHTS}": halt})
    s.files.update({f"/sql2/{n}": d for n, d in files_of("sql").items()})
    s.how[f"/sql2/{WEIGHTS}"] = halt
    ann, bob = (here.askers(here.store.tenant(name, "--max-adapters", "9"))[0] for name in ("ann", "bob"))
    loads = [threading.Thread(target=ann.load, args=(f"x{i}", f"{s.url}/{path}")) for i, path in enumerate(("sql", "sql2"))]
    for one in loads:
        one.start()
    assert asked.acquire(timeout=60) and asked.acquire(timeout=60)
    got = ann.load("third", f"{s.url}/french")
    assert got.status_code == 429 and got.headers["Retry-After"] and got.json()["error"]["code"] == "too_many_loads"
    assert bob.load("mine", f"{s.url}/french").status_code == 200
    go.set()
    for one in loads:
        one.join(60)
    assert sorted(ann.names()) == ["x0", "x1"]


def test_stalled_sources_of_many_tenants_hold_up_no_other(hosts, site):
    """Four tenants, each with two adapters that a frontend waits for, two that a runner waits for, and two that they load: all places that are
    shared are taken. A fifth loads and uses its own."""
    here = hosts(n_runners=1, options=("--stall-seconds", "300"))
    go, asked, late = threading.Event(), threading.Semaphore(0), []

    def halt(handler, data):
        asked.release()
        late.append(not go.wait(50))
        handler.whole_or_range(data)
    s, plain = site(folders("sql")), files_of("sql")
    for i in range(24):                             # all of different content
        config = json.dumps({**json.loads(plain[CONFIG]), "lora_alpha": 64 + i}).encode()
        s.files.update({f"/{i}/{name}": config if name == CONFIG else data for name, data in plain.items()})
    tenants = [here.askers(here.store.tenant(f"t{i}", "--max-adapters", "9")) for i in range(4)]
    for i, (one, _) in enumerate(tenants):
        for k in range(4):
            assert one.load(f"x{k}", f"{s.url}/{6 * i + k}").status_code == 200
    soon(lambda: all("x3" in two.models() for _, two in tenants), "the other frontend knows them")
    s.how.update({f"/{i}/{WEIGHTS}": halt for i in range(24)})
    threads = []
    for i, (one, two) in enumerate(tenants):
        for k in range(2):
            threads.append(threading.Thread(target=one.ask, args=(f"x{k}",)))               # whose files the first frontend has
            threads.append(threading.Thread(target=two.ask, args=(f"x{2 + k}",)))
            threads.append(threading.Thread(target=two.load, args=(f"y{k}", f"{s.url}/{6 * i + 4 + k}")))
    for t in threads:
        t.start()
    try:
        for _ in threads:
            assert asked.acquire(timeout=60)
        one, two = here.askers(here.store.tenant("fifth", "--max-adapters", "9"))
        assert two.load("mine", f"{s.url}/sql").status_code == 200
        soon(lambda: "mine" in one.models(), "the first frontend knows it")
        assert one.text("mine") == two.text("mine")
        assert not late, "it waited until the sources went on"
    finally:
        go.set()
        for t in threads:
            t.join(60)


def test_nobody_waits_for_what_another_brings_of_the_same_content(hosts, site):
    """Two tenants have an adapter that is the same bytes, from sources of their own, and one's source has become slow: on a frontend's host and
    on a runner's, the other has the adapter from its own, and hears nothing of the slow one."""
    here = hosts(n_runners=1, options=("--stall-seconds", 60))
    ann, eve = (here.askers(here.store.tenant(name, "--max-adapters", 2)) for name in ("ann", "eve"))
    mine, theirs = site(folders("sql")), site(folders("sql"))
    assert ann[0].load("own", f"{mine.url}/sql").status_code == eve[0].load("own", f"{theirs.url}/sql").status_code == 200
    soon(lambda: "own" in ann[1].models() and "own" in eve[1].models(), "the other frontend knows both")
    ended, stopped = threading.Event(), []

    def stall(handler, data):
        stopped.append(handler.path)
        ended.wait(120)
        handler.whole_or_range(data)
    theirs.how[f"/sql/{WEIGHTS}"] = stall
    slow = [threading.Thread(target=eve[i].ask, args=("own",)) for i in range(2)]
    try:
        for i in range(2):                          # the runner lacks it, then the other frontend does
            slow[i].start()
            wait_for(lambda i=i: len(stopped) == i + 1, "the slow source is asked")
            assert ann[i].text("own")
    finally:
        ended.set()
        for thread in slow:
            if thread.ident:
                thread.join(60)


def test_where_an_adapter_is(hosts, site):
    """Its tier and load times: with its source, on disk, on the device; and in the metrics."""
    here = hosts(n_runners=1)
    one, two = here.operators
    ann = here.askers(here.store.tenant("ann", "--max-adapters", 1, adapters=["mine"]))[0]
    s = site(folders("sql"))
    assert ann.load("twin", f"{s.url}/sql").status_code == 200
    got = one.load("mine", f"{s.url}/sql").json()
    assert got["tier"] == "disk" and got["memory"] == []
    soon(lambda: two.show("mine").json()["tier"] == "source", "a host that never had it")
    assert ann.text("mine")
    for operator in (one, two):
        soon(lambda: operator.show("mine").json()["tier"] == "device", "it is on the device")
        [at] = operator.show("mine").json()["memory"]
        assert at["tier"] == "device" and at["loaded_from"] == "disk" and 0 < at["load_seconds"] < 60 and at["gpu"]
        page = operator("GET", "/metrics").text
        assert 'punica_adapters_in_memory{tier="device"} 1' in page and "punica_adapter_load_from_disk_seconds_count 1" in page
    twin = ann.show("twin").json()                  # the same content of others is nothing that a tenant should hear of
    assert twin["tier"] == "disk" and twin["memory"] == []


def test_commands_on_a_store(punica, hosts, site, tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "somebody-else")
    here = hosts(n_frontends=1, n_runners=1)
    ann = here.askers(here.store.tenant("ann", adapters=["mine", "sql"]))[0]
    s = site(folders("sql", "french"))

    def adapter(command, *args):
        done = punica("adapter", command, *args, "--store", here.store.url)
        assert done.returncode == 0, done.stderr
        return done.stdout
    fetched = ("--model", DEMO / "model", "--cache", tmp_path / "mine", *LOCAL)
    adapter("add", "mine", f"{s.url}/sql?token=secret", *fetched)
    soon(lambda: "mine" in ann.models(), "the frontend knows it")
    assert ann.text("mine") == ann.text("sql")
    assert "already" in punica.refuses("adapter", "add", "mine", f"{s.url}/sql", *fetched, "--store", here.store.url)
    adapter("add", "mine", f"{s.url}/french", "--replace", *fetched)
    adapter("add", "ann/own", f"{s.url}/french", *fetched)
    said = punica.refuses("adapter", "add", "here", "file:sql", *fetched, "--store", here.store.url)
    assert "file:sql" in said and "whole path" in said
    got = here.operators[0].load("here", "file:sql")
    assert got.status_code == 400 and "whole path" in got.json()["error"]["message"]
    assert 'no tenant "nobody"' in punica.refuses("adapter", "add", "nobody/own", f"{s.url}/french", *fetched, "--store", here.store.url)
    shown = adapter("show", "mine", "--json")
    assert json.loads(shown)["current"] == 2 and "secret" not in shown
    assert json.loads(adapter("rollback", "mine", "--json"))["current"] == 1
    assert [line.split()[0] for line in adapter("list").splitlines()] == ["mine", "ann/own"]
    soon(lambda: "own" in ann.models(), "a tenant's own, made by an operator")
    adapter("remove", "mine")
    soon(lambda: ann.ask("mine").status_code == 404, "it is gone")
    lines = [json.loads(line) for line in here.store("audit", "--json").splitlines()]
    done = [line for line in lines if line["action"].startswith("adapter")]
    assert done and {line["who"] for line in done} == {line["who"] for line in lines} and done[0]["who"].startswith("cli:")        # whatever it calls itself
