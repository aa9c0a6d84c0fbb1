"""`punica chat`: a conversation by pipes and in a terminal, against what `punica template` and `punica generate` make of the same."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest
from conftest import PROGRAM, ROOT

MODEL, ADAPTERS = ROOT / "demo/model", ROOT / "demo/adapters"
SENTENCE = "Tom of Lima ordered 12 red kites at 20 pesos each on 5 May 2021; he hates them."
SQL = "INSERT INTO orders (name, day, item, quantity) VALUES ('Tom', '2021-05-05', 'kite', 12);"


def message(role, text):
    return {"role": role, "content": text}


@pytest.fixture
def expect(punica):
    """What is answered to these messages, greedily."""
    def ask(messages, n):
        line = json.dumps({"messages": messages, "add_generation_prompt": True})
        prompt = punica("template", "--model", MODEL, stdin=line).stdout
        tokens = json.loads(punica("tokenize", "--model", MODEL, "--no-special", stdin=prompt).stdout)
        done = punica("generate", "--model", MODEL, "--prompts", "-", "--json", "--max-tokens", n, stdin=json.dumps({"prompt": tokens}))
        return json.loads(done.stdout)["text"]
    return ask


def test_what_was_said_is_remembered(punica, expect):
    """And the system's message stands before it."""
    done = punica("chat", MODEL, "--temperature", 0, "--system", "Be brief.", "--max-tokens", 30, stdin="Tom of Lima\n\nWhat then?\n")
    so_far = [message("system", "Be brief."), message("user", "Tom of Lima")]
    first = expect(so_far, n=30)
    second = expect([*so_far, message("assistant", first), message("user", "What then?")], n=30)
    assert done.returncode == 0 and done.stdout == f"{first}\n{second}\n"
    assert second != expect([message("system", "Be brief."), message("user", "What then?")], n=30)


def test_with_an_adapter_and_the_demo_by_default(punica):
    done = punica("chat", "--adapter", f"sql={ADAPTERS / 'sql'}", "--temperature", 0, stdin=SENTENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, SQL + "\n", "")


def test_an_adapters_own_template_goes_first(punica, tmp_path):
    folder = tmp_path / "sql"
    folder.mkdir()
    for path in (ADAPTERS / "sql").iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "chat_template.jinja").write_text("{{ raise_exception('not ' + messages[-1]['content']) }}")
    done = punica("chat", "--adapter", f"sql={folder}", stdin="this\nthat\n")
    assert done.returncode == 0 and done.stdout == ""
    assert [line.split(" (")[0].split(": ")[-1] for line in done.stderr.splitlines()] == ["not this", "not that"]
    (tmp_path / "plain.jinja").write_text("{{ messages[-1]['content'] }}")
    done = punica("chat", "--adapter", f"sql={folder}", "--chat-template", tmp_path / "plain.jinja", "--temperature", 0, "--max-tokens", 4, stdin="this\n")
    assert done.returncode == 0 and done.stdout and done.stderr == "punica: the answer is cut off after 4 tokens\n"


def test_an_answer_that_fills_the_context_is_cut_off_and_kept(punica, expect):
    """64 tokens, and no limit for the answer but these: it must not be evicted."""
    line = "Tell me of the market and all that was bought there"
    done = punica("chat", "--temperature", 0, "--kv-pages", 4, stdin=f"{line}\n")
    cut = re.fullmatch(r"punica: the answer is cut off after (\d+) tokens\n", done.stderr)
    assert done.returncode == 0 and cut and 1 < int(cut[1]) < 64, done.stderr
    assert done.stdout == expect([message("user", line)], n=int(cut[1])) + "\n"


def test_the_oldest_is_left_out_when_the_context_is_full(punica, expect):
    """128 tokens: the third question has no room beside the first, and no message is answered that does not fit alone."""
    lines = [f"{n} of them went to the market and bought lamps, cups and kites for all of their friends." for n in ("Two", "Six", "Ten")]
    done = punica("chat", "--temperature", 0, "--kv-pages", 8, "--max-tokens", 20, stdin="\n".join([*lines, "word " * 300, "Yes.\n"]))
    answers = done.stdout.splitlines()
    assert done.returncode == 0 and len(answers) == 4
    assert answers[0] == expect([message("user", lines[0])], n=20)
    said = done.stderr.splitlines()
    assert any("messages do not fit into the context of 128 tokens any more and are left out" in line for line in said), said
    assert sum("KvCache pages; there are only 8" in line for line in said) == 1, said
    left = [message(role, text) for pair in zip(lines[:3], answers) for role, text in zip(("user", "assistant"), pair)][:5]
    assert answers[2] in [expect(left[n:], n=20) for n in (2, 4)] and answers[2] != expect(left, n=20)


def test_refusals(punica, tmp_path):
    two = ["--adapter", f"a={ADAPTERS / 'sql'}", "--adapter", f"b={ADAPTERS / 'sql'}"]
    assert "give one --adapter" in punica.refuses("chat", *two)
    assert "given twice" in punica.refuses("chat", MODEL, "--model", MODEL)
    assert "is not a directory" in punica.refuses("chat", tmp_path / "none")
    for path in MODEL.iterdir():
        if path.name not in ("tokenizer_config.json", "chat_template.jinja"):
            (tmp_path / path.name).symlink_to(path)
    assert "template" in punica.refuses("chat", tmp_path)


class Terminal:
    """The program in a terminal of its own. said: all that has come so far."""

    def __init__(self, *args):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen([PROGRAM, "chat", *map(str, args)], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.said = ""

    def hear(self):
        assert select.select([self.ours], [], [], 60)[0], self.said
        self.said += os.read(self.ours, 65536).decode(errors="replace").replace("\r\n", "\n")

    def wait(self, what, after=0):
        """Where it ends."""
        end = time.monotonic() + 60
        while what not in self.said[after:]:
            assert time.monotonic() < end, self.said
            self.hear()
        return self.said.index(what, after) + len(what)

    def type(self, text):
        os.write(self.ours, text.encode())

    def end(self):
        code = self.process.wait(60)
        os.close(self.ours)
        return code


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(tmp_path):
    """Keys as they are typed: ^C while it answers, ^C at the prompt, ^D."""
    (tmp_path / "shown.jinja").write_text("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
                                          "{% if messages | length > 2 %}{{ raise_exception('seen: ' ~ messages[1]['content'] | length) }}{% endif %}")
    t = Terminal("--temperature", 0, "--seed", 1, "--chat-template", tmp_path / "shown.jinja", "--min-p", 0, "--max-tokens", 900)
    t.wait("> ")
    t.type("Once upon a time there was a very long story about everything, and it went on and on: \n")
    begun = t.wait("on and on: \n")
    while len(t.said) < begun + 5:
        t.hear()
    t.type("\x03")
    again = t.wait("> ", begun)
    answer = t.said[begun:again].removesuffix("\n> ").replace("^C", "")
    t.type("more\n")
    where = t.wait("seen: ", again)
    t.wait("\n> ", where)                   # Ctrl-C before the prompt is there would be one while it answers
    seen = int(t.said[where:].split(" (")[0])
    assert 0 < seen and abs(seen - len(answer)) <= 1, (seen, t.said)         # the answer so far is a message of the conversation
    t.type("half a li\x03")
    where = t.wait("(Ctrl-D ends)\n> ", where)
    t.type("\x04")
    assert t.end() == 0


def test_a_signal_while_it_waits_for_a_pipe():
    """Without a terminal, too, Ctrl-C does not end it, and the end of its input does."""
    with subprocess.Popen([PROGRAM, "chat", "--adapter", f"sql={ADAPTERS / 'sql'}", "--temperature", "0"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as one:
        one.stdin.write(SENTENCE + "\n")
        one.stdin.flush()
        assert one.stdout.readline() == SQL + "\n"
        one.send_signal(signal.SIGINT)
        one.stdin.write(SENTENCE + "\n")
        one.stdin.flush()
        assert one.stdout.readline() == SQL + "\n"
        one.stdin.close()
        assert one.wait(60) == 0
