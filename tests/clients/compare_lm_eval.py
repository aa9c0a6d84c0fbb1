#!/usr/bin/env python3
"""lm-eval's loglikelihoods through `punica serve` (its model `local-completions`) and through Transformers + PEFT (its model
`hf`), of the demo model and some of its adapters: the same numbers. By hand, since lm-eval and torch are heavy:

    pip install 'lm-eval[api,hf]' peft
    tests/clients/compare_lm_eval.py [PROGRAM]          # build/punica

Two tasks are made here, without any download: multiple choice (loglikelihood) and texts (loglikelihood_rolling).
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OPENAI_API_KEY="none")

from lm_eval import simple_evaluate  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = [None, "sql", "french"]
NAMES, TOWNS, THINGS = ["Eva", "Tom", "Ada", "Max"], ["Rome", "Oslo", "Paris"], ["lamps", "chairs", "books", "cups"]
HOW = {"max_length": 512, "add_bos_token": True}        # left to themselves, the two disagree about the first token
WORST = 2e-3            # of a loglikelihood: float32 on both sides, added up over a continuation

CHOICE = """task: punica_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""
TEXTS = """task: punica_texts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list: [{{metric: word_perplexity}}]
"""


def sentences():
    for i in range(12):
        name, town, thing = NAMES[i % 4], TOWNS[i % 3], THINGS[i * 7 % 4]
        yield f"On March {i + 1}, 2021, {name} from {town} bought {i % 5 + 2} {thing}", [f" for {10 + i} euros each.", " in Rome.", f" and loves {thing}.", " 7 7 7"]


def write_tasks(folder):
    choice = [{"question": text, "choices": choices, "answer": i % 4} for i, (text, choices) in enumerate(sentences())]
    texts = [{"text": " ".join(text + choices[i % 2] for text, choices in list(sentences())[i:i + 1 + 5 * i])} for i in range(6)]
    for name, yaml, docs in (("choice", CHOICE, choice), ("texts", TEXTS, texts)):
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(d) + "\n" for d in docs))
        (folder / f"{name}.yaml").write_text(yaml.format(file=file))


def numbers(model, args, tasks):
    """Of each sample, the loglikelihoods it was judged by, and whether they are the greedy choice."""
    done = simple_evaluate(model=model, model_args=args, tasks=["punica_choice", "punica_texts"], task_manager=tasks, batch_size=8,
                           bootstrap_iters=0, random_seed=0, numpy_random_seed=0, torch_random_seed=0, fewshot_random_seed=0)
    return {task: [[tuple(r) if isinstance(r, (list, tuple)) else (r,) for r in sample["filtered_resps"]]
                   for sample in sorted(samples, key=lambda s: s["doc_id"])] for task, samples in done["samples"].items()}


def compare(ours, theirs):
    """How many numbers, and the largest difference; what is greedy must be equal."""
    n, worst = 0, 0
    for task in theirs:
        assert len(ours[task]) == len(theirs[task]) > 0, task
        for a, b in zip(ours[task], theirs[task]):
            for x, y in zip(a, b, strict=True):
                n, worst = n + 1, max(worst, abs(float(x[0]) - float(y[0])))
                assert x[1:] == y[1:], (task, a, b)
    return n, worst


def serve(program):
    server = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--model", ROOT / "demo/model", "--adapters", ROOT / "demo/adapters",
                               "--served-model-name", "demo"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return server, found[0]
    sys.exit(f"{program} does not serve")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/punica"
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        write_tasks(Path(folder))
        tasks = TaskManager(include_path=folder, include_defaults=False)
        server, url = serve(program)
        try:
            for adapter in ADAPTERS:
                ours = numbers("local-completions", {"model": adapter or "demo", "base_url": f"{url}/v1/completions", "tokenizer": str(ROOT / "demo/model"),
                                                     "tokenizer_backend": "huggingface", "num_concurrent": 4, **HOW}, tasks)
                peft = {"peft": str(ROOT / "demo/adapters" / adapter)} if adapter else {}
                theirs = numbers("hf", {"pretrained": str(ROOT / "demo/model"), "dtype": "float32", "device": "cpu", **HOW, **peft}, tasks)
                n, worst = compare(ours, theirs)
                failed |= worst > WORST
                print(f"{adapter or 'base'}: {n} loglikelihoods, largest difference {worst:.2g}")
        finally:
            server.terminate()
            server.wait()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
