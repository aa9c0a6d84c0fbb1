"""`punica simulate`: the cluster experiment and the fault simulation, from the command line."""
import csv
import json
import re
import subprocess

import pytest
from conftest import PROGRAM, ROOT

STEPS = ROOT / "docs/results/step-h200.json"


@pytest.fixture
def simulate(punica):
    return lambda *args: punica("simulate", "--steps", STEPS, *args)


def table(out):
    """The policies' lines as {name: [numbers]}."""
    lines = [line.split() for line in out.splitlines() if re.match(r"(packed|forgetful|spread|dedicated) ", line)]
    return {line[0]: [float(x) for x in line[1:] if re.match(r"[\d.]+$", x)] for line in lines}


def test_help(punica):
    done = punica("simulate", "--help")
    assert done.returncode == 0 and "--faults" in done.stdout and "--csv" in done.stdout


def test_anywhere(tmp_path):
    """It finds its step times wherever it is called from."""
    done = subprocess.run([PROGRAM, "simulate", "--gpus", "1", "--hours", "0.01", "--packed-only"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0 and "packed" in table(done.stdout), done.stderr


def test_packing_needs_fewer_gpu_hours(simulate):
    done = simulate("--gpus", 8, "--hours", 0.05)
    assert done.returncode == 0, done.stderr
    policies = table(done.stdout)
    assert set(policies) == {"packed", "spread", "dedicated"}
    batch, gpu_hours = ({name: row[i] for name, row in policies.items()} for i in (0, 1))
    assert batch["packed"] > 1.5 * batch["spread"] and batch["packed"] <= 32
    assert gpu_hours["packed"] < 0.8 * gpu_hours["spread"] and gpu_hours["packed"] < gpu_hours["dedicated"]


def test_conversations_go_where_they_were(simulate):
    """Turns find more of what was said in caches than by chance, and packing does not suffer."""
    done = simulate("--gpus", 4, "--hours", 0.02, "--rate", 200, "--turns", 4, "--pages", 6000, "--packed-only")
    assert done.returncode == 0, done.stderr
    policies = table(done.stdout)
    assert set(policies) == {"packed", "forgetful"}
    gpu_hours, cached = ({name: row[i] for name, row in policies.items()} for i in (1, -1))
    assert cached["packed"] > cached["forgetful"] + 2 and gpu_hours["packed"] < 1.02 * gpu_hours["forgetful"]


def test_projected_steps(punica):
    """A split model is one GPU to it; that its steps are a projection is said."""
    done = punica("simulate", "--steps", ROOT / "docs/results/step-70b-8xh200-projected.json", "--gpus", 2, "--hours", 0.02, "--packed-only")
    assert done.returncode == 0 and "steps: PROJECTION: llama2-70b" in done.stdout, done.stderr


def test_the_seed_decides(simulate):
    args = ["--gpus", 4, "--hours", 0.01]
    first, again, other = simulate(*args), simulate(*args), simulate(*args, "--seed", 1)
    assert first.stdout == again.stdout != other.stdout


def test_csv(simulate, tmp_path):
    done = simulate("--gpus", 4, "--hours", 0.02, "--batch", 8, "--csv", tmp_path / "a.csv", "--packed-only")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert len(rows) == 360
    batches = [float(row[f"batch_gpu{g}"]) for row in rows for g in range(4)]
    assert max(batches) > 7 and all(0 <= b <= 8 for b in batches)
    requests = int(re.search(r": (\d+) requests", done.stdout).group(1))
    assert sum(float(row["requests_per_s"]) for row in rows) * 72 / 360 == pytest.approx(requests, abs=1)


@pytest.mark.parametrize("change", [{"steps": []}, {"context": 0}, {"steps": [{"batch": 1}, {"batch": 2}]}, {"adapter_load_ms": "x"}], ids=str)
def test_bad_steps_files(punica, tmp_path, change):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(json.loads(STEPS.read_text()) | change))
    assert str(path) in punica.refuses("simulate", "--steps", path)


@pytest.mark.parametrize("args", [["--faults", "--seeds", "5:1"], ["--faults", "--seeds", "x"], ["--gpus", "0"], ["--pages", "12"],
                                  ["--steps", "/no/such/file"]], ids=" ".join)
def test_bad_arguments(punica, args):
    assert args[-1] in punica.refuses("simulate", "--steps", STEPS, *args)


def test_faults(punica):
    done = punica("simulate", "--faults", "--seeds", "1:50")
    assert done.returncode == 0 and "50 seeds, 0 failed" in done.stdout, done.stdout


def test_a_seed_replays(punica):
    first, again = (punica("simulate", "--faults", "--seeds", "7:7", "--trace") for _ in range(2))
    strip = [re.sub(r"in [\d.]+ s", "", done.stdout) for done in (first, again)]
    assert strip[0] == strip[1] and strip[0].count("\n") > 50
