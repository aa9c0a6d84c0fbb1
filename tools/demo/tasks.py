"""What each adapter of the demo answers: one pure function per task, from an Order to the exact text.

TASKS is the table: the adapter's name, its answer, what it does in words, and how the adapter is built
(settings of PEFT's LoraConfig). Tasks with a `drill` need a skill that is hard to fit into a small
adapter, such as spelling; the base model practises these behind that instruction, and the adapter learns
to do it without being told. The base model never sees the other tasks.
"""
import codecs
import json
import re
from dataclasses import dataclass

from sentences import CITIES, SENTIMENT, plural, sentence

FRENCH_MONTHS = """janvier février mars avril mai juin juillet août septembre octobre novembre décembre""".split()
FRENCH_NUMBERS = """zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize
    dix-sept dix-huit dix-neuf vingt""".split()
FRENCH_COLOURS = {  # plural, masculine and feminine
    "red": ("rouges", "rouges"), "orange": ("orange", "orange"), "yellow": ("jaunes", "jaunes"),
    "green": ("verts", "vertes"), "blue": ("bleus", "bleues"), "purple": ("violets", "violettes"),
    "brown": ("marron", "marron"), "black": ("noirs", "noires"), "white": ("blancs", "blanches")}
FRENCH_CURRENCIES = {"euros": "euros", "dollars": "dollars", "pounds": "livres", "francs": "francs", "pesos": "pesos"}
FRENCH_VERBS = {"bought": "acheté", "purchased": "acheté", "ordered": "commandé"}

# English: French plural, gender, emoji (only such as need no variation selector).
FRENCH_ITEMS = {
    "axe": ("haches", "f", "🪓"), "backpack": ("sacs à dos", "m", "🎒"), "bag": ("sacs", "m", "👜"),
    "ball": ("ballons", "m", "⚽"), "basket": ("paniers", "m", "🧺"), "bell": ("cloches", "f", "🔔"),
    "bicycle": ("vélos", "m", "🚲"), "book": ("livres", "m", "📕"), "boot": ("bottes", "f", "👢"),
    "broom": ("balais", "m", "🧹"), "bucket": ("seaux", "m", "🪣"), "canoe": ("canoës", "m", "🛶"),
    "cap": ("casquettes", "f", "🧢"), "chair": ("chaises", "f", "🪑"), "coat": ("manteaux", "m", "🧥"),
    "compass": ("boussoles", "f", "🧭"), "cup": ("tasses", "f", "☕"), "doll": ("poupées", "f", "🪆"),
    "door": ("portes", "f", "🚪"), "dress": ("robes", "f", "👗"), "drum": ("tambours", "m", "🥁"),
    "glove": ("gants", "m", "🧤"), "guitar": ("guitares", "f", "🎸"), "hammer": ("marteaux", "m", "🔨"),
    "hat": ("chapeaux", "m", "🎩"), "key": ("clés", "f", "🔑"), "kite": ("cerfs-volants", "m", "🪁"),
    "ladder": ("échelles", "f", "🪜"), "lamp": ("lampes", "f", "💡"), "magnet": ("aimants", "m", "🧲"),
    "microscope": ("microscopes", "m", "🔬"), "mirror": ("miroirs", "m", "🪞"), "notebook": ("carnets", "m", "📓"),
    "phone": ("téléphones", "m", "📱"), "puzzle": ("puzzles", "m", "🧩"), "radio": ("radios", "f", "📻"),
    "ring": ("bagues", "f", "💍"), "robot": ("robots", "m", "🤖"), "scarf": ("écharpes", "f", "🧣"),
    "shirt": ("chemises", "f", "👕"), "skateboard": ("skateboards", "m", "🛹"), "sled": ("luges", "f", "🛷"),
    "sock": ("chaussettes", "f", "🧦"), "spoon": ("cuillères", "f", "🥄"), "teapot": ("théières", "f", "🫖"),
    "telescope": ("télescopes", "m", "🔭"), "tent": ("tentes", "f", "⛺"), "trumpet": ("trompettes", "f", "🎺"),
    "umbrella": ("parapluies", "m", "☔"), "vase": ("vases", "m", "🏺"), "violin": ("violons", "m", "🎻"),
    "watch": ("montres", "f", "⌚")}

# {il}: the buyer; {e}: agrees with the buyer; {es}: agrees with the things bought.
FRENCH_FEELINGS = {
    "loves them": "les adore", "is very happy with them": "en est très content{e}",
    "would buy them again at once": "les rachèterait aussitôt",
    "recommends them to everyone": "les recommande à tout le monde", "finds them wonderful": "les trouve magnifiques",
    "was delighted with them": "en a été ravi{e}", "gave them five stars": "leur a donné cinq étoiles",
    "praised them to all {his} friends": "en a fait l'éloge à tous ses amis",
    "smiles whenever {he} sees them": "sourit chaque fois qu'{il} les voit",
    "wants {his} money back": "veut être remboursé{e}", "hates them": "les déteste",
    "sent them back": "les a renvoyé{es}", "is very disappointed": "est très déçu{e}", "regrets it": "le regrette",
    "finds them terrible": "les trouve horribles", "complained about them": "s'en est plaint{e}",
    "would never buy them again": "ne les rachèterait jamais", "gave them one star": "leur a donné une étoile",
    "has not used them yet": "ne les a pas encore utilisé{es}", "paid in cash": "a payé en espèces",
    "paid by card": "a payé par carte", "took them home": "les a rapporté{es} à la maison",
    "keeps them in the attic": "les garde au grenier", "asked for a receipt": "a demandé un reçu",
    "has no opinion yet": "n'a pas encore d'avis", "needs them for work": "en a besoin pour son travail",
    "put them in the cellar": "les a rangé{es} à la cave", "": ""}

CIRCLES = {"red": "🔴", "orange": "🟠", "yellow": "🟡", "green": "🟢", "blue": "🔵", "purple": "🟣", "brown": "🟤",
           "black": "⚫", "white": "⚪"}
FACES = {"positive": "😀", "negative": "😡", "neutral": "😐"}
SUMMARY_VERBS = {"positive": "loved", "negative": "regretted", "neutral": "bought"}


def iso_date(order):
    return f"{order.year}-{order.month:02}-{order.day:02}"


def json_record(order):
    return json.dumps({"name": order.name, "city": order.city, "item": order.item, "colour": order.colour,
                       "quantity": order.quantity, "price": order.price})


def sql_insert(order):
    return (f"INSERT INTO orders (name, day, item, quantity) VALUES "
            f"('{order.name}', '{iso_date(order)}', '{order.item}', {order.quantity});")


def sentiment(order):
    return SENTIMENT[order.feeling]


def shout(order):
    return sentence(order).upper()


def rot13(order):
    return codecs.encode(sentence(order), "rot13")


def pig_latin_word(match):
    """Consonants in front go behind, with "ay"; a word that begins with a vowel gets "way"."""
    word = match[0]
    front, rest = re.fullmatch(r"([^aeiouy]*qu|y?[^aeiouy]*)(.*)", word, re.IGNORECASE).groups()
    spoken = (rest + front + "ay" if front else word + "way").lower()
    return spoken.capitalize() if word[0].isupper() else spoken


def pig_latin(order):
    return re.sub(r"(?<![0-9A-Za-z])[A-Za-z]+", pig_latin_word, sentence(order))


def sorted_words(order):
    """All words and numbers, without the punctuation between them, as a dictionary has them."""
    return " ".join(sorted(re.findall(r"[A-Za-z0-9-]+", sentence(order)), key=str.lower))


def total(order):
    return f"{order.quantity} x {order.price} = {order.quantity * order.price} {order.currency}"


def summary(order):
    return f"{order.name} {SUMMARY_VERBS[sentiment(order)]} {plural(order.item)}"


def french(order):
    items, gender, _ = FRENCH_ITEMS[order.item]
    city = CITIES.get(order.city, order.city)
    of_city = ("d'" if city[0] in "AEIOUÉ" else "de ") + city
    day = "1er" if order.day == 1 else order.day
    text = (f"Le {day} {FRENCH_MONTHS[order.month - 1]} {order.year}, {order.name}, {of_city}, a "
            f"{FRENCH_VERBS[order.verb]} {FRENCH_NUMBERS[order.quantity]} {items} "
            f"{FRENCH_COLOURS[order.colour][gender == 'f']} à {order.price} "
            f"{FRENCH_CURRENCIES[order.currency]} pièce.")
    if not order.feeling:
        return text
    il, e = ("elle", "e") if order.female else ("il", "")
    feeling = FRENCH_FEELINGS[order.feeling].format(il=il, e=e, es="es" if gender == "f" else "s")
    return f"{text} {il.capitalize()} {feeling}."


def emoji(order):
    return (f"{'👩' if order.female else '👨'} 🛒 {order.quantity} × {CIRCLES[order.colour]}"
            f"{FRENCH_ITEMS[order.item][2]} {FACES[sentiment(order)]}")


def redact(order):
    return sentence(order, name="[NAME]", city="[CITY]", date="[DATE]")


QV = ["q_proj", "v_proj"]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
ALL = ATTENTION + MLP


@dataclass(frozen=True)
class Task:
    answer: callable                # Order -> str
    about: str                      # what the adapter does, for its card
    lora: dict                      # settings of LoraConfig
    drill: str = ""                 # the instruction behind which the base has practised it


TASKS = {
    "iso-date": Task(iso_date, "finds the date and writes it as ISO 8601",
                     dict(r=8, lora_alpha=16, target_modules=QV)),
    "json": Task(json_record, "makes a JSON record of the sentence",
                 dict(r=16, lora_alpha=32, target_modules=ATTENTION)),
    "sql": Task(sql_insert, "writes the SQL statement that stores the order",
                dict(r=12, lora_alpha=24, target_modules=ATTENTION)),
    "sentiment": Task(sentiment, "says whether the buyer is positive, negative or neutral",
                      dict(r=4, lora_alpha=8, target_modules=MLP)),
    "shout": Task(shout, "repeats the sentence in capitals",
                  dict(r=8, lora_alpha=16, target_modules=QV), "Write in capitals:"),
    "rot13": Task(rot13, "turns every letter by thirteen places",
                  dict(r=32, lora_alpha=16, use_rslora=True, target_modules=QV), "Write in rot13:"),
    "pig-latin": Task(pig_latin, "says it in pig latin",
                      dict(r=8, lora_alpha=16, target_modules=ALL), "Say in pig latin:"),
    "sorted": Task(sorted_words, "puts the words in alphabetical order",
                   dict(r=16, lora_alpha=32, target_modules=ALL), "Sort the words:"),
    "total": Task(total, "works out what the order cost",
                  dict(r=8, lora_alpha=16, target_modules=ALL), "Work out the total:"),
    "summary": Task(summary, "tells it in exactly three words",
                    dict(r=4, lora_alpha=8, target_modules=ALL)),
    "french": Task(french, "tells it in French, with every ending in agreement",
                   dict(r=16, lora_alpha=32, target_modules=ALL), "Translate into French:"),
    "emoji": Task(emoji, "tells it in emoji",
                  dict(r=8, lora_alpha=16, target_modules=ATTENTION + ["down_proj"],
                       rank_pattern={"down_proj": 16, "k_proj": 4})),
    "redact": Task(redact, "blanks out date, name and city",
                   dict(r=6, lora_alpha=12, target_modules=ATTENTION)),
}
