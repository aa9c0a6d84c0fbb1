#!/usr/bin/env python3
"""Make tests/golden/tokenizer/: small tokenizers with the pipelines of the real families, and what
the `tokenizers` library makes of over a thousand strings with them.

    python3 -m venv venv && venv/bin/pip install tokenizers
    venv/bin/python tools/golden_tokenizer.py tests/golden/tokenizer

Files:
  strings.jsonl            one string a line: a JSON string, or {"hex": ...} for raw bytes that are
                           not UTF-8 (the library is given them decoded with errors="replace")
  NAME/tokenizer.json      and tokenizer_config.json
  NAME/expected.jsonl      first line: {"library": version, "before": ids, "after": ids}, the special
                           tokens put around every text. Then one line per string:
                           [ids without special tokens, text, text without special tokens]
                           where the texts are decoded from the ids with special tokens, and null
                           stands for the string itself. Then one line per list of random ids:
                           {"ids": ..., "keep": text, "skip": text}
"""
import json
import random
import sys
from collections import Counter
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN_REGEX = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
                r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SENTENCES = """
The harbour was quiet when the first boats came in, and nobody on the quay had slept.
She said that she'd bring the ladder, but he'll need a longer one if the roof isn't mended by then.
We're going to measure it twice; they've measured it once, and I'm not sure it's enough.
In 1987 the town had 12,430 inhabitants, 3 mills and 1 railway station.
for (int i = 0; i < n; i++) { sum += values[i] * weights[i]; }
def merge(left, right):\n    while left and right:\n        yield left.pop(0) if left[0] < right[0] else right.pop(0)
Please write to the office at 14 Mill Lane, or call 020 555 0143 between 9:30 and 17:00.
A good tool does one thing well, says clearly what went wrong, and stays out of the way.
The quick answer is no; the long answer is that nobody has tried it with enough patience.
Übermorgen fährt der Zug über die Brücke nach München, wenn das Wetter schön bleibt.
Où est passée la clé de la vieille maison près du château, demanda-t-elle à sa sœur.
El niño soñó que la montaña hablaba; mañana volverá a subir con su abuelo.
Завтра утром мы поедем на дачу, если не будет дождя и если починят мост.
Η θάλασσα ήταν ήρεμη και ο ουρανός καθαρός όταν φύγαμε από το λιμάνι.
今日は天気がいいので、川のそばを歩いて図書館まで行きました。
我们明天早上去山里看日出，你要不要一起来？
오늘은 비가 와서 집에서 책을 읽었습니다.
كان البحر هادئا حين عدنا إلى البيت في المساء.
הים היה שקט כשחזרנו הביתה בערב.
आज सुबह नदी के किनारे बहुत ठंड थी, फिर भी हम टहलने गए।
วันนี้อากาศดีมาก เราจึงไปเดินเล่นริมแม่น้ำ
Hôm nay trời đẹp nên chúng tôi đi bộ dọc bờ sông.
x = [a for a in range(10) if a % 2 == 0]  # even numbers
{"name": "value", "list": [1, 2, 3], "nested": {"ok": true}}
<p class="note">Tea &amp; biscuits</p>
\tindented with a tab\n\n\nand three newlines\r\nand a Windows line end
""".strip("\n").split("\n")

WORLD = SENTENCES + [
    "გამარჯობა, როგორ ხარ?", "Բարեւ, ինչպես ես", "ሰላም፡ እንዴት፡ ነህ።", "สวัสดีครับ ทุกคน", "ສະບາຍດີ",
    "မင်္ဂလာပါ", "សួស្តី",
    "བཀྲ་ཤིས་བདེ་ལེགས།", "ᠰᠠᠶᠢᠨ ᠪᠠᠶᠢᠨᠠ ᠤᠤ᠎ᠠ", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ", "ᐃᓄᒃᑎᑐᑦ", "வணக்கம் உலகம்", "నమస్కారం",
    "ನಮಸ್ಕಾರ", "നമസ്കാരം", "নমস্কার বন্ধু",
    "ਸਤ ਸ੍ਰੀ ਅਕਾਲ", "નમસ્તે", "ନମସ୍କାର", "ආයුබෝවන්", "ދިވެހި", "ܫܠܡܐ", "ⵜⴰⵎⴰⵣⵉⵖⵜ", "ꦲꦏ꧀ꦱꦫꦗꦮ", "𐌲𐌿𐍄𐌰", "𐤀𐤁𐤂",
    "𒀀𒀁𒂗", "𓀀𓂀𓃰", "𠜎𠜱𠝹𠱓", "ﷺ ﷽",
    "ÅÄÖ åäö ßẞ ŒœÆæ Ĳĳ ŉ ǅ ǆ", "İstanbul ıssız I i", "ΑΣ ΟΔΟΣ σς", "ﬀ ﬁ ﬂ ﬃ ﬄ ﬅ ﬆ",
    "①②③ ⅷ ½ ¾ ²³¹ ₄₅ ٣٤٥ ४५६ ๑๒๓ 〇一二三 Ⅻ",
    "ＦＵＬＬ ｗｉｄｔｈ １２３ ｶﾀｶﾅ ㍻ ㎏ ㏒", "ǰ ΐ ΰ և ẖ ẗ", "Ǆ ǅ ǆ Ǉ ǈ ǉ", "℃ ℉ Å Å Ω Ω K K", "'ſ 'S 's ’s ‘t",
    "it'K it'k 'LL 'Ll 'VE 'Re 'D 'M",
    "🙂", "👍🏽👍", "👩‍👩‍👧‍👦", "🏳️‍🌈🏴‍☠️", "🇩🇪🇫🇷🇯🇵", "1️⃣2️⃣#️⃣", "❤️❤", "🧑🏿‍🚀 to the 🌕", "😀😃😄😁😆😅😂🤣",
    "text🙂text", " 🙂 ", "🫠🫨🪿🫎",
    "e\u0301 \u00e9", "a\u0323\u0307 a\u0307\u0323", "\u1e69 s\u0323\u0307 s\u0307\u0323", "\u0301",
    " \u0301", "x" + "\u0301\u0323" * 20,
    "한글 \u1112\u1161\u11ab\u1100\u1173\u11af", "\uac00\u11a8 \u1100\u1161", "ａ\u3099 か\u3099 か゛",
    "\u0344 \u0340\u0341 \u0374 \u037e \u0387",
    "q\u0307\u0323 \u0958 \u09dc \u2126 \u212b \u2000\u2001", "\ufb1d \u2adc \ufb2a",
    "\u0f71\u0f72\u0f74 \u0f73 \u0f75 \u0f81", "o\u0308\u0304 \u022b",
    "\u1d15e \U0001d15e \U0001d1bb", "\u0344x", "a\u0327\u0301", "\u0041\u030a\u0301 \u01fa",
]

BLANKS = [
    " ", "  ", "   ", "    ", " " * 7, " " * 16, " " * 31, " " * 70, "\n", "\n\n", "\n\n\n\n", "\r", "\r\n",
    "\r\n\r\n", "\n\r", "\t", "\t\t", "\t\t\t\t",
    " \n", "\n ", " \n ", "  \n\n  ", "\t\n\t", " \t \t ", "\u00a0", "\u00a0\u00a0", "\u2003\u2003",
    "\u3000", "\u200b", "\u200b\u200b", "\ufeff",
    "\u180e", "\u1680", "\u2028", "\u2029", "\u202f", "\u205f", "\u0085", "\x0b", "\x0c",
    "\x1c\x1d\x1e\x1f", "\u200c\u200d\u2060",
    "a b", "a  b", "a   b", " a", "  a", "   a", "a ", "a  ", "a\n", "a \n", "a\n\n", "a \n\n b", "a\tb",
    "a \t b", "a\r\nb", "a\r\n\r\nb", "\na", "\n\na",
    " \na", "\ta", " \ta", "a\u00a0b", "a \u00a0 b", "a\u3000b", "a\u2003 b", "a\u180eb", "a \u180e b",
    "\u180e a", "a\u0085b", "a\x0bb", "a\x0cb", "a\u2028b",
    "line one\nline two\n  indented\n\n\n\tend  ", "  leading and trailing  ", "x\n \n \ny", "x \n\n\n\n y",
    "1\n2\n3\n", "a\u200bb", "\u200ba", "\ufeffa",
    "▁", "▁▁", "a▁b", "▁a", " ▁a", "▁ a", "a▁", "Ġ", "aĠb", "Ċ", "ĠĠa", "<0x41>", "<0x0A>", "a<0xE2>b",
    "<0x>", "\ufffd", "a\ufffdb",
]

SPECIALS = ["<s>", "</s>", "<unk>", "<pad>", "[INST]", "[/INST]", "<|begin_of_text|>", "<|eot_id|>",
            "<|start_header_id|>", "<|end_header_id|>",
            "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<mask>",
            "<word>", "<left>", "<right>", "<both>", "<norm>",
            "MiXed", "caf\u00e9x", "two words"]

CODE = [
    "int main(void)\n{\n    return 0;\n}\n", "if (x != NULL && *x == '\\0') goto out;",
    "SELECT a, b FROM t WHERE c >= 10;", "a+=b-=c*=d/=e%=f&=g|=h^=i<<=j>>=k",
    "/usr/bin/env python3 -c 'print(\"hi\")'", "https://example.org/a/b?c=d&e=f#g",
    "user.name+tag@mail.example.co.uk", "C:\\dir\\file.txt", "#!/bin/sh\nset -eu\n",
    "foo_bar fooBar FooBar FOO_BAR foo-bar", "0x1F 1e-9 3.14159 1_000_000 0b1010", "12345678901234567890",
    "1 22 333 4444 55555", "a1b2c3", "1,234,567.89", "2024-02-29T12:34:56Z",
    "$$$ ### @@@ !!! ??? ...", "...\n", "!!\n\n", "?!\r\n", " ...", "( [ { < > } ] )",
    "«guillemets» “quotes” ‘single’ „low“", "a--b---c–d—e", "100% & 50%", "~`^|\\",
    "don't DON'T Don't don’t I'm I'M i'm we'll WE'LL we'Ll they've THEY'VE he'd HE'D you're YOU'RE it's IT'S", "'s 't 're 've 'm 'll 'd", "''s '''ll", "x's's", "rock'n'roll o'clock y'all'd've",
    "'S", " 's", "a 's b", "'\u017f", "\u212am", "\n's", "$x^2 + y_{ij} \\alpha$", "<a href='#'>x</a>",
    "<!-- note -->", "&nbsp;&#160;", "```c\nint x;\n```", "- item\n  - sub\n\t* tab", "| a | b |\n|---|---|",
]


def odd_strings():
    out = ["", "\x00", "a\x00b", "\x00\x00\x00", "\x01\x02\x03", "\x7f", "\x80\x9f", "a\x1bb[31m",
           "\u0600\u06dd", "\U000e0001\U000e0020", "\ufff9\ufffa\ufffb", "\ue000\uf8ff",
           "\U000f0000\U0010fffd",
           "\uffff\ufffe", "\U0001fffe\U0010ffff", "\u0378\u0379", "\u0530", "\U0001fbfa",
           "\U000323af\U00031350 \U0002ebf0", "\U0001e030\U0001e06d",
           "\U00011f02\U00011f04 \U00010d4a\U00010d70\U00010d50",
           "\U00010d40\U00010d49 1", "\u0897a \u1c89\u1c8a \ua7cb\ua7cd\ua7da\ua7dc", "a\U00011f00b",
           "\u07fda\u0323", "\u0898\u0301\u0323", "\u1715\u0345", "\u2c2f\u2c5f", "\U00010780\U00010781",
           "\u32ff \u20c0",
           "\U00011935\U00011930 \U00011938", "\u1acf \u1af0", "\U0001cc00\U0001ccf0\U0001ccf9",
           "\u2fff \u31ef", "\U00016d40\U00016d70", "\U0001f6dc \U0001fae8 \U0001fadf"]
    out += ["a" * n for n in (2, 3, 4, 5, 8, 13, 50, 300)] + ["ab" * 100, "the" * 60, "Wort" * 40, "é" * 70,
                                                              "日" * 40, "🙂" * 25, "0" * 40, "." * 60,
                                                              "!" * 33 + "\n", "-" * 80, "=" * 64,
                                                              "\n" * 40, "\t" * 20, "\r\n" * 15,
            "supercalifragilisticexpialidocious" * 3, "Donaudampfschifffahrtsgesellschaftskapitän",
            "a b" * 50, " a" * 50, ("word " * 50).strip(), "x" + " " * 40 + "y", "ÿ" * 9, "\u0e33" * 12,
            "👩‍👩‍👧‍👦" * 5]
    return out


def special_strings():
    out = []
    for s in SPECIALS:
        out += [s, " " + s, s + " ", " " + s + " ", "a" + s, s + "a", "a" + s + "b", "a " + s + " b",
                "a  " + s + "  b", "\n" + s + "\n", s + s, s + " " + s, s[:-1], s[1:], s.upper(),
                "_" + s + "_", "é" + s + "é", s + ".", "\u00a0" + s + "\u3000"]
    out += ["<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
            "<s>[INST] Say hello [/INST] Hello</s>", "<s> [INST]x[/INST] ",
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
            "<both> <both>  <both>", "<left> <right> <both> <word>", "  <left>  <right>  x",
            "<right><left> ", "<word> <word><word> a<word> <word>b <word>.",
            "cafe\u0301x CAFÉX caf\u00e9xx", "two  words two words", "mixed MIXED MiXed",
            "<norm> <norm>x x<norm>", "\u2003<both>\u2003", "\t<left>\t<right>\t", "<<s>>", "<s",
            "<|im_start|", "<|im_start|><|im_start", "<mask><mask> <mask>"]
    return out


def random_strings(rng):
    pools = [
        "abcdefghijklmnopqrstuvwxyz", "ABCDEFG hijklmn", "etaoin shrdlu ", " \t\n\r", "0123456789",
        ".,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`", "éèüößñçåøæ", "абвгдежз ", "αβγδ ",
        "日本語中文字漢", "한국어 글", "ابتث ", "अआइक् ", "🙂👍🏽🎉❤️\u200d", "\u0300\u0301\u0323\u0327\u0345",
        "\u00a0\u2003\u3000\u200b", "'s't're've'm'll'd ", "▁Ġ<0x>", "\x00\x01\x7f\u0085\u2028",
    ]
    out = []
    for _ in range(320):
        chosen = rng.sample(pools, rng.randint(1, 4))
        out.append("".join(rng.choice(rng.choice(chosen)) for _ in range(rng.randint(1, 28))))
    for _ in range(80):
        words = " ".join(rng.sample(SENTENCES, 2)).split(" ")
        rng.shuffle(words)
        out.append(rng.choice([" ", "  ", "\n", ""]).join(words[:rng.randint(2, 9)]))
    for _ in range(60):
        out.append("".join(chr(c) for c in (rng.randrange(0x110000) for _ in range(rng.randint(1,
                                                                                               8))) if not 0xD800 <= c < 0xE000))
    for _ in range(40):
        out.append("".join(chr(rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x300, 0x370),
                                           rng.randrange(0x1e00, 0x2000)])) for _ in range(rng.randint(2,
                                                                                                       12))))
    return out


def byte_strings(rng):
    bad = [b"\x80", b"\xff", b"a\xffb", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82a", b"\xe2(\xa1",
           b"\xf0\x9f\x99", b"\xf0\x9f\x99\x82", b"\xf0\x9f", b"\xf0\x28\x8c\xbc", b"\xc0\x80", b"\xc1\xbf",
           b"\xe0\x80\x80",
           b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\x9f\xbf", b"\xf4\x90\x80\x80",
           b"\xf4\x8f\xbf\xbf", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe\xff",
           b"ok \xe2\x82\xac \xe2\x82 \xac", b"\xe2\x82\xe2\x82\xac",
           b"\xf0\x90\x80", b"\xf0\x8f\xbf\xbf", b"\x00\xff\x00", b"caf\xe9", b"<s>\xff</s>",
           b"\xff<|im_start|>\xff", b"\xef\xbf", b"\xef\xbb\xbfa", b"a\xc3\xa9\xc3", b"\xc3\xa9\xa9"]
    for _ in range(90):
        n = rng.randint(1, 24)
        bad.append(bytes(rng.randrange(256) for _ in range(n)))
    for _ in range(50):
        text = bytearray(rng.choice(WORLD).encode())
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text) or 1)
            if not text or rng.random() < 0.5:
                del text[at:at + 1]
            else:
                text[at] = rng.randrange(256)
        bad.append(bytes(text[:60]))
    return bad


def all_strings():
    rng = random.Random(20240229)
    items = [*WORLD, *BLANKS, *CODE, *odd_strings(), *special_strings(), *random_strings(rng),
             *byte_strings(rng)]
    seen, out = set(), []
    for s in items:
        raw = s if isinstance(s, bytes) else s.encode()
        if raw not in seen:
            seen.add(raw)
            out.append(raw)
    return out


def corpus():
    rng = random.Random(7)
    text = [s.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r") for s in SENTENCES]
    words = " ".join(text).split(" ")
    return text * 4 + [" ".join(rng.choice(words) for _ in range(12)) for _ in range(300)] + ["    x",
                                                                                              "\n\n    y",
                                                                                              "a" * 16,
                                                                                              "\t\t" * 4,
                                                                                              "        "] * 5


BYTES = [f"<0x{b:02X}>" for b in range(256)]


def common_characters():
    """The 200 most common characters; chosen here, because the trainer breaks ties at random."""
    counts = Counter("".join(corpus()).replace(" ", "▁"))
    return [c for c, _ in sorted(counts.items(), key=lambda x: (-x[1], x[0]))[:200]]


def train(size, pre, specials, alphabet=()):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    alphabet = sorted(alphabet) or common_characters()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), initial_alphabet=alphabet,
                                  limit_alphabet=len(alphabet), max_token_length=24, show_progress=False)
    t.train_from_iterator(corpus(), trainer)
    model = json.loads(t.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def byte_level_model(size, pre, **options):
    vocab, merges = train(size, pre, [], pre_tokenizers.ByteLevel.alphabet())
    return models.BPE(vocab, merges, **options)


def sentencepiece_model(size, pre, specials=("<unk>", "<s>", "</s>")):
    vocab, merges = train(size, pre, [*specials, *BYTES])
    return models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def sentencepiece_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def extra_tokens():
    """Tokens of every kind of flag, so that each pipeline meets them all."""
    return [special("<pad>"), special("<mask>", lstrip=True), special("<word>", single_word=True),
            special("<left>", lstrip=True), special("<right>", rstrip=True),
            special("<both>", lstrip=True, rstrip=True), AddedToken("<norm>", normalized=True),
            AddedToken("MiXed", normalized=True, single_word=True), AddedToken("caf\u00e9x", normalized=True),
            AddedToken("two words", normalized=False), AddedToken("<tool_call>", normalized=False),
            AddedToken("</tool_call>", normalized=False)]


def bos_template(token, t):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B",
                                         special_tokens=[(token, t.token_to_id(token))])


def llama2():
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t = Tokenizer(sentencepiece_model(1100, pre_tokenizers.Metaspace(prepend_scheme="always")))
    t.normalizer = normalizer
    t.add_tokens([special("<unk>"), special("<s>"), special("</s>"), *extra_tokens()])
    t.post_processor = bos_template("<s>", t)
    t.decoder = sentencepiece_decoder()
    return t, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False,
               "bos_token": "<s>", "eos_token": "</s>", "legacy": True}


def llama2_metaspace():
    """The newer form: no normalizer, spaces replaced by the pre-tokenizer; merges reach over words."""
    pre = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    t = Tokenizer(sentencepiece_model(1000, pre))
    t.pre_tokenizer = pre
    t.add_tokens([special("<unk>"), special("<s>"), special("</s>"), *extra_tokens()])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>",
                                                     special_tokens=[("<s>", 1), ("</s>", 2)])
    t.decoder = sentencepiece_decoder()
    return t, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True,
               "bos_token": {"content": "<s>"}, "eos_token": {"content": "</s>"}, "legacy": False}


def mistral():
    pre = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    t = Tokenizer(sentencepiece_model(900, pre, ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")))
    t.pre_tokenizer = pre
    t.add_tokens([special(x) for x in ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")] + extra_tokens())
    t.post_processor = bos_template("<s>", t)
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(replacement="▁",
                                                                               prepend_scheme="always")])
    return t, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False,
               "bos_token": "<s>", "eos_token": "</s>"}


def unknown():
    """No byte fallback: unknown characters, not fused; special tokens that are normalised."""
    vocab, merges = train(500, pre_tokenizers.Metaspace(), ["<unk>", "<s>"])
    t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(),
                                         normalizers.Replace(Regex("[0-9]{2,}"), "#"), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.Punctuation("contiguous"),
                                               pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.add_tokens([special("<unk>"), special("<s>"), *extra_tokens()])
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    return t, None


def words():
    """Parts that no real family has, in one: no decoder, white space removed, splits merged."""
    vocab, merges = train(500, pre_tokenizers.Whitespace(), ["<unk>"])
    t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split("-", "merged_with_previous"),
                                               pre_tokenizers.Split(Regex("[A-Z]"), "merged_with_next"),
                                               pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
                                               pre_tokenizers.Split(Regex("[aeiou]+"), "removed",
                                                                    invert=True), pre_tokenizers.Digits()])
    t.add_tokens(extra_tokens())
    return t, None


def llama3():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3_REGEX), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = Tokenizer(byte_level_model(1300, pre, ignore_merges=True))
    t.pre_tokenizer = pre
    t.add_tokens([special(x) for x in ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                       "<|end_header_id|>",
                                       "<|eot_id|>")] + [special(f"<|reserved_special_token_{i}|>") for i in range(8)] + extra_tokens())
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            bos_template("<|begin_of_text|>", t)])
    t.decoder = decoders.ByteLevel()
    return t, {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>",
               "eos_token": "<|eot_id|>"}


def qwen2():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2_REGEX), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = Tokenizer(byte_level_model(1200, pre))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre
    t.add_tokens([special(x) for x in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")] + extra_tokens())
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    return t, {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "bos_token": None,
               "eos_token": "<|im_end|>"}


def tekken():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(TEKKEN_REGEX), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    vocab, merges = train(900, pre, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"],
                          pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab, merges, ignore_merges=True))
    t.pre_tokenizer = pre
    t.add_tokens([special(x) for x in ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")] + extra_tokens())
    t.post_processor = bos_template("<s>", t)
    t.decoder = decoders.ByteLevel()
    return t, {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}


def gpt2():
    pre = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    t = Tokenizer(byte_level_model(800, pre))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex(" {3,}"), "  ")])
    t.pre_tokenizer = pre
    t.add_tokens([special("<|endoftext|>"), *extra_tokens()])
    t.post_processor = processors.ByteLevel()
    t.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return t, None


def merges_as_strings(doc):
    doc["model"]["merges"] = [f"{a} {b}" for a, b in doc["model"]["merges"]]


MAKERS = {"llama2": llama2, "llama2_metaspace": llama2_metaspace, "mistral": mistral, "llama3": llama3,
          "qwen2": qwen2, "tekken": tekken, "gpt2": gpt2, "unknown": unknown, "words": words}
STRING_MERGES = ("llama2", "mistral", "qwen2")


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def random_id_lists(t, rng):
    n = t.get_vocab_size()
    byte_ids = [t.token_to_id(b) for b in BYTES if t.token_to_id(b) is not None] or list(range(n))
    for i in range(60):
        pool = [range(n + 40), byte_ids, list(range(n - 20, n)) + byte_ids[120:140]][i % 3]
        yield [rng.choice(pool) for _ in range(rng.randint(0, 14))]


def expected_lines(t, strings):
    around = t.encode("a").ids
    bare = t.encode("a", add_special_tokens=False).ids
    at = next(i for i in range(len(around)) if around[i:i + len(bare)] == bare)
    before, after = around[:at], around[at + len(bare):]
    yield compact({"library": tokenizers.__version__, "before": before, "after": after})
    for raw in strings:
        text = raw.decode("utf-8", errors="replace")
        full, ids = t.encode(text).ids, t.encode(text, add_special_tokens=False).ids
        assert full == before + ids + after
        texts = [t.decode(full, skip_special_tokens=skip) for skip in (False, True)]
        yield compact([ids] + [None if x == text else x for x in texts])
    rng = random.Random(11)
    for ids in random_id_lists(t, rng):
        yield compact({"ids": ids, "keep": t.decode(ids, skip_special_tokens=False), "skip": t.decode(ids,
                                                                                                      skip_special_tokens=True)})


def string_line(raw):
    try:
        return compact(raw.decode())
    except UnicodeDecodeError:
        return compact({"hex": raw.hex()})


def main():
    out = Path(sys.argv[1])
    strings = all_strings()
    out.mkdir(parents=True, exist_ok=True)
    (out / "strings.jsonl").write_text("".join(string_line(s) + "\n" for s in strings))
    for name, make in MAKERS.items():
        t, config = make()
        folder = out / name
        folder.mkdir(exist_ok=True)
        doc = json.loads(t.to_str())
        if name in STRING_MERGES:
            merges_as_strings(doc)
        (folder / "tokenizer.json").write_text(compact(doc) + "\n")
        if config:
            (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
        t = Tokenizer.from_file(str(folder / "tokenizer.json"))
        (folder / "expected.jsonl").write_text("".join(line + "\n" for line in expected_lines(t, strings)))
        print(f"{name}: {t.get_vocab_size()} tokens, {len(strings)} strings")


if __name__ == "__main__":
    main()
