"""llm, the command: a prompt, a schema."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from record import EVA, SENTENCE, URL, Record

with tempfile.TemporaryDirectory() as home:
    Path(home, "extra-openai-models.yaml").write_text(
        f"- model_id: json\n  model_name: json\n  api_base: {URL}\n  supports_schema: true\n  supports_tools: true\n")
    env = {**os.environ, "LLM_USER_PATH": home, "OPENAI_API_KEY": "none"}

    def llm(*args):
        return subprocess.run([Path(sys.executable).parent / "llm", "-m", "json", "-o", "temperature", "0", *args, SENTENCE], env=env, check=True,
                              capture_output=True, text=True).stdout

    schema = json.dumps(Record.model_json_schema())
    for more in ([], ["--no-stream"]):
        assert "Eva" in llm(*more)
        got = llm("--schema", schema, *more)
        assert Record(**json.loads(got)) == EVA, got
