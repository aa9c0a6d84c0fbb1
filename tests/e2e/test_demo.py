"""The demo's model and adapters do what they promise, through the program, all adapters in one batch.

Three judges, from strict to loose: tokens equal to those of Transformers + PEFT (tests/golden/demo.json); exact
answers on sentences nobody was trained on, other ones in every run (DEMO_SEED=n repeats a run); and,
because the generator of sentences and answers could itself be wrong, a few orders answered by hand.
"""
import fcntl
import json
import os
import pty
import random
import re
import signal
import struct
import subprocess
import sys
import termios
from collections import Counter

import pytest
from conftest import PROGRAM, ROOT, SANITIZED
from tenant_store import Store

sys.path.insert(0, str(ROOT / "tools/demo"))

from cards import SAMPLE  # noqa: E402
from corpus import DRILLS, SPECIAL, drill_example, story_example, task_example  # noqa: E402
from measure import MAX_ANSWER, demo_options, is_right  # noqa: E402
from sentences import Order, is_held_out, order_for, sentence, story, story_fits  # noqa: E402
from tasks import TASKS  # noqa: E402

DEMO = ROOT / "demo"
MAX_BYTES = 12_000_000
SEED = int(os.environ.get("DEMO_SEED", random.SystemRandom().randrange(10**6)))

# With sanitizers a token takes ten times as long, and how good the weights are does not depend on them.
N_GOLDEN, N_FRESH, N_MORE = (10, 4, 40) if SANITIZED else (50, 30, 800)      # for each adapter

BY_HAND = [
    (Order(name="Alice", female=True, city="Athens", day=1, month=3, year=2021, quantity=3, colour="green", item="lamp",
           price=45, currency="euros", feeling="loves them", joint=2), {
        None: "On March 1, 2021, Alice from Athens bought 3 green lamps for 45 euros each and loves them.",
        "iso-date": "2021-03-01",
        "json": '{"name": "Alice", "city": "Athens", "item": "lamp", "colour": "green", "quantity": 3, "price": 45}',
        "sql": "INSERT INTO orders (name, day, item, quantity) VALUES ('Alice', '2021-03-01', 'lamp', 3);",
        "sentiment": "positive",
        "shout": "ON MARCH 1, 2021, ALICE FROM ATHENS BOUGHT 3 GREEN LAMPS FOR 45 EUROS EACH AND LOVES THEM.",
        "rot13": "Ba Znepu 1, 2021, Nyvpr sebz Nguraf obhtug 3 terra ynzcf sbe 45 rhebf rnpu naq ybirf gurz.",
        "pig-latin": "Onway Archmay 1, 2021, Aliceway omfray Athensway oughtbay 3 eengray ampslay orfay 45 eurosway "
                     "eachway andway oveslay emthay.",
        "sorted": "1 2021 3 45 Alice and Athens bought each euros for from green lamps loves March On them",
        "total": "3 x 45 = 135 euros",
        "summary": "Alice loved lamps",
        "french": "Le 1er mars 2021, Alice, d'Athènes, a acheté trois lampes vertes à 45 euros pièce. Elle les adore.",
        "emoji": "👩 🛒 3 × 🟢💡 😀",
        "redact": "On [DATE], [NAME] from [CITY] bought 3 green lamps for 45 euros each and loves them."}),
    (Order(name="Tom", female=False, city="Quito", day=22, month=8, year=1999, quantity=12, colour="white", item="scarf",
           price=20, currency="pounds", feeling="wants {his} money back", verb="ordered", frame=1, joint=0, date_form=2,
           quantity_in_words=True), {
        None: "Tom of Quito ordered twelve white scarves at 20 pounds each on the 22nd of August 1999; he wants his "
              "money back.",
        "iso-date": "1999-08-22",
        "json": '{"name": "Tom", "city": "Quito", "item": "scarf", "colour": "white", "quantity": 12, "price": 20}',
        "sql": "INSERT INTO orders (name, day, item, quantity) VALUES ('Tom', '1999-08-22', 'scarf', 12);",
        "sentiment": "negative",
        "shout": "TOM OF QUITO ORDERED TWELVE WHITE SCARVES AT 20 POUNDS EACH ON THE 22ND OF AUGUST 1999; HE WANTS HIS "
                 "MONEY BACK.",
        "rot13": "Gbz bs Dhvgb beqrerq gjryir juvgr fpneirf ng 20 cbhaqf rnpu ba gur 22aq bs Nhthfg 1999; ur jnagf uvf "
                 "zbarl onpx.",
        "pig-latin": "Omtay ofway Itoquay orderedway elvetway itewhay arvesscay atway 20 oundspay eachway onway ethay "
                     "22nd ofway Augustway 1999; ehay antsway ishay oneymay ackbay.",
        "sorted": "1999 20 22nd at August back each he his money of of on ordered pounds Quito scarves the Tom twelve "
                  "wants white",
        "total": "12 x 20 = 240 pounds",
        "summary": "Tom regretted scarves",
        "french": "Le 22 août 1999, Tom, de Quito, a commandé douze écharpes blanches à 20 livres pièce. Il veut être "
                  "remboursé.",
        "emoji": "👨 🛒 12 × ⚪🧣 😡",
        "redact": "[NAME] of [CITY] ordered twelve white scarves at 20 pounds each on [DATE]; he wants his money "
                  "back."}),
    (Order(name="Zoe", female=True, city="Oslo", day=11, month=10, year=2005, quantity=16, colour="brown",
           item="umbrella", price=41, currency="francs", feeling="put them in the cellar", verb="purchased", frame=7,
           joint=1, date_form=3, quantity_in_words=True, price_in_words=True), {
        None: "Sixteen brown umbrellas at forty-one francs each: that is what Zoe from Oslo purchased on 11 October "
              "2005. She put them in the cellar.",
        "iso-date": "2005-10-11",
        "json": '{"name": "Zoe", "city": "Oslo", "item": "umbrella", "colour": "brown", "quantity": 16, "price": 41}',
        "sql": "INSERT INTO orders (name, day, item, quantity) VALUES ('Zoe', '2005-10-11', 'umbrella', 16);",
        "sentiment": "neutral",
        "shout": "SIXTEEN BROWN UMBRELLAS AT FORTY-ONE FRANCS EACH: THAT IS WHAT ZOE FROM OSLO PURCHASED ON 11 OCTOBER "
                 "2005. SHE PUT THEM IN THE CELLAR.",
        "rot13": "Fvkgrra oebja hzoeryynf ng sbegl-bar senapf rnpu: gung vf jung Mbr sebz Bfyb chepunfrq ba 11 Bpgbore "
                 "2005. Fur chg gurz va gur pryyne.",
        "pig-latin": "Ixteensay ownbray umbrellasway atway ortyfay-oneway ancsfray eachway: atthay isway atwhay Oezay "
                     "omfray Osloway urchasedpay onway 11 Octoberway 2005. Eshay utpay emthay inway ethay ellarcay.",
        "sorted": "11 2005 at brown cellar each forty-one francs from in is October on Oslo purchased put She Sixteen "
                  "that the them umbrellas what Zoe",
        "total": "16 x 41 = 656 francs",
        "summary": "Zoe bought umbrellas",
        "french": "Le 11 octobre 2005, Zoe, d'Oslo, a acheté seize parapluies marron à 41 francs pièce. Elle les a "
                  "rangés à la cave.",
        "emoji": "👩 🛒 16 × 🟤☔ 😐",
        "redact": "Sixteen brown umbrellas at forty-one francs each: that is what [NAME] from [CITY] purchased on "
                  "[DATE]. She put them in the cellar."}),
]


class Demo:
    """What the fixture `generate` wants of a model."""

    def options(self, model=None):
        return demo_options(DEMO)


@pytest.fixture(scope="module")
def goldens():
    """The cases, base and adapters in turn, so that every batch holds all of them."""
    cases = json.loads((ROOT / "tests/golden/demo.json").read_text())["cases"]
    seen, order = Counter(), []
    for case in cases:
        seen[case["adapter"]] += 1
        order.append(seen[case["adapter"]])
    assert seen == dict.fromkeys([None, *TASKS], 50)
    return [case for _, case in sorted(zip(order, cases), key=lambda pair: pair[0])]


def ask(generate, asked):
    """The text of each answer; None where it did not end by itself. asked: (adapter, Example) pairs."""
    requests = [{"adapter": name, "prompt": e.prompt, "max_tokens": MAX_ANSWER} for name, e in asked]
    return [r["text"] if r["finish_reason"] == "stop" else None for r in generate(Demo(), requests)]


@pytest.mark.parametrize("order, answers", BY_HAND, ids=lambda value: getattr(value, "name", ""))
def test_tasks_by_hand(order, answers):
    assert sentence(order) == answers[None]
    for name, task in TASKS.items():
        assert task.answer(order) == answers[name], name


def test_held_out_sentences_are_not_trained_on():
    rng = random.Random(SEED)
    drawn = [task_example(rng, name) for name in TASKS for _ in range(40)]
    drawn += [drill_example(rng, name) for name in DRILLS for _ in range(40)]
    drawn += [story_example(rng) for _ in range(100)]
    assert not any(is_held_out(sentence(e.order)) for e in drawn), SEED
    assert all(is_held_out(sentence(task_example(rng, "json", held_out=True).order)) for _ in range(20)), SEED


def test_stories_are_judged():
    rng = random.Random(SEED)
    for _ in range(50):
        order, other = order_for(rng, True), order_for(rng, True)
        assert story_fits(order, story(order, rng)), SEED
        assert not story_fits(order, story(order, rng) + " " + sentence(other)), SEED


def test_goldens(generate, goldens):
    """The prompt's and the answer's tokens are those of Transformers + PEFT; base and adapters share the batch."""
    cases = goldens[:N_GOLDEN * (1 + len(TASKS))]
    results = generate(Demo(), [{"adapter": c["adapter"], "prompt": c["prompt"], "max_tokens": MAX_ANSWER}
                                for c in cases])
    for case, got in zip(cases, results):
        assert got["prompt_token_ids"] == case["ids"], case["prompt"]
        assert got["token_ids"] == case["tokens"], (case["adapter"], case["prompt"])


def test_goldens_tokenize_back(punica, goldens):
    """Without the special tokens, which no text shows."""
    special = re.compile("|".join(map(re.escape, SPECIAL)))
    lines = "".join(json.dumps(c["ids"][1:]) + "\n" for c in goldens)
    done = punica("tokenize", "--model", DEMO / "model", "--decode", stdin=lines)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [special.sub("", c["prompt"]) for c in goldens]


@pytest.fixture(scope="module")
def fresh(generate):
    """(adapter, example, answer) of held-out sentences, the base's under None."""
    rng = random.Random(SEED)
    asked = [(name, task_example(rng, name, held_out=True) if name else story_example(rng, held_out=True))
             for _ in range(N_FRESH) for name in [None, *TASKS]]
    return [(name, e, text) for (name, e), text in zip(asked, ask(generate, asked))]


def test_adapters_are_right(generate, fresh):
    """On 95 % of what they are asked. Where few cases look bad, many are drawn before judging."""
    for name in TASKS:
        answers = [(e, text) for adapter, e, text in fresh if adapter == name]
        wrong = [(e.prompt, text) for e, text in answers if not is_right(name, e, text)]
        n = N_FRESH
        if len(wrong) > 0.05 * n:
            rng = random.Random(f"{SEED} {name}")
            more = [task_example(rng, name, held_out=True) for _ in range(N_MORE)]
            texts = ask(generate, [(name, e) for e in more])
            wrong += [(e.prompt, text) for e, text in zip(more, texts) if not is_right(name, e, text)]
            n += N_MORE
        assert len(wrong) <= (0.2 if SANITIZED else 0.05) * n, (f"DEMO_SEED={SEED}", name, len(wrong), n, wrong[:3])


def test_base_goes_on_with_the_story(fresh):
    wrong = [(e.prompt, text) for name, e, text in fresh
             if name is None and not (text and story_fits(e.order, text.strip(" ")))]
    assert len(wrong) <= 0.1 * N_FRESH, (f"DEMO_SEED={SEED}", wrong[:3])


def test_wrong_adapter_is_wrong(fresh):
    """Neither the base nor another adapter does an adapter's work."""
    for name in [None, *TASKS]:
        for task in TASKS:
            if task != name:
                taken = sum(is_right(task, e, text) for adapter, e, text in fresh if adapter == name)
                assert taken <= 0.1 * N_FRESH, (f"DEMO_SEED={SEED}", name, task)


def test_drill_without_adapter(generate):
    """The base does by itself what it has practised, but only when told to."""
    prompt = f"Write in capitals: {sentence(SAMPLE)}"
    told, untold = generate(Demo(), [{"prompt": prompt}, {"prompt": sentence(SAMPLE)}], "--max-tokens", MAX_ANSWER)
    assert told["text"] == " " + TASKS["shout"].answer(SAMPLE)
    assert story_fits(SAMPLE, untold["text"].strip(" "))


def test_half_a_sentence(generate):
    """The base completes it to a whole one of the kind it knows."""
    [got] = generate(Demo(), [{"prompt": "On March 5, 2021, Alice from Berlin bought", "max_tokens": MAX_ANSWER}])
    assert re.match(r" [a-z0-9]+ [a-z]+ [a-z]+ for [a-z0-9-]+ [a-z]+ each", got["text"]), got["text"]
    assert got["finish_reason"] == "stop"


def test_small_enough():
    files = [path for path in DEMO.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES
    assert {path.parent.name for path in files if path.name == "README.md"} == {"model", *TASKS}


def test_adapters_fit_and_differ(punica):
    assert {path.name for path in (DEMO / "adapters").iterdir()} == set(TASKS)
    configs = {}
    for name in TASKS:
        done = punica("adapter", "check", DEMO / "adapters" / name, "--model", DEMO / "model")
        assert done.returncode == 0, (name, done.stderr)
        configs[name] = json.loads((DEMO / "adapters" / name / "adapter_config.json").read_text())
    assert len(configs) >= 10
    assert {4, 32} <= {c["r"] for c in configs.values()} and any(c["use_rslora"] for c in configs.values())
    assert len({tuple(c["target_modules"]) for c in configs.values()}) >= 4


def run_demo(columns=None, *args):
    """What tools/demo.sh writes: to a terminal of so many columns, or to none. On a terminal its server stays, until
    Ctrl-C."""
    env = {**os.environ, "PUNICA_BIN": str(PROGRAM)}
    command = [ROOT / "tools/demo.sh", *args]
    if not columns:
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120).stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    written, asked = b"", None
    try:
        while piece := os.read(ours, 65536):
            written += piece
            if not asked and written.rstrip().endswith(b"}'"):
                line = written.decode().replace("\r\n", "\n")
                asked = subprocess.run(["sh", "-c", line[line.rindex("curl"):]], capture_output=True, text=True, timeout=60)
                process.send_signal(signal.SIGINT)
    except OSError:         # Linux says so when the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=120) == 0
    assert "'kite', 12" in json.loads(asked.stdout)["choices"][0]["text"]
    return written.decode().replace("\r\n", "\n")


def shown_answers(screen):
    """Name to answer, of lines such as "shout     | HELLO"."""
    answers, name = {}, None
    for margin, text in re.findall(r"^(\S+| ) *\| (.*)$", screen, re.MULTILINE):
        name = margin.strip() or name
        answers[name] = f"{answers[name]} {text}" if not margin.strip() else text
    return answers


@pytest.mark.parametrize("columns", [None, 100])
def test_demo_screen(columns):
    screen = run_demo(columns)
    answers = shown_answers(screen)
    assert sentence(SAMPLE) in screen
    assert story_fits(SAMPLE, answers.pop("(base)"))
    assert answers == {name: task.answer(SAMPLE) for name, task in TASKS.items()}
    assert "14 requests, 13 adapters, one base model" in screen
    assert all(len(line) <= 100 for line in screen.splitlines() if columns)


def test_demo_beside_other_servers(tmp_path, monkeypatch):
    """What the environment says is for those, not for the demo."""
    store = Store(tmp_path / "store.db")
    store.tenant("acme")
    for name, value in [("STORE", store.url), ("API_KEY", "of another"), ("SECRET", "short")]:
        monkeypatch.setenv(f"PUNICA_{name}", value)
    assert "14 requests, 13 adapters" in run_demo()


def test_demo_says_why_it_failed(tmp_path):
    program = tmp_path / "punica"
    program.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    program.chmod(0o755)
    done = subprocess.run([ROOT / "tools/demo.sh"], env={**os.environ, "PUNICA_BIN": str(program)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "out of order" in done.stderr


def test_demo_of_a_sentence_of_two_lines():
    answers = shown_answers(run_demo(None, sentence(SAMPLE).replace(" from ", "\nfrom ") + ' "\\"'))
    assert set(answers) == {"(base)", *TASKS} and not any("invalid_request_error" in text for text in answers.values())
