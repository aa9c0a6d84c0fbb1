#!/usr/bin/env python3
"""Clients that people use, each with what it must be able to do: try_NAME.py, in an environment of its own under build/clients/NAME.

    PUNICA_BIN=build/punica build/venv/bin/python tests/clients/run.py [NAME]...

By hand: the packages are large. The clients of `make test` are in tests/e2e.
"""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from cluster import DEMO  # noqa: E402
from conftest import ROOT  # noqa: E402
from serving import Server  # noqa: E402

KNOWN = "gpt-4o-mini"               # some clients have a list of names, and use only of what is in it all that they can


def wanted():
    """{name: packages}"""
    lines = [line for line in (HERE / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    return {name: packages.split() for name, packages in (line.split(": ") for line in lines)}


def environment(name, packages):
    """Its Python, with the packages installed."""
    home = ROOT / "build/clients" / name
    done = home / "installed"
    if not done.exists() or done.read_text().split() != packages:
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", home], check=True)
        subprocess.run([home / "bin/pip", "install", "-q", *packages], check=True)
        done.write_text(" ".join(packages))
    return home / "bin/python"


def main():
    all_clients = wanted()
    names = sys.argv[1:] or list(all_clients)
    alias = f"{KNOWN}={DEMO / 'adapters/json'}"
    server = Server("--model", str(DEMO / "model"), "--name", "demo", "--adapters", str(DEMO / "adapters"), "--adapter", alias,
                    "--chat-template", str(HERE / "template.jinja"))
    failed = []
    for name in names:
        python = environment(name, all_clients[name])
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as cache:
            env = {**os.environ, "PUNICA_URL": server.url, "DSPY_CACHEDIR": cache, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"}
            done = subprocess.run([python, HERE / f"try_{name}.py"], env=env, capture_output=True, text=True)
        good = done.returncode == 0
        print(f"{'ok  ' if good else 'FAIL'} {name} ({time.monotonic() - start:.0f} s)", flush=True)
        if not good:
            failed.append(name)
            print(done.stdout[-2000:], done.stderr[-6000:])
    assert server.stop() == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
