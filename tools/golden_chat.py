#!/usr/bin/env python3
"""Make tests/golden/chat.json: conversations as Transformers writes them, through chat templates of the forms that
src/text/chat.c knows, and some that it does not.

    python3 -m venv venv && venv/bin/pip install -r tools/requirements.txt jinja2
    venv/bin/python tools/golden_chat.py tests/golden/chat.json

"text" is null where the template refuses the conversation. Dates are those of 4 July 2025.
"""
import datetime
import json
import sys
from pathlib import Path

import transformers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

ROOT = Path(__file__).resolve().parents[1]
NOW = 1751630400                # 2025-07-04 12:00 UTC

CHATML = """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

DEFAULT_SYSTEM = """{% for m in messages %}
{%- if loop.first and m.role != 'system' %}
{{- '<|im_start|>system\\nYou are a kind assistant.<|im_end|>\\n' }}
{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

REAL_NEWLINES = DEFAULT_SYSTEM.replace("\\n", "\n")        # in the strings of the program

TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {{- 'There are tools.' + '<|im_end|>\\n' }}
{%- elif messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou are Anna, made by nobody. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

LLAMA3 = """{% for m in messages %}
{%- set part = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' %}
{%- if loop.first %}{{ bos_token }}{% endif %}{{ part }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

LLAMA31 = """{{- bos_token }}
{%- set day = DATE %}
{%- set first = messages[0] %}
{%- if first.role == 'system' %}{% set rest = messages[1:] %}{% set system = first.content | trim %}
{%- else %}{% set rest = messages %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{{- 'Cutting Knowledge Date: December 2023\\n' }}
{{- 'Today Date: ' + day + '\\n\\n' }}
{{- system + '<|eot_id|>' }}
{%- for m in rest %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

LLAMA2 = """{%- set system = messages[0].content if messages[0].role == 'system' else none %}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{%- for m in rest %}
{%- if m.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- if loop.first and system is not none %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m.content %}
{%- else %}{% set content = m.content %}{% endif %}
{%- if m.role == 'user' %}{{- bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{%- else %}{{- ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{%- endfor %}"""

PROGRAMS = {
    "chatml": CHATML,
    "demo": (ROOT / "demo/model/chat_template.jinja").read_text(),
    "chatml, default system": DEFAULT_SYSTEM,
    "chatml, default system, real newlines": REAL_NEWLINES,
    "chatml, tools": TOOLS,
    "llama3": LLAMA3,
    "llama3.1": LLAMA31.replace("DATE", "'26 Jul 2024'"),
    "llama3.2": LLAMA31.replace("DATE", "strftime_now('%d %b %Y')"),
    "llama2": LLAMA2,
}

USER = {"role": "user", "content": "  How many lamps?\n"}
ANSWER = {"role": "assistant", "content": " Three lamps.  "}
SYSTEM = {"role": "system", "content": "You count.\n "}
MORE = {"role": "user", "content": "And kites? Drachen, 🪁\u00a0"}
CONVERSATIONS = [[USER], [SYSTEM, USER], [USER, ANSWER, MORE], [SYSTEM, USER, ANSWER, MORE],
                 [{"role": "user", "content": ""}], [USER, MORE]]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc)


def written(tokenizer, program, messages):
    try:
        return tokenizer.apply_chat_template(messages, chat_template=program, tokenize=False, add_generation_prompt=True)
    except Exception as error:      # of Jinja, which Transformers lets through
        assert "alternate" in str(error), error
        return None


def main(path):
    chat_template_utils.datetime = Clock
    model = ROOT / "tests/golden/tokenizer/llama3"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"), bos_token="<s>", eos_token="</s>")
    cases = [{"name": name, "program": program, "messages": messages, "text": written(tokenizer, program, messages)}
             for name, program in PROGRAMS.items() for messages in CONVERSATIONS]
    made = {"transformers": transformers.__version__, "now": NOW, "bos": "<s>", "eos": "</s>", "cases": cases}
    Path(path).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
