"""The life of adapters under load, in short: tests/faults/adapter_life.py by hand has 300 of them, and measures."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))

from adapter_life import Life  # noqa: E402


def test_every_answer_is_of_the_version_its_request_began_with(tmp_path):
    """More adapters than disks and devices have room for, changed all the time, and a worker killed."""
    life = Life(tmp_path, "cpu", 10, slots=3, host=4, kept=5)
    life.run(8, clients=3, changes=4, kill_every=3)
    life.end()
    assert life.counts["answers that two versions might give"] <= 0.1 * life.counts["answers"]
    assert life.counts["answers"] > 10 and life.counts["kills"] and sum(life.counts[k] for k in ("replace", "roll back", "unload", "loaded")) > 3
