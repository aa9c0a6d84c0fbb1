"""guidellm: a benchmark of chats, completions and Responses, all of whose requests must succeed."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from record import SENTENCE, URL

ROOT = Path(__file__).resolve().parents[2]
N = 6

with tempfile.TemporaryDirectory() as folder:
    prompts, report = Path(folder, "prompts.jsonl"), Path(folder, "report.json")
    prompts.write_text("".join(json.dumps({"prompt": f"{i}: {SENTENCE}", "output_tokens_count": 16}) + "\n" for i in range(N)))
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses"):
        subprocess.run([Path(sys.executable).parent / "guidellm", "run", "--backend", f"kind=openai_http,target={URL.removesuffix('/v1')},model=json,request_format={path}",
                        "--profile", "kind=concurrent,streams=2", "--constraint", f"kind=max_requests,count={N}", "--tokenizer", f"kind=huggingface_auto,model={ROOT / 'demo/model'}",
                        "--data", f"kind=json_file,path={prompts}", "--data-loader", f"kind=pytorch,samples={N},num_workers=1,prefetch_factor=2",
                        "--output", f"kind=json,path={report}", "--disable-progress"],
                       check=True, capture_output=True, env={**os.environ, "HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1"})
        [benchmark] = json.loads(report.read_text())["benchmarks"]
        done = benchmark["metrics"]["request_totals"]
        assert (done["successful"], done["errored"]) == (N, 0), done
        print(path, done)
