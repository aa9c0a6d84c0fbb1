#!/usr/bin/env python3
"""Make tests/golden/chat.json: what Transformers' apply_chat_template writes with chat templates of ours: one for each
construct of the language (CONSTRUCTS), and some in the forms that models use (FORMS).

    python3 -m venv venv && venv/bin/pip install transformers==5.23.0 jinja2==3.1.6
    venv/bin/python tools/golden_chat.py tests/golden/chat.json

"text" is null where it raises. Dates are those of 4 July 2025. tools/compare_templates.py compares other people's.
"""
import datetime
import json
import sys
from pathlib import Path

import jinja2
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

THINKING = """{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content is string and loop.index0 > 0 and not loop.last %}
    {{- '<think>\\n' + m.reasoning_content.strip() + '\\n</think>\\n' }}
{%- elif m.reasoning_content is defined %}{{- '<think>' ~ m.reasoning_content ~ '</think>' }}
{%- endif %}
{{- m.content | default('', true) + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

CALLS = """{%- macro as_json(x) %}{{ x | tojson(indent=1, sort_keys=true) }}{% endmacro %}
{%- set ns = namespace(n_calls=0) %}
{{- bos_token }}
{%- if tools %}<tools>
{% for tool in tools %}
{{ as_json(tool) }}
{% endfor %}
</tools>
{% endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
<result of="{{ m.name }}" n="{{ ns.n_calls }}">{{ m.content }}</result>
    {%- elif m.tool_calls %}
        {%- for call in m.tool_calls %}
            {%- set ns.n_calls = ns.n_calls + 1 %}
<call>{{ call.function.name }}({% for k, v in call.function.arguments | items %}{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %})</call>
        {%- endfor %}
    {%- else %}
<{{ m.role }}>{{ m.content }}</{{ m.role }}>
    {%- endif %}
{%- endfor %}
{%- for doc in documents or [] %}{{ doc.title | upper }}: {{ doc.text }}{% endfor %}"""

PARTS = """{%- for m in messages %}
{{- '[' ~ m['role'] ~ ']' }}
{%- if m['content'] is string %}{{ m['content'] | trim }}
{%- elif m['content'] is iterable %}
    {%- for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}
{%- else %}{{ raise_exception('no content in message ' ~ loop.index) }}
{%- endif %}
{%- endfor %}{{ '[assistant]' if add_generation_prompt }}"""

FORMS = {
    "chatml": CHATML,
    "demo": (ROOT / "demo/model/chat_template.jinja").read_text(),
    "chatml, default system": DEFAULT_SYSTEM,
    "chatml, default system, real newlines": REAL_NEWLINES,
    "chatml, tools": TOOLS,
    "llama3": LLAMA3,
    "llama3.1": LLAMA31.replace("DATE", "'26 Jul 2024'"),
    "llama3.2": LLAMA31.replace("DATE", "strftime_now('%d %b %Y')"),
    "llama2": LLAMA2,
    "thinking": THINKING,
    "tool calls": CALLS,
    "parts": PARTS,
}

# One line a construct: name, template. Variables are VALUES.
CONSTRUCTS = [line.split(" :: ", 1) for line in r"""
text :: plain text, {  } { % not a tag }} %}
print :: {{ s }}|{{ n }}|{{ f }}|{{ t }}|{{ no }}|{{ undef }}|
comment :: a{# {{ nothing }} #}b{#- c -#} d
raw :: {% raw %}{{ not }} {% run %}{% endraw %}|{%- raw -%}  {{ x }}  {%- endraw %} |
string escapes :: {{ 'a\nb\t\x41\u00e9\U0001f600\\ \q \'' }}{{ "\101\0x" }}
strings side by side :: {{ 'a' "b" 'c' }}
numbers :: {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5 }} {{ 2e3 }} {{ 1_0.2_5e-1_0 }} {{ 00 }}
float text :: {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.0 }} {{ 1e-5 }} {{ 0.0001 }} {{ -0.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ 100.0 }} {{ 2/3 }}
literals :: {{ [1, 'a', none, true, 1.0] }} {{ (1,) }} {{ () }} {{ (1, 'b') }} {{ {'a': 1, 2: [3], none: {}} }}
tuple without parentheses :: {{ 1, 'x' }}
repr of strings :: {{ ["it's", 'say "x"', 'both \'"', 'tab\t nl\n \x07 \u200b é 🪁 \\'] }}
same keys :: {{ {1: 'a', 1.0: 'b', true: 'c'} }}
precedence :: {{ 2 + 3 * 4 ** 2 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ not 1 == 2 }} {{ 'a' + 1 ~ 2 }} {{ 10 - 2 - 3 }} {{ -n|abs }}
arithmetic :: {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ true + true }}
sequences :: {{ 'ab' * 3 }} {{ [1] + [2] }} {{ (1,) * 2 }} {{ 2 * 'x' }} {{ [0] * 0 }}
comparison :: {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 == true }} {{ 'é' > 'z' }} {{ (1, 2) == [1, 2] }} {{ {'a': 1} == {'a': 1.0} }}
in :: {{ 1 in l }} {{ 'ell' in s }} {{ 'a' in d }} {{ 9 not in l }} {{ 2 in range(0, 9, 2) }} {{ 'x' in undef }} {{ '' in 'a' }}
logic :: {{ 1 and 'x' }} {{ 0 or 'y' }} {{ none and 1 }} {{ '' or [] or 'z' }} {{ not [] }} {{ not not 1 }}
truth :: {% for x in [0, 1, '', 'a', [], [0], {}, {'a': 1}, none, 0.0, undef, range(0), ()] %}{{ 'T' if x else 'F' }}{% endfor %}
inline if :: {{ 'a' if t }}|{{ 'a' if not t }}|{{ 'a' if not t else 'b' if t else 'c' }}
concatenation :: {{ 1 ~ 'a' ~ none ~ undef ~ 2.0 ~ [1] }}
attributes :: {{ d.a }} {{ d['a'] }} {{ d.items2 }} {{ nested.a.b[0].c }} {{ d.missing }} {{ no.x }} {{ s.nothing }} {{ l.0 }} {{ d['keys'] is defined }} {{ d.missing is defined }}
index :: {{ l[0] }} {{ l[-1] }} {{ l[9] }} {{ s[1] }} {{ u[-1] }} {{ l['x'] }} {{ l[1.0] }} {{ l[true] }} {{ range(5)[2] }}
slices :: {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ s[1:4] }} {{ s[::-2] }} {{ u[1:3] }} {{ l[5:1:-1] }} {{ l[-2:9] }} {{ (1, 2, 3)[:2] }} {{ range(9)[2:7:2] }} {{ s[none:2] }}
code points :: {{ u|length }} {{ u[2] }} {{ u.find('ß') }} {{ '🪁é'[0] }} {{ '🪁é'|reverse }} {{ u.upper() }} {{ u.lower() }} {{ u|title }} {{ 'ΑΣ ΣΑ'|lower }}
if :: {% if n > 9 %}a{% elif n > 5 %}b{% elif true %}c{% else %}d{% endif %}{% if undef %}e{% endif %}{% if l, %}f{% endif %}
for :: {% for x in l %}{{ x }},{% endfor %}{% for c in 'äb' %}<{{ c }}>{% endfor %}{% for k in d %}{{ k }};{% endfor %}{% for x in undef %}{{ x }}{% else %}none{% endfor %}
for with unpacking :: {% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
for with a condition :: {% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ '' if loop.last else ',' }}{% endfor %}{% for x in [] if x %}{% else %}!{% endfor %}
for asks its condition late :: {% set ns = namespace(stop=false) %}{% for x in l if not ns.stop %}{{ x }}{% set ns.stop = x == 1 %}{% endfor %}
for with else and break :: {% for x in l %}{% break %}{% else %}e{% endfor %}{% for x in l %}{% continue %}{% else %}f{% endfor %}{% for x in l %}{% else %}g{% endfor %}
loop :: {% for x in ls %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
loop.cycle and changed :: {% for x in [1, 1, 2, 2, 1] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }} {% endfor %}
loops in loops :: {% for a in [1, 2] %}{% set outer = loop %}{% for b in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
break and continue :: {% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
recursive :: {% for x in tree recursive %}{{ loop.depth }}{{ x.name }}{% if x.sub %}({{ loop(x.sub) }}){% endif %}{% endfor %}
set :: {% set a = 1 %}{% set b, c = 2, 'x' %}{% set q = 1, 2 %}{{ a }}{{ b }}{{ c }}{{ q }}
set in a loop is local :: {% set a = 1 %}{% for x in l %}{{ a }}{% set a = x %}{{ a }} {% endfor %}{{ a }}
set in an if is not :: {% set a = 1 %}{% if t %}{% set a = 2 %}{% endif %}{{ a }}
set hides a variable :: {% macro m() %}{{ s }}|{% endmacro %}{{ m() }}{% for i in [1] %}{{ n }}{% endfor %}{% set s = 'own' %}{{ m() }}{% set n = 0 %}
set block :: {% set a %}x{{ n }}y{% endset %}{{ a }}{% set b | upper | trim %} text {% endset %}[{{ b }}]
namespace :: {% set ns = namespace(a=1, b='x') %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{% set ns.c %}blk{% endset %}{{ ns.c }}{{ ns }}
namespace of a dict :: {% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}
namespace without underscores :: {% set ns = namespace() %}{% set ns._a = 1 %}
macro :: {% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m('x', c='z') }}{{ m() }}{{ m.name }}{{ m.arguments }}
macro with the rest :: {% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m(*l, **{'q': 1}) }}
macro with too much :: {% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
macro that calls itself :: {% macro m(x) %}{% if x %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
macro without end :: {% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}
call :: {% macro m(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call m(1) %}in{{ n }}{% endcall %}
call with arguments :: {% macro m() %}{% for x in l %}{{ caller(x, y=2) }}{% endfor %}{% endmacro %}{% call(x, y) m() %}{{ x }}{{ y }};{% endcall %}
filter block :: {% filter upper | replace('A', '_') %}a{{ s }}{% endfilter %}
with :: {% with a = 1, b = n %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a is defined }}
generation :: {% generation %}a{{ n }}{% endgeneration %}|{% for x in l %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}
undefined, called :: {{ undef() }}
undefined, its attribute :: {{ undef.x }}
undefined, added :: {{ 'a' + undef }}
undefined, compared :: {{ undef == undef }}{{ undef == none }}{{ undef != 1 }}{{ undef|length }}{{ undef|list }}{{ undef|string }}|
undefined, less :: {{ undef < 1 }}
none, its attribute's attribute :: {{ no.x.y }}
not a number :: {{ 'a' + 1 }}
division by zero :: {{ 1 // 0 }}
lists do not change :: {{ l.append(1) }}
dicts do not change :: {{ d.pop('a') }}
dict methods :: {{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 7) }} {{ d.keys() }} {{ d.values()|list }} {{ d.items()|list }} {{ d.copy() == d }} {{ d.items()|length }}
list methods :: {{ l.index(1) }} {{ l.count(3) }} {{ (1, 1).count(1) }}
strip :: [{{ '  a '.strip() }}][{{ 'xxaxx'.strip('x') }}][{{ 'abcba'.lstrip('ab') }}][{{ 'abcba'.rstrip('ab') }}][{{ '\u00a0\u2003a\x1c'.strip() }}]
split :: {{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ ' a b  c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a</x>b'.split('</x>')[-1] }}
starts and ends :: {{ s.startswith('He') }} {{ s.startswith(('a', 'H')) }} {{ s.endswith('x') }} {{ s.endswith(('q', '!')) }} {{ s.startswith('l', 2) }}
find :: {{ s.find('l') }} {{ s.rfind('l') }} {{ s.find('zz') }} {{ s.index('W') }} {{ s.count('l') }} {{ s.find('l', 4) }}
replace :: {{ s.replace('l', 'L') }} {{ s.replace('l', '', 1) }} {{ 'ab'.replace('', '-') }}
case :: {{ s.upper() }} {{ s.lower() }} {{ 'hello wOrld'.title() }} {{ 'hELLO'.capitalize() }} {{ 'aB'.swapcase() }} {{ 'straße'.casefold() }} {{ "they're bill's".title() }} {{ 'ß ﬁ ǆ'.title() }} {{ 'Ab cd'.istitle() }} {{ 'ǅ ΑΣ.'.swapcase() }}
join :: {{ ', '.join(ls) }} {{ ''.join(['a']) }} {{ '-'.join('abc') }}
padding :: [{{ 'a'.center(4) }}][{{ 'a'.ljust(3, '.') }}][{{ 'a'.rjust(3) }}][{{ '-7'.zfill(4) }}][{{ 'a\tb'.expandtabs(4) }}]
partition :: {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}
is methods :: {{ 'a1'.isalnum() }}{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ 'A'.isupper() }}{{ 'a'.islower() }}{{ 'Ab Cd'.istitle() }}{{ ''.isascii() }}
percent :: {{ '%s|%5s|%-5s|%05d|%.2f|%x|%%|%r|%e|%+d|%c|%o' % ('a', 'b', 'c', 42, 3.14159, 255, 'q', 12345.678, 7, 'z', 8) }} {{ '%(a)s %(b)d' % d2 }} {{ '%s' % 5 }} {{ '%s' % [1, 2] }} {{ '%*d' % (5, 3) }}
percent, too few :: {{ '%s %s' % ('a',) }}
percent, too many :: {{ 'a' % 1 }}
format :: {{ '{} {}'.format(1, 'a') }} {{ '{1}{0}{x}'.format('a', 'b', x='c') }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{!r:>4}|{:+}|{:e}|{:%}|{:_}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 'q', 5, 12345.678, 0.25, 1000) }} {{ '{0[a]} {1.a} {{}}'.format(d, d) }} {{ '{:{}}|'.format('a', 4) }} {{ '{:g} {:.3} {:s}'.format(0.1, 3.14159, 'x') }}
filters of text :: {{ s|upper }} {{ s|lower }} {{ 'a b-c (d'|title }} {{ 'hELLO'|capitalize }} [{{ ' a '|trim }}] {{ 'xax'|trim('x') }} {{ s|replace('l', 'L', 1) }} {{ 5|string }} {{ 'a b c'|wordcount }} [{{ 'a'|center(5) }}] {{ 'ab'|reverse }} {{ s|length }} {{ '%s-%s'|format(1, 2) }} {{ 'a b/é'|urlencode }} {{ {'a b': 1}|urlencode }}
indent :: {{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent('>>', blank=true) }}
truncate :: {{ 'hello big world'|truncate(9) }} {{ 'hello big world'|truncate(9, true) }} {{ 'hello big world'|truncate(9, false, '', 0) }} {{ 'hello'|truncate(4) }}
default :: {{ undef|default('x') }} {{ ''|default('x') }} {{ ''|default('x', true) }} {{ none|default('x') }} {{ undef|d }}| {{ d.q|default(l) }}
numbers by filters :: {{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '0x1f'|int(base=16) }} {{ '3.9'|int }} {{ 3.9|int }} {{ '2.5'|float }} {{ 'q'|float }} {{ -3|abs }} {{ 2.5|round }} {{ 3.14159|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 7|round }} {{ 0.5|round|int }} {{ true|int }}
filters of lists :: {{ l|first }} {{ l|last }} {{ l|sort }} {{ l|sort(reverse=true) }} {{ l|sum }} {{ l|min }} {{ l|max }} {{ l|join('-') }} {{ l|reverse|list }} {{ []|first }} {{ [1, 1, 2]|unique|list }} {{ 'ab'|list }} {{ l|length }} {{ l|count }}
sort :: {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ ld|sort(attribute='v')|map(attribute='k')|list }} {{ ld|sort(attribute='k,v')|map(attribute='v')|list }} {{ [[2], [1]]|sort }} {{ ['b', 'B', 'a']|sort }}
dictsort :: {{ d3|dictsort }} {{ d3|dictsort(true) }} {{ d3|dictsort(by='value') }} {{ d3|dictsort(reverse=true) }}
map and select :: {{ ls|map('upper')|list }} {{ ld|map(attribute='k')|join(',') }} {{ ld|map(attribute='w', default=0)|list }} {{ l|select('odd')|list }} {{ l|reject('gt', 1)|list }} {{ ld|selectattr('k', 'equalto', 'x')|list }} {{ ld|selectattr('w')|list }} {{ ld|rejectattr('w', 'defined')|list|length }} {{ [0, 1, '']|select|list }} {{ none|map('upper')|list }} {{ ['%s']|map('format', 1)|list }}
generators come once :: {% set g = l|select %}{{ g|list }}{{ g|list }}{{ 'T' if l|select('none') else 'F' }}
groupby :: {% for k, items in ld|groupby('k') %}{{ k }}:{{ items|length }} {% endfor %}{% for g in ld|groupby('v') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}
batch and slice :: {{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 0)|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }}
items :: {% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}{{ undef|items|list }}
tojson :: {{ d|tojson }} {{ [1, 1.0, true, none, 'é "q" \\ \n \x01 <&>', (1, 2), {'1': 2}]|tojson }} {{ 'é🪁'|tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': [{}, []]}|tojson(sort_keys=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ [1, {'a': 2}]|tojson(separators=(',', ':')) }} {{ 1e20|tojson }}
tojson with indent :: {{ {'a': [1, {'b': none}], 'c': {}, 'd': []}|tojson(indent=2) }} {{ [1]|tojson(indent='\t') }} {{ [1]|tojson(indent=0) }} {{ {'a': 1}|tojson(indent=1, separators=(', ', ' = ')) }}
tojson of what is none :: {{ [undef]|tojson }}
safe :: {{ '<a>'|safe }} {{ '<a>' ~ ('<b>'|safe) }} {{ ('<b>'|safe) + '<c>' }} {{ '<a>'|e }} {{ ('%s'|safe) % '<' }} {{ ('<'|safe).join(['>', 'x']) }} {{ ('<b>'|safe) is escaped }} {{ ('<b>'|safe)|replace('b', '<') }} {{ ('a'|safe)|upper + '<' }}
tests :: {% for x in [0, 1, 2, 'a', 'A', none, true, 1.5, [1], (1,), {}, undef, range(3)] %}{{ x is defined }}{{ x is none }}{{ x is string }}{{ x is number }}{{ x is integer }}{{ x is float }}{{ x is boolean }}{{ x is true }}{{ x is false }}{{ x is mapping }}{{ x is iterable }}{{ x is sequence }}{{ x is callable }} {% endfor %}
tests of values :: {{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 'a' is in ls }} {{ 'a' is not in 'b' }} {{ none is sameas none }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ n is not odd and true }} {{ n is equalto 7 }}
unknown filter behind an if :: {% if 'nope' is filter %}{{ 1|nope }}{% else %}no{% endif %}{{ 1|nope if false else 2 }}
unknown filter :: {{ 1|nope }}
range :: {{ range(3)|list }} {{ range(1, 4) }} {{ range(9, 0, -3)|list }} {{ range(0)|length }} {{ range(3)|last }}
range that is too long :: {{ range(200000)|length }}
dict :: {{ dict(a=1) }} {{ dict([('x', 1)], y=2) }} {{ dict({'q': 1}) }}
cycler and joiner :: {% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}x{{ j() }}y
strftime_now :: {{ strftime_now('%Y-%m-%d %d %b %Y %H:%M %A %j %%') }}
raise_exception :: {{ raise_exception('nothing but this') }}
raise_exception later :: {% if n == 8 %}{{ raise_exception('no') }}{% endif %}fine
tokens :: {{ bos_token }}{{ eos_token }}{{ unk_token is defined }}{{ pad_token is defined }}
arguments :: {{ messages|length }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}
print statement :: {% print n, s %}
autoescape :: {% autoescape false %}{{ '<' }}{% endautoescape %}
repr of other things :: {% macro m() %}{% endmacro %}{{ m }}{{ [m] }}{% for x in [1, 2] %}{{ loop }}{% endfor %}
deep lists :: {{ [[[[[[1]]]]]] }}{{ nested }}
""".strip("\n").split("\n")]

# White space: these have newlines, so they stand apart.
CONSTRUCTS += [["white space " + str(i), text] for i, text in enumerate([
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n  {% if true %}  \n  b\n  {% endif %}\n", "  {%+ if true %}\nb{%+ endif +%}\nc",
    "a \n {%- if true -%} \n b \n {%- endif -%} \n c", "a {{- n -}} b\n{{ n }}\nc", "x\n  {# c #}\ny {#- c -#} z\n  {#+ c +#}\nw",
    "{% set a = 1 %}\n\n{% set b = 2 -%}\n\n{{ a }}\n{{- b }}\n\n", "a\r\nb{% if true %}\r\nc{% endif %}\rd\r\n",
    "  {% raw %}\n  a {{ b }}\n  {% endraw %}\n c", "a\n\t {%- for x in l %}\n {{ x }}\n {%- endfor %}\n", "\n\n{{ n }}\n\n",
    "t {% if true %} u {% endif %} v", "{{ 'a' -}}\u00a0 b", "a\n {{ n }}{% if t %} x\n {% endif %}\n b", "a{#", "a{% raw %}"])]

BAD = ["{{ a", "{% if %}x{% endif %}", "{% if a %}", "{% endif %}", "{{ a b }}", "{% foo %}", "{{ (1 }}", "{# c", "{% raw %}x", "{{ 'a }}",
       "{% set 1 = 2 %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{{ a|b|c() }}", "{{ a is }}", "{% break %}",
       "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ ) }}", "{{ a.1b }}", "{{ }}", "{% for x l %}{% endfor %}", "{{ a ? b }}",
       "{% call x %}{% endcall %}", "{{ 1|nope }}", "{{ 1 is nope }}", "{% block a %}{% endblock", "{{ x is odd is even }}",
       "{% macro m() %}{% continue %}{% endmacro %}"]
CONSTRUCTS += [["bad syntax " + str(i), text] for i, text in enumerate(BAD)]

VALUES = {"s": "Hello, World!", "n": 7, "f": 2.5, "t": True, "no": None, "l": [3, 1, 2], "ls": ["b", "A", "c"],
          "d": {"b": 1, "a": "x", "items2": [1, 2]}, "d2": {"a": "x", "b": 5}, "d3": {"b": 2, "A": 3, "c": 1},
          "ld": [{"k": "x", "v": 2}, {"k": "y", "v": 1, "w": 5}, {"k": "x", "v": 0}], "nested": {"a": {"b": [{"c": 5}]}}, "u": "ÄÖß",
          "tree": [{"name": "a", "sub": [{"name": "b", "sub": []}, {"name": "c", "sub": [{"name": "d", "sub": []}]}]}]}

USER = {"role": "user", "content": "  How many lamps?\n"}
ANSWER = {"role": "assistant", "content": " Three lamps.  "}
SYSTEM = {"role": "system", "content": "You count.\n "}
MORE = {"role": "user", "content": "And kites? Drachen, 🪁\u00a0"}
THOUGHT = {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two."}
OTHER_THOUGHT = {"role": "assistant", "content": "Four.", "thinking": "Two and two."}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"type": "function", "id": "c1", "function": {"name": "count", "arguments": {"what": "lamps", "exact": True}}}]}
RESULT = {"role": "tool", "name": "count", "tool_call_id": "c1", "content": "3"}
TOOL = {"type": "function", "function": {"name": "count", "description": "Counts \"things\".", "parameters": {
    "type": "object", "properties": {"what": {"type": "string"}, "exact": {"type": "boolean"}}, "required": ["what"]}}}
PART = {"role": "user", "content": [{"type": "text", "text": "How "}, {"type": "text", "text": "many?"}]}


def on(*messages, **more):
    return {"messages": list(messages), "add_generation_prompt": True, **more}


CONVERSATIONS = [
    on(USER), on(SYSTEM, USER), on(USER, ANSWER, MORE), on(SYSTEM, USER, ANSWER, MORE), on({"role": "user", "content": ""}), on(USER, MORE),
    {"messages": [USER, ANSWER]}, on(USER, tools=[TOOL]), on(USER, CALL, RESULT, tools=[TOOL]), on(USER, THOUGHT, MORE),
    on(USER, THOUGHT, MORE, enable_thinking=False), on(USER, OTHER_THOUGHT), on(PART), on({"role": "critic", "content": "No."}),
    {"messages": [USER, {"role": "assistant", "content": "There are"}], "continue_final_message": True},
    {"messages": [USER, {"role": "assistant", "content": "There are  "}], "continue_final_message": True},
    {"messages": [USER, {"role": "assistant", "content": ""}], "continue_final_message": True},
    {"messages": [USER, {"role": "assistant", "content": [{"type": "text", "text": "There"}]}], "continue_final_message": True},
    {"messages": [USER, THOUGHT], "continue_final_message": "reasoning_content"},
    {"messages": [USER, CALL], "continue_final_message": True},
    on(USER, ANSWER, continue_final_message=True), on({"role": "user", "content": None}), on({"role": "user"}),
    on(USER, documents=[{"title": "a", "text": "b"}]), on(USER, bos_token="<other>"),
]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.UTC)


chat_template_utils.datetime = Clock


def reference(tokenizer, template, asked):
    """Returns what Transformers writes, as (text, None), or (None, why) if it refuses."""
    asked = json.loads(json.dumps(asked))
    try:
        return tokenizer.apply_chat_template(asked.pop("messages"), chat_template=template, tokenize=False, **asked), None
    except Exception as error:      # of Jinja and of Python, which Transformers lets through
        return None, f"{type(error).__name__}: {error}"


def main(path):
    model = ROOT / "tests/golden/tokenizer/llama3"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"), bos_token="<s>", eos_token="</s>")
    programs = [{"name": name, "program": program,
                 "cases": [{"input": asked, "text": reference(tokenizer, program, asked)[0]} for asked in CONVERSATIONS]}
                for name, program in FORMS.items()]
    values = {"messages": [USER], **VALUES}
    constructs = [{"name": name, "program": program, "text": reference(tokenizer, program, values)[0]} for name, program in CONSTRUCTS]
    made = {"transformers": transformers.__version__, "jinja2": jinja2.__version__, "now": NOW, "bos": "<s>", "eos": "</s>",
            "programs": programs, "values": values, "constructs": constructs}
    Path(path).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
