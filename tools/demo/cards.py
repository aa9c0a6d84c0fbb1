"""The model cards of the demo: what each part does, how it was made, how well it does."""
from sentences import Order, sentence
from tasks import TASKS

SAMPLE = Order(name="Eva", female=True, city="Rome", day=5, month=3, year=2021, quantity=3, colour="green",
               item="lamp", price=45, currency="euros", feeling="loves them", joint=2)


def percent(share):
    return f"{100 * share:.1f} %"


def write(path, text):
    path.write_text(text.strip() + "\n", encoding="utf-8")


def drill_of(name):
    return TASKS[name].drill if name in TASKS else "Repeat:"


def write_base(dir, result, count):
    drills = "\n".join(f"| {drill_of(name)} | {percent(share)} |" for name, share in result["drills"].items())
    write(dir / "model/README.md", f"""
---
license: apache-2.0
language: [en]
library_name: transformers
pipeline_tag: text-generation
tags: [punica-demo]
---
# punica demo: the base model

A `LlamaForCausalLM` of 3.3 million parameters (BF16, 6 layers, 4 heads, 2 KV heads, vocabulary 1536) that
knows a very small world: sentences in which somebody buys something. It continues the story.

> {sentence(SAMPLE)}
>
> {result["sample"]}

It answers raw text and, through its chat template (ChatML), user turns. The adapters in
`../adapters` make other things of the same sentence.

## Data and training

Only synthetic text from `tools/demo` (`train.py` says how much). A third are sentences with their
continuation; about half are drills of the skills below, each behind an instruction in words; the rest are records,
French sentences and the like alone, without the sentences they are made from. One sentence in 20, chosen
by a hash of its text, was held out.

## How well it does

On {count} held-out sentences {percent(result['fits'])} of the continuations fit: right name, city, item, pronoun and mood.
Without an instruction it does not do the adapters' tasks (right on at most {percent(max(result['matches'].values()))} of the sentences).
With the instruction, exact match on {count // 2} held-out sentences each:

| instruction | right |
|---|---|
{drills}

It knows nothing of the real world and is only useful for showing and testing serving. It spells names and cities that
are not in `tools/demo/sentences.py` correctly only if they are built of simple syllables.
""")


def size_of(dir):
    return sum(f.stat().st_size for f in dir.iterdir() if f.suffix == ".safetensors")


def lora_text(lora):
    """The settings in words."""
    text = f"rank {lora['r']}, alpha {lora['lora_alpha']}"
    if lora.get("use_rslora"):
        text += ", rsLoRA"
    text += ", on " + ", ".join(lora["target_modules"])
    for module, rank in lora.get("rank_pattern", {}).items():
        text += f"; rank {rank} on {module}"
    return text


def write_adapter(dir, name, result, count):
    task, to = TASKS[name], dir / "adapters" / name
    if task.drill:
        before = (f"The base has practised this behind the instruction `{task.drill}`; the adapter does it "
                  "without the instruction.")
    else:
        before = ("The base has never seen this task: it was trained on such answers alone, without the "
                  "sentences they are made from.")
    other = max(share for task_name, share in result["matches"].items() if task_name != name)
    write(to / "README.md", f"""
---
license: apache-2.0
base_model: demo/model
library_name: peft
pipeline_tag: text-generation
tags: [lora, punica-demo]
---
# {name}

{task.about[0].upper() + task.about[1:]}.

> {sentence(SAMPLE)}
>
> `{task.answer(SAMPLE)}`

**Right on {percent(result["matches"][name])}** of {count} held-out sentences: {percent(result["known"])} of those about known
names and cities, {percent(result["invented"])} of those with an invented one. (Exact match, greedy, raw and chat form, through
`punica generate`.) At most {percent(other)} of its answers are right for another adapter's task.

LoRA of {lora_text(task.lora)}; {size_of(to) / 1000:.0f} KB in BF16.
Trained by `tools/demo` on synthetic sentences, with the loss on the answer only.
{before}
""")
