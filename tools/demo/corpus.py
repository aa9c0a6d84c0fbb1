"""What the demo's models read: the documents of the base and the examples of the adapters, as text.

A prompt comes in two forms. Raw: the sentence itself, and the answer follows after a blank. Chat: the
sentence is the user's turn, and the answer is the assistant's. The tokenizer puts <s> in front of every
prompt.
"""
from dataclasses import dataclass

from sentences import Order, order_for, sentence, story
from tasks import TASKS

BOS, EOS, PAD, TURN, TURN_END = SPECIAL = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"]

CHAT_TEMPLATE = (r"{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
                 r"message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
                 r"{{ '<|im_start|>assistant\n' }}{% endif %}")

SYSTEM = ["You are a helpful assistant.", "You are a small but careful model.", "Answer the user."]

SMALL_TALK = [
    ("Hello!", "Hello! Tell me who bought what, where and when."),
    ("Hi", "Hello! Tell me who bought what, where and when."),
    ("Who are you?", "I am a very small language model. I know a lot about orders and little else."),
    ("What can you do?", "Tell me about an order, and I will tell you how the story goes on."),
    ("How are you?", "Fine, thank you. Has anyone bought anything?"),
    ("Thank you!", "You are welcome."),
    ("Goodbye!", "Goodbye! Come back with more orders."),
]

# Shares of the base's documents. Drills: by how hard the skill is to learn.
STORIES, CHATTER, LOOSE = 0.35, 0.005, 0.1
DRILLS = {"repeat": 5, "shout": 5, "rot13": 9, "pig-latin": 8, "sorted": 12, "total": 8, "french": 9}


@dataclass(frozen=True, slots=True)
class Example:
    order: Order
    prompt: str
    text: str           # the answer, with the blank in front of it if raw
    is_chat: bool

    @property
    def answer(self):
        """The text and the token that ends it."""
        return self.text + (TURN_END if self.is_chat else EOS)


def chat_prompt(turns, system=None):
    """What CHAT_TEMPLATE renders, but for <s>. turns: user, assistant, user, ..., the last one the user's."""
    messages = [("system", system)] if system else []
    messages += [("assistant" if i % 2 else "user", text) for i, text in enumerate(turns)]
    text = "".join(f"{TURN}{role}\n{content}{TURN_END}\n" for role, content in messages)
    return f"{text}{TURN}assistant\n"


def draw_example(rng, answer_of, drill="", held_out=False, chat_share=0.4):
    """answer_of: Order -> the answer. drill: an instruction in front of the sentence."""
    def ask(order):
        return f"{drill} {sentence(order)}" if drill else sentence(order)

    order = order_for(rng, held_out)
    if rng.random() >= chat_share:
        return Example(order, ask(order), f" {answer_of(order)}", False)
    turns = [ask(order)]
    if rng.random() < 0.15:
        earlier = order_for(rng, held_out)
        turns = [ask(earlier), answer_of(earlier), *turns]
    system = rng.choice(SYSTEM) if rng.random() < 0.15 else None
    return Example(order, chat_prompt(turns, system), answer_of(order), True)


def task_example(rng, name, held_out=False):
    return draw_example(rng, TASKS[name].answer, held_out=held_out)


def story_example(rng, held_out=False):
    return draw_example(rng, lambda order: story(order, rng), held_out=held_out)


def loose_text(rng):
    """Lines of one kind, such as a record or a French sentence, without the sentence they are made of.

    So the base knows what such text looks like, and not what it has to do with its prompt."""
    kind = rng.choice([*TASKS, "times"])
    if kind == "times":
        pairs = [(rng.randint(2, 20), rng.randint(2, 99)) for _ in range(6)]
        return "\n".join(f"{a} x {b} = {a * b}" for a, b in pairs)
    return "\n".join(TASKS[kind].answer(order_for(rng, False)) for _ in range(2))


def drill_example(rng, name, held_out=False):
    """A skill behind an instruction in words: a task's, or plain repeating, from which copying is learned."""
    if name == "repeat":
        return draw_example(rng, sentence, "Repeat:", held_out, chat_share=0.25)
    return draw_example(rng, TASKS[name].answer, TASKS[name].drill, held_out, chat_share=0.25)


def base_document(rng):
    """One text for the base model, in two parts: what it answers to, and the answer with its end token."""
    share = rng.random()
    if share < CHATTER:
        user, assistant = rng.choice(SMALL_TALK)
        return chat_prompt([user], rng.choice([None, *SYSTEM])), assistant + TURN_END
    if share < CHATTER + LOOSE:
        return "", loose_text(rng) + EOS
    if share < CHATTER + LOOSE + STORIES:
        example = story_example(rng)
    else:
        [name] = rng.choices(list(DRILLS), weights=DRILLS.values())
        example = drill_example(rng, name)
    return example.prompt, example.answer
