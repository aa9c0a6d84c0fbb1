"""How the program is built, and what its processes have given up when they serve."""
import os
import re
import subprocess

import pytest
from conftest import PROGRAM
from serving import Server


def is_release():
    return b"__asan_init" not in PROGRAM.read_bytes() and b"__tsan_init" not in PROGRAM.read_bytes()


def readelf(*what):
    return subprocess.run(["readelf", "-W", *what, PROGRAM], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not is_release(), reason="of release builds")
def test_a_release_is_hardened_as_debian_hardens():
    assert "Position-Independent Executable" in readelf("-h")
    assert re.search(r"FLAGS_1\).*NOW", readelf("-d")), "all symbols are bound at the start"
    segments = readelf("-l")
    assert "GNU_RELRO" in segments, "and their table is read-only then"
    assert re.search(r"GNU_STACK.* RW ", segments), "the stack is not executable"
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail" in symbols and "__snprintf_chk" in symbols and "__memcpy_chk" in symbols
    if os.uname().machine == "x86_64":
        code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--section=.text", PROGRAM], capture_output=True, text=True).stdout
        assert re.search(r"<main>:\n\s+\w+:\s+endbr64", code), "targets of indirect jumps are marked"


def status(pid):
    """Of all threads of a process: [{name: value}]."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as f:
            found.append(dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line))
    return found


def assert_confined(pid):
    for thread in status(pid):
        assert thread["NoNewPrivs"] == "1" and thread["Seccomp"] == "2", thread
        assert int(thread["CapEff"], 16) & ~(1 << 2 | 1 << 10) == 0, thread["CapEff"]


def test_processes_give_up_what_they_do_not_need(cluster):
    scheduler = cluster.scheduler()
    frontend = cluster.frontend()
    runner = cluster.runner("--threads", 2)
    cluster.wait_gpus(1)
    worker, = runner.children()
    for pid in scheduler.pid, frontend.pid, runner.pid, worker:
        assert_confined(pid)
    filters = {p: int(status(p)[0]["Seccomp_filters"]) for p in (runner.pid, worker)}
    assert filters[worker] == filters[runner.pid] + 1
    assert all(int(t["Seccomp_filters"]) == filters[worker] for t in status(worker))


def test_serve_gives_it_up_too():
    server = Server()
    assert_confined(server.pid)
    for worker in server.children():
        assert_confined(worker)
    assert server.stop() == 0
