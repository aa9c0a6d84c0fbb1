"""Fixtures of the tests of the whole program.

The program is $PUNICA_BIN, else build/dev/punica. `golden` walks over the families of
tests/golden/models (made by tools/golden_models.py); `punica` runs the program; `generate` runs
`punica generate` on request lines and gives back its objects.
"""
import json
import os
import signal
import subprocess

import pytest
from cluster import Cluster
from program import PROGRAM, ROOT
from serving import Server
from web_site import Site

FAMILIES = sorted(p.parent for p in ROOT.glob("tests/golden/models/*/golden.json"))
TIMEOUT_S = 300
SANITIZED = PROGRAM.exists() and b"__asan_init" in PROGRAM.read_bytes()

# The files that take longest, in that order. They are begun first: where files run side by side, none of these is left for the end.
LONGEST = ["test_demo", "test_tenants", "test_cluster_parts", "test_serve", "test_versions", "test_cli", "test_registry", "test_strangers", "test_door"]

# Who is started in the background may have been told to ignore Ctrl-C, and what it starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


class Golden:
    """One family: its model, its adapters by name, and what Transformers + PEFT made of them."""

    def __init__(self, root):
        data = json.loads((root / "golden.json").read_text())
        self.root, self.model = root, root / "model"
        self.adapters = {p.name: p for p in sorted((root / "adapters").iterdir())}
        self.cases, self.texts = data["cases"], data["texts"]

    def options(self, model=None):
        """--model and an --adapter for each."""
        args = ["--model", model or self.model]
        for name, path in self.adapters.items():
            args += ["--adapter", f"{name}={path}"]
        return args


class Program:
    def __call__(self, *args, stdin="", stdout=subprocess.PIPE):
        """The finished process. A signal, or a report of a sanitizer, fails the test at once."""
        done = subprocess.run([PROGRAM, *map(str, args)], input=stdin, stdout=stdout, stderr=subprocess.PIPE,
                              text=True, timeout=TIMEOUT_S)
        assert done.returncode in (0, 1, 2) and "Sanitizer" not in done.stderr, done.stderr
        return done

    def refuses(self, *args, stdin=""):
        """The one line it says when it exits with 2, having written nothing."""
        done = self(*args, stdin=stdin)
        assert done.returncode == 2, (done.stdout, done.stderr)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("punica: ") and not done.stdout, (done.stdout, done.stderr)
        return lines[0]


@pytest.fixture(scope="session", autouse=True)
def built():
    if not os.access(PROGRAM, os.X_OK):
        pytest.exit(f"{PROGRAM} is not there: build it, or set PUNICA_BIN", returncode=2)


@pytest.fixture(scope="session")
def punica():
    return Program()


@pytest.fixture(scope="session", params=FAMILIES, ids=lambda root: root.name)
def golden(request):
    return Golden(request.param)


@pytest.fixture(scope="session")
def one_golden():
    """A family for tests that need only some model: 16-bit weights."""
    return Golden(next(f for f in FAMILIES if f.name == "llama2"))


@pytest.fixture(scope="session")
def generate(punica):
    def run(golden, requests, *options, model=None):
        lines = "".join(json.dumps(r) + "\n" for r in requests)
        done = punica("generate", *golden.options(model), "--prompts", "-", "--json", *options, stdin=lines)
        assert done.returncode == 0, done.stderr
        results = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(results) == len(requests)
        for asked, got in zip(requests, results):
            assert got["adapter"] == asked.get("adapter")
            if isinstance(asked["prompt"], list):
                assert got["prompt_token_ids"] == asked["prompt"]
        return results
    return run


@pytest.fixture
def site():
    """Makes web servers, which end with the test."""
    made = []

    def make(*args, **kwargs):
        made.append(Site(*args, **kwargs))
        return made[-1]
    yield make
    for s in made:
        s.end()


@pytest.fixture(scope="module")
def server():
    """The demo, which has nothing left to do when the module's tests have ended."""
    server = Server()
    yield server
    assert server.metric("punica_live_requests") == 0
    assert server.stop() == 0


@pytest.fixture
def serve():
    """serve(OPTION...): a further server, of which nothing is left however the test ends."""
    started = []

    def start(*args):
        started.append(Server(*args))
        return started[-1]
    yield start
    for one in started:
        one.end()


@pytest.fixture
def cluster(tmp_path):
    """For scheduler, frontends and runners as processes of their own."""
    c = Cluster(tmp_path)
    yield c
    c.close()
