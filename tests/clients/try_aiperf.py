"""aiperf: a benchmark of chats and completions as streams, all of whose requests must succeed."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from record import URL

ROOT = Path(__file__).resolve().parents[2]
N = 6

for kind in ("chat", "completions"):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([Path(sys.executable).parent / "aiperf", "profile", "-m", "json", "-u", URL.removesuffix("/v1"), "--endpoint-type", kind, "--streaming",
                        "--tokenizer", ROOT / "demo/model", "--concurrency", "2", "--request-count", str(N), "--synthetic-input-tokens-mean", "40",
                        "--output-tokens-mean", "16", "--num-dataset-entries", str(N), "--workers-max", "1", "--artifact-dir", folder, "--ui", "none"],
                       check=True, capture_output=True)
        [report] = Path(folder).rglob("profile_export_aiperf.json")
        told = json.loads(report.read_text())
        assert told["request_count"]["avg"] == N and not told.get("error_summary"), told
        print(kind, told["request_count"], told["time_to_first_token"]["avg"])
