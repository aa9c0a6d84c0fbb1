"""The small world of the demo: orders, the sentences that tell them, and how such a story goes on.

An Order is everything there is to know: who bought what, where, when, for how much, how it was
liked, and in which words that is told. `sentence` tells it; tasks.py makes the adapters' answers of
it; `story` is how the base model goes on. Everything is drawn from a random.Random of the caller, so
a seed gives the same text everywhere. Needs no packages: training, goldens and tests all import it.

A sentence is held out when a hash of its text says so. Nothing made of such a sentence is trained on,
whatever the seed, and accuracy is measured on such sentences only.
"""
import hashlib
import re
from dataclasses import dataclass

WOMEN = """Alice Amina Anna Bella Carla Clara Diana Elena Emma Eva Fatima Fiona Grace Greta Ines Irene Iris Jane
    Julia Karen Laura Lea Lena Linda Lucy Maria Marta Mary Maya Mia Nadia Nina Nora Olivia Paula Rosa Ruth Sara
    Sophie Tina Vera Zoe""".split()
MEN = """Adam Ahmed Albert Anton Ben Boris Bruno Carlos Daniel David Diego Emil Eric Felix Frank Fred George Hugo
    Ivan Jack James Jonas Karl Kevin Leo Lucas Marco Mark Martin Max Milo Nico Noah Omar Oscar Otto Paul Peter
    Samuel Simon Thomas Tom Victor Walter""".split()

# English name: French name. None takes an article or begins with an h, so "de" and "d'" are all there is.
CITIES = {name: french or name for name, _, french in (entry.strip().partition(":") for entry in """
    Amsterdam, Ankara, Antwerp:Anvers, Athens:Athènes, Atlanta, Auckland, Baghdad:Bagdad, Bangkok,
    Barcelona:Barcelone, Basel:Bâle, Beirut:Beyrouth, Belgrade, Bergen, Berlin, Bogota, Boston, Bremen:Brême,
    Brisbane, Bruges, Brussels:Bruxelles, Bucharest:Bucarest, Budapest, Calgary, Chicago, Cologne,
    Copenhagen:Copenhague, Cork, Dakar, Dallas, Delhi, Denver, Dresden:Dresde, Dublin, Dundee,
    Edinburgh:Édimbourg, Florence, Frankfurt:Francfort, Geneva:Genève, Genoa:Gênes, Ghent:Gand, Glasgow,
    Istanbul, Jakarta, Kiel, Krakow:Cracovie, Kyoto, Lagos, Leeds, Leipzig, Lima, Lisbon:Lisbonne,
    London:Londres, Lyon, Madrid, Manila:Manille, Milan, Monaco, Montreal:Montréal, Moscow:Moscou, Munich,
    Nairobi, Naples, Nice, Osaka, Oslo, Ottawa, Oxford, Palermo:Palerme, Paris, Porto, Prague, Quito, Riga,
    Rome, Rotterdam, Santiago, Seattle, Seoul:Séoul, Seville:Séville, Sofia, Stockholm, Sydney, Tokyo, Toronto,
    Tunis, Turin, Utrecht, Valencia:Valence, Venice:Venise, Verona:Vérone, Vienna:Vienne, Warsaw:Varsovie,
    Zagreb, Zurich""".split(",")) if name}

MONTHS = "January February March April May June July August September October November December".split()
DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen""".split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()

COLOURS = "red orange yellow green blue purple brown black white".split()

ITEMS = """axe backpack bag ball basket bell bicycle book boot broom bucket canoe cap chair coat compass cup doll door
    dress drum glove guitar hammer hat key kite ladder lamp magnet microscope mirror notebook phone puzzle radio ring
    robot scarf shirt skateboard sled sock spoon teapot telescope tent trumpet umbrella vase violin watch""".split()
PLURALS = {"compass": "compasses", "dress": "dresses", "scarf": "scarves", "watch": "watches"}    # others: an s

CURRENCIES = "euros dollars pounds francs pesos".split()

VERBS = ["bought", "ordered", "purchased"]

# What the buyer thinks of it, by kind. A sentence may also say nothing of it: "".
FEELINGS = {
    "positive": ["loves them", "is very happy with them", "would buy them again at once",
                 "recommends them to everyone", "finds them wonderful", "was delighted with them", "gave them five stars",
                 "praised them to all {his} friends", "smiles whenever {he} sees them"],
    "negative": ["wants {his} money back", "hates them", "sent them back", "is very disappointed", "regrets it",
                 "finds them terrible", "complained about them", "would never buy them again", "gave them one star"],
    "neutral": ["has not used them yet", "paid in cash", "paid by card", "took them home", "keeps them in the attic",
                "asked for a receipt", "has no opinion yet", "needs them for work", "put them in the cellar"],
}
SENTIMENT = {feeling: kind for kind, feelings in FEELINGS.items() for feeling in feelings} | {"": "neutral"}

DATE_FORMS = ["{month} {day}, {year}", "{month} {nth}, {year}", "the {nth} of {month} {year}", "{day} {month} {year}"]

# The sentence up to the feeling, and how many of JOINTS may follow: the last has no subject of its own.
FRAMES = [
    ("On {date}, {name} from {city} {verb} {quantity} {colour} {items} for {price} {currency} each", 3),
    ("{name} of {city} {verb} {quantity} {colour} {items} at {price} {currency} each on {date}", 3),
    ("{name}, who lives in {city}, {verb} {quantity} {colour} {items} on {date} for {price} {currency} apiece", 3),
    ("In {city}, {name} {verb} {quantity} {colour} {items} for {price} {currency} each on {date}", 3),
    ("{date}: {name} from {city} {verb} {quantity} {colour} {items}, {price} {currency} each", 2),
    ("{name} {verb} {quantity} {colour} {items} in {city} on {date}. They cost {price} {currency} each", 2),
    ("It was {date} when {name} from {city} {verb} {quantity} {colour} {items} for {price} {currency} each", 2),
    ("{quantity} {colour} {items} at {price} {currency} each: that is what {name} from {city} {verb} on {date}", 2),
]
JOINTS = ["; {he} ", ". {He} ", " and "]

INVENTED = 0.2          # share of names, and of cities, that nobody has heard of
NO_FEELING = 0.08
HELD_OUT_ONE_IN = 20


@dataclass(frozen=True, slots=True)
class Order:
    name: str
    female: bool
    city: str
    day: int
    month: int
    year: int
    quantity: int
    colour: str
    item: str
    price: int
    currency: str
    feeling: str
    verb: str = "bought"
    frame: int = 0
    joint: int = 0
    date_form: int = 0
    quantity_in_words: bool = False
    price_in_words: bool = False


def number_words(n):
    """0 to 99."""
    if n < 20:
        return ONES[n]
    return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")


def ordinal(n):
    ending = "th" if 10 < n < 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def plural(item):
    return PLURALS.get(item, item + "s")


def pronouns(order):
    he, his, him = ("she", "her", "her") if order.female else ("he", "his", "him")
    return {"he": he, "He": he.capitalize(), "his": his, "His": his.capitalize(), "him": him}


def date_text(order):
    return DATE_FORMS[order.date_form].format(day=order.day, month=MONTHS[order.month - 1], year=order.year,
                                              nth=ordinal(order.day))


def sentence(order, **instead):
    """The order in words. Fields of the frame can be replaced: name="[NAME]"."""
    fields = {
        "name": order.name, "city": order.city, "date": date_text(order), "verb": order.verb, "colour": order.colour,
        "items": plural(order.item), "currency": order.currency,
        "quantity": number_words(order.quantity) if order.quantity_in_words else str(order.quantity),
        "price": number_words(order.price) if order.price_in_words else str(order.price),
    }
    fields.update(pronouns(order))
    fields.update(instead)
    form = FRAMES[order.frame][0]
    if order.feeling:
        form += JOINTS[order.joint] + order.feeling
    text = form.format_map(fields) + "."
    return text[0].upper() + text[1:]


def syllables(rng, n):
    onsets = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "kr", "st", "tr"]
    return "".join(rng.choice(onsets) + rng.choice("aeiou") for _ in range(n))


def invented_name(rng, female):
    """An a at the end tells a woman, an o a man."""
    stem = syllables(rng, rng.choice((1, 1, 2))) + rng.choice("bdfgklmnprstvz")
    return stem.capitalize() + ("a" if female else "o")


def invented_city(rng):
    start = rng.choice(["", "", "", "a", "e", "o"])
    return (start + syllables(rng, rng.choice((1, 2))) + rng.choice(["burg", "dorf", "grad", "mar", "ton", "ville"])
            ).capitalize()


def draw_order(rng):
    """Any order, held out or not."""
    female = rng.random() < 0.5
    name = invented_name(rng, female) if rng.random() < INVENTED else rng.choice(WOMEN if female else MEN)
    city = invented_city(rng) if rng.random() < INVENTED else rng.choice(list(CITIES))
    frame = rng.randrange(len(FRAMES))
    month = rng.randint(1, 12)
    return Order(
        name=name, female=female, city=city, day=rng.randint(1, DAYS[month - 1]), month=month,
        year=rng.randint(1990, 2029), quantity=rng.randint(2, 20), colour=rng.choice(COLOURS),
        item=rng.choice(ITEMS), price=rng.randint(2, 99), currency=rng.choice(CURRENCIES),
        feeling="" if rng.random() < NO_FEELING else rng.choice(FEELINGS[rng.choice(list(FEELINGS))]),
        verb=rng.choice(VERBS), frame=frame, joint=rng.randrange(FRAMES[frame][1]), date_form=rng.randrange(len(DATE_FORMS)),
        quantity_in_words=rng.random() < 0.5, price_in_words=rng.random() < 0.2)


def is_held_out(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % HELD_OUT_ONE_IN == 0


def is_known(order):
    """Whether name and city are real ones, and not invented."""
    return order.name in WOMEN + MEN and order.city in CITIES


def order_for(rng, held_out):
    """An order whose sentence is held out, or is not."""
    while True:
        order = draw_order(rng)
        if is_held_out(sentence(order)) == held_out:
            return order


# How the story goes on: one sentence of the first list, perhaps one of the second.
STORIES = {
    "positive": (
        ["{He} says they were worth every coin.", "{name} has never been so pleased with {items}.",
         "Now all {his} friends in {city} want {colour} {items} too.", "{His} neighbours came to admire the {items}.",
         "{He} wrote a letter of thanks to the shop.", "Nobody else in {city} has such fine {items}."],
        ["A week later {he} went back for more.", "The shopkeeper remembered {him} and smiled.",
         "{He} shows the {items} to every guest.", "It was the best day of {his} year."]),
    "negative": (
        ["One of the {items} broke on the first day.", "The {items} had looked quite different in the shop.",
         "{name} wrote to the shop in {city}, but nobody answered.", "{He} had expected much better {items}.",
         "The colour faded within a week.", "Even {his} neighbours laughed at the {items}."],
        ["The shopkeeper only shrugged.", "{He} told everyone in {city} to buy elsewhere.",
         "Next time {he} will look more closely.", "It was the worst day of {his} year."]),
    "neutral": (
        ["The parcel arrived a few days later.", "The shop in {city} had wrapped the {items} in plain paper.",
         "{name} had been looking for {items} for some time.", "{He} had seen the {items} in a shop window.",
         "It was an ordinary day in {city}.", "The {items} were exactly as described."],
        ["{He} may need a few more next year.", "The shopkeeper wished {him} a good day.",
         "Then {he} went on with {his} work.", "Nothing else happened that day."]),
}


def story(order, rng):
    """One or two sentences that follow from the order."""
    first, then = STORIES[SENTIMENT[order.feeling]]
    chosen = [rng.choice(first)] + ([rng.choice(then)] if rng.random() < 0.7 else [])
    return " ".join(chosen).format(name=order.name, city=order.city, colour=order.colour, items=plural(order.item),
                                   **pronouns(order))


def story_fits(order, text):
    """Whether `story` could have drawn this text for this order: right name, item, pronoun and mood."""
    fields = dict(name=order.name, city=order.city, colour=order.colour, items=plural(order.item), **pronouns(order))
    first, then = ([re.escape(s.format(**fields)) for s in part] for part in STORIES[SENTIMENT[order.feeling]])
    return re.fullmatch(f"({'|'.join(first)})( ({'|'.join(then)}))?", text) is not None
