"""A store of tenants for tests, as an operator sees it."""
import json
import subprocess

from program import PROGRAM

ADMIN = "an operator's key of 32 letters!!"


class Store:
    """`punica tenant` on one store."""

    def __init__(self, url):
        self.url = str(url)

    def __call__(self, *args):
        done = subprocess.run([PROGRAM, "tenant", *map(str, args), "--store", self.url], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "Sanitizer" not in done.stderr, done.stderr
        return done.stdout

    def tenant(self, name, *settings, adapters=()):
        """A new tenant with a key."""
        self("add", name, *settings)
        for adapter in adapters:
            self("grant", name, adapter)
        return self("key", "add", name, "main").strip()

    def usage(self, *who):
        """{(tenant, adapter): (requests, prompt, output)}"""
        rows = [json.loads(line) for line in self("usage", *who, "--json").splitlines()]
        return {(r["tenant"], r["adapter"]): (r["requests"], r["prompt_tokens"], r["completion_tokens"]) for r in rows}
