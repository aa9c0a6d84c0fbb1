#!/usr/bin/env python3
"""Write random templates of our own grammar into a folder, for tools/compare_templates.py: expressions over values of all
kinds, and nested statements with every kind of white space control.

    tools/random_templates.py FOLDER [--n 1000] [--seed 1] && tools/compare_templates.py FOLDER

The variables are those of compare_templates.py's conversation "values"; in others most are undefined.
"""
import argparse
import random
from pathlib import Path

NAMES = ("s e n z m f t no l ls d ld nested u long big tiny html num fl undef messages tools").split()
LITERALS = ["'a'", '"b c"', "''", "1", "0", "-2", "3.5", "1e3", "true", "none", "[]", "[1, 'x', none]", "(1, 2)", "()", "{}",
            "{'a': 1, 'b': [2]}", "'%s-%d'", "'{}/{}'", "'l'", "' '", "','", "range(5)", "range(1, 9, 3)"]
FILTERS = """abs;attr('a')|batch(2)|list;batch(2, '-')|list;capitalize;center(9);count;default('D');default('D', true);d;dictsort;
dictsort(true);dictsort(false, 'value');dictsort(reverse=true);e;first;float;float(1.5);forceescape;format(1);format('a', 'b');
groupby('k');groupby('k')|list;indent;indent(2, true);indent('>>', blank=true);int;int(5);int(base=16);join;join(', ');
join('-', attribute='k');last;length;list;lower;items|list;map('upper')|list;map(attribute='k')|list;map(attribute='v', default=0)|list;
map('default', 'q')|list;min;max;max(attribute='v');reject('odd')|list;rejectattr('v')|list;replace('l', 'L');replace('o', '0', 1);
reverse|list;round;round(1);round(1, 'floor');round(-1);safe;select|list;select('string')|list;selectattr('v')|list;
selectattr('k', 'equalto', 'x')|list;selectattr('v', 'defined')|list;slice(2)|list;slice(2, 'f')|list;sort;sort(reverse=true);
sort(case_sensitive=true);sort(attribute='k');string;sum;sum(attribute='v');sum(start=10);title;trim;trim('Hx');truncate(5);
truncate(5, true);truncate(7, false, '..', 0);unique|list;upper;urlencode;wordcount;tojson;tojson(indent=2);tojson(sort_keys=true);
tojson(ensure_ascii=true);tojson(separators=(',', ':'));map('int')|sum;map('length')|list""".replace("\n", "").split(";")
POSTFIX = """.upper();.lower();.title();.capitalize();.swapcase();.strip();.strip('Hx ');.lstrip();.rstrip('x');.split();.split(',');
.split(' ', 1);.rsplit(' ', 1);.split(None, 1);.splitlines();.startswith('H');.startswith(('a', 'H'));.endswith('x');.find('l');
.find('zz');.rfind('l');.index('l');.count('l');.replace('l', '_');.replace('', '.');.replace('l', '', 1);.join(['a', 'b']);.join(ls);
.format(1, 2);.format(n, f=3);.isdigit();.isalpha();.isspace();.isupper();.islower();.istitle();.isalnum();.zfill(5);.ljust(10, '.');
.rjust(10);.center(11, '*');.partition(',');.rpartition(' ');.removeprefix('He');.removesuffix('x');.expandtabs(4);.casefold();
.get('a');.get('q', 'dd');.get('q');.items();.keys();.values();.items()|list;.keys()|list;.a;.k;.b.c;.copy();.index(1);.count(1);
.append(1);.pop();.update({});.foo;.foo.bar;[0];[-1];[5];['a'];['q'];[1:];[:2];[::-1];[::2];[-2:];[1:-1];[:-1:2];[5:1:-2];.0""".replace("\n", "").split(";")
TESTS = """defined;undefined;none;not none;string;mapping;iterable;sequence;number;integer;float;boolean;true;false;odd;even;divisibleby(2);
divisibleby 3;eq 7;equalto('x');ne 1;lt 5;gt(2);ge 3;le 3;in [1, 2, 7];in 'abc';lower;upper;callable;sameas none;sameas true;escaped""".replace("\n", "").split(";")
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SPACES = ["", "\n", " ", "  \n", "\n  ", "a", " a\n", "\t", "\r\n", "b ", "x\n\n", "\n\n  ", "é\u00a0"]
IN_LOOP = ["", "{{ loop.previtem }}", "{{ loop.nextitem }}", "{{ loop.length }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(i) }}",
           "{% if loop.index == 2 %}{% break %}{% endif %}"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.choice = self.random.choice

    def atom(self):
        return self.choice(NAMES if self.random.random() < .65 else LITERALS)

    def expression(self, depth):
        x, inner = self.random.random(), lambda: self.expression(depth - 1)
        if depth <= 0 or x < .12:
            return self.atom()
        if x < .40:
            return f"{inner()}|{self.choice(FILTERS)}"
        if x < .62:     # of a name: a literal's slice is computed by Jinja's optimiser, which asks for elements in another way
            return (self.choice(NAMES) if self.random.random() < .6 else f"({self.choice(NAMES)}|{self.choice(FILTERS)})") + self.choice(POSTFIX)
        if x < .72:
            return f"({inner()}) is {self.choice(TESTS)}"
        if x < .92:
            return f"({inner()}) {self.choice(OPERATORS)} ({inner()})"
        if x < .95:
            return f"[{inner()}, {inner()}]"
        return f"({inner()} if {inner()} else {inner()})" if x < .97 else f"not {inner()}"

    def with_expressions(self):
        x, some = self.random.random(), lambda: self.expression(self.choice([1, 2, 2, 3]))
        if x < .6:
            return f"{{{{ {some()} }}}}"
        if x < .75:
            return (f"{{% for i in {some()}{self.choice(['', ' if i', ' if loop is not defined'])} %}}{{{{ i }}}}{{{{ loop.index }}}}"
                    f"{{{{ ',' if not loop.last }}}}{self.choice(IN_LOOP)}{{% else %}}none{{% endfor %}}")
        if x < .85:
            return f"{{% for a, b in {some()} %}}{{{{ a }}}}={{{{ b }}}};{{% endfor %}}"
        if x < .92:
            return f"{{% set q = {some()} %}}{{{{ q }}}}|{{{{ q is defined }}}}|{{{{ q|length if q is sequence }}}}"
        return f"{{% set ns = namespace(x={some()}) %}}{{% for i in l %}}{{% set ns.x = {some()} %}}{{% endfor %}}{{{{ ns.x }}}}"

    def tag(self, text):
        return f"{{%{self.choice(['', '', '', '-', '-', '+'])}{self.choice([' ', ''])}{text} {self.choice(['', '', '', '-', '-', '+'])}%}}"

    def printed(self, text):
        return f"{{{{{self.choice(['', '', '-', '+'])} {text} {self.choice(['', '-'])}}}}}"

    def body(self, depth):
        return "".join(self.choice(SPACES) + self.piece(depth) for _ in range(self.random.randint(0, 4))) + self.choice(SPACES)

    def leaf(self):
        name, value = self.choice(["x", "y", "i", "n", "tools"]), self.choice(["1", "'q'", "n", "x", "y ~ 'z'", "i"])
        return self.choice([self.printed(self.choice(["x", "y", "n", "tools", "loop.index", "x ~ y", "ns.v", "i"])), self.tag(f"set {name} = {value}"),
                            f"{{#{self.choice(['', '-', '+'])} c {self.choice(['', chr(10)])}{self.choice(['', '-', '+'])}#}}", self.choice(SPACES),
                            self.tag(f"set ns.v = {self.choice(['x', 'n', '2', 'ns.v ~ 0'])}")])

    def piece(self, depth):
        kind = "leaf" if depth <= 0 else self.choice(["leaf", "leaf", "leaf", "if_", "if_", "for_", "for_", "block", "macro", "raw"])
        return getattr(self, kind)(*([depth - 1] if kind not in ("leaf", "raw") else []))

    def if_(self, depth):
        other = self.choice(["", self.tag("else") + self.body(depth), self.tag("elif n") + self.body(depth)])
        return self.tag("if " + self.choice(["true", "false", "n", "x is defined", "tools", "y"])) + self.body(depth) + other + self.tag("endif")

    def for_(self, depth):
        over = self.choice(["[1, 2]", "l", "[]", "range(3)", "tools or [5]"]) + self.choice(["", " if i != 2", " if i > x|default(1)|int"])
        leave = self.choice(["", self.tag("break"), self.tag("if loop.first") + self.tag("continue") + self.tag("endif") + "k"])
        return self.tag(f"for i in {over}") + self.body(depth) + leave + self.choice(["", self.tag("else") + self.body(depth)]) + self.tag("endfor")

    def block(self, depth):
        begin, end = self.choice([("set x", "endset"), ("set y | upper", "endset"), ("set n | trim", "endset"), ("filter upper", "endfilter"),
                                  ("filter replace('a', '<>')", "endfilter"), ("with x = n, z = 1", "endwith"), ("generation", "endgeneration")])
        return self.tag(begin) + self.body(depth) + self.tag(end)

    def macro(self, depth):
        name = self.choice(["m", "q"])
        used = self.choice(["", "{{ caller() if caller }}", "{{ varargs }}", "{{ kwargs }}"])
        call = self.choice(["", self.printed(f"{name}(1)"), self.printed(f"{name}(n, 2)"), self.printed(f"{name}(y=3)"),
                            self.tag(f"call {name}(4)") + self.body(depth) + self.tag("endcall")])
        head = f"macro {name}(x{self.choice(['', ', y=0', ', tools=n'])})"
        return self.tag(head) + self.body(depth) + used + self.tag("endmacro") + call

    def raw(self):
        return "{%" + self.choice(["", "-", "+"]) + " raw " + self.choice(["", "-"]) + "%}" + self.choice(SPACES) + "{{ no }}{% x" + self.choice(SPACES) + self.tag("endraw")

    def template(self):
        if self.random.random() < .6:
            return self.with_expressions()
        return self.choice(["", "{% set ns = namespace(v=0) %}", "{% set ns = namespace(v='') -%}\n"]) + self.body(3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    maker = Maker(args.seed)
    args.folder.mkdir(parents=True, exist_ok=True)
    for i in range(args.n):
        (args.folder / f"random_{args.seed}_{i}.jinja").write_text(maker.template(), newline="")


if __name__ == "__main__":
    main()
