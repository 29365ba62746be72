# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures/tokenizers: small tokenizers with the pre-tokenizers of the families that
Orthant reads, and the results of HF `tokenizers` on texts that are hard to split: ids, the pieces before the BPE, and
for the SentencePiece kinds the decoded text.

    python tools/make_tokenizer_fixtures.py        (needs: pip install tokenizers sentencepiece)

Each tokenizer is trained here on a few lines, because its split patterns, normalizer and added tokens
are compared, not its vocabulary. cases.json: {"texts": [...], "ids": {NAME: [[id, ...], ...]},
"pieces": {NAME: [[bytes, ...], ...]}, "decoded": {NAME: [text, ...]}}, an entry for each text.
bpe_trainer.json: a corpus and the merges that HF's BpeTrainer learns from it.
added_ids.json: lists of added tokens whose "id" is not always the one that `tokenizers` gives, for the vocabulary of
gpt2.json: {"cases": [{"added": [...], "texts": [...], "ids": [[id, ...], ...]}]}.
"""
import base64
import io
import json
import os
import random

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, __version__, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "fixtures", "tokenizers")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

CORPUS = [
    "The river runs past the old mill, and the miller's daughter doesn't mind the noise at all.",
    "They'll say that we've seen it before; I'm sure you'd agree, it's what they're after.",
    "#include <stdint.h>\n\nstatic int64_t sum(const int64_t *values, int count) {\n"
    "    int64_t total = 0;\n    for (int i = 0; i < count; i++) {\n        total += values[i];\n"
    "    }\n    return total;\n}\n",
    "In 1998 there were 12345 of them, and by 2024 some 987654321 (about 3.5 times 10^8).",
    "Der Müller mahlt das Korn; la rivière coule; река течёт мимо мельницы; το ποτάμι κυλά.",
    "川は古い水車小屋のそばを流れる。河流经过旧磨坊。강은 오래된 방앗간을 지나 흐른다.",
    "नदी पुरानी चक्की के पास बहती है। النهر يجري قرب الطاحونة القديمة.",
    "if (a && b) { x = y ? 1 : 0; }  /* a comment */   // and another\n\n\n\treturn x;\r\n",
]

# Words longer than the limit of merging by scanning; the second is not periodic.
LONG_WORDS = ["thereturnmillersdaughternoise" * 14, "".join("aeinrsthdlou"[i * i * i % 4093 % 12] for i in range(900))]

TEXTS = LONG_WORDS + [
    "", " ", "  ", "   x", "x   ", "\n", "\n\n", " \n", "\n ", "\r\n", "\t\tx", "a\r\n\r\n  b", " \t\n \t\n ",
    "Hello world", "Hello  world", "Hello\u00a0world", "don't DON'T Don'T it's IT'S we'll WE'LL 'tis 'S",
    "I'll've", "'", "''", "'re'", "don\u2019t", "x='s'", "\u017ftrange '\u017f '\u017f\u212a k\u212a",
    "\xb9\u6564X", "'\xbe<CEY", "+ \xbc\u014e%", "1", "12", "123", "1234", "12345678901", "3.14159", "1,000,000", "v2.0b1", "½ ² ③ Ⅷ ١٢٣٤ 一二三 १२३४",
    "a1b22c333d4444", "foo_bar fooBar FooBAR XMLHttp2Go __init__", "x+=1;y-=2;z**=3!=4", "...!!!???\n\n???", "a.\nb;\n\nc",
    "!@#$%^&*()_+-=[]{}|;':\",./<>?`~", "<!-- x --> </div>\r\n</p>", "http://example.org/a?b=c&d=%20#e",
    "naïve café", "nai\u0308ve cafe\u0301", "e\u0301\u0301 >\u0338 =\u0338 \u0301x", "\u212b \u2126 \u1e9b\u0323 q\u0307\u0323 \uf900 \u0340",
    "ñ n\u0303 N\u0303o", "\u1100\u1161\u11a8 각 \uac00\u11a8", "\u0915\u093c \u0958", "Größe STRASSE straße ﬁ ﬆ Ǆ ǅ ʰ ª",
    "привет мир", "Ελλάδα ΟΔΟΣ", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界！今天是2024年。", "こんにちは世界カタカナ。",
    "안녕하세요 세계", "😀😃 👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 ☺️ 🇫🇷", "𝒜𝓑 𝟘𝟙𝟚 𐍈 𠜎", "a\u200bb a\u200db a\u2060b \ufeffx", "a\u180eb \u180e x", "  \u180ex", "   \u180e ",
    "\u2000\u2001x\u2002 \u2003", "\u2028x\u2029y\u0085z\u000bw\u000cv", "\u3000全角\u3000 空白", "\x00\x01\x1f\x7f", "tab\tsep\tvals\n", "a" * 70,
    "ab" * 120, " " * 40 + "x", "\n" * 9 + "x", "= " * 20, "the" * 60, "-" * 33 + ">", "\u0301" * 5, "ﷺ ﷽", "a\u0300\u0301b",
    "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|>", "<|endoftext", "<<|endoftext|>>", "<|endof<|endoftext|>text|>",
    "hi <mask> there", "hi   <mask>   there", "<mask>x<mask>", "\n<mask>\n", "word", "a word here", "awords sword word.", "word_ word1 1word éword word-word",
    "CAFÉ cafe\u0301 café", "  <strip>  x", "x <strip>\n\n<strip> y", "<ab><abc><abcd> <abc", "<ab><strip> <mask>", "<a<ab<abc<abcd>", "<mask>\u0338 <ab\u0338>",
    "line one\n  line two\n\n    indented\n\ttabbed\n", "int main(void) {\n\treturn 0;\n}\n", "The miller's daughter doesn't mind.\nThey'll say so.",
]

# White space that added tokens strip, and tokens that are white space.
SPACES = [
    "x the\n\nthe", "the \n\n x", "the\n\n\n\n x", "the  \n\n", "the \n the", "the\n x", "a  \n\nthe  b", "the\t<tab> \n\nthe", "the   <tab>", "\t\tthe \n",
    "the\u3000\u3000\n\nx", "the \n\n\u3000y", "the    z", "the  \tw",
]

ADDED = [
    AddedToken("<mask>", lstrip=True, normalized=False, special=True),
    AddedToken("<strip>", rstrip=True, lstrip=True, normalized=False, special=False),
    AddedToken("word", single_word=True, normalized=True, special=False),
    AddedToken("café", normalized=True, special=False),
    AddedToken("<a", normalized=False), AddedToken("<ab>", normalized=False), AddedToken("<abc>", normalized=False), AddedToken("<abcd>", normalized=True),
]


SPACES_ADDED = [
    AddedToken("the", rstrip=True, normalized=False), AddedToken("\n\n", normalized=False),
    AddedToken("\t<tab>", normalized=False), AddedToken("\u3000y", normalized=False),
    AddedToken("    ", normalized=False), AddedToken("  \t", single_word=True, normalized=False),
]


# Special cases of the SentencePiece kinds: marks for spaces, spellings of bytes, special tokens, characters that the
# map below changes.
MARKS = [
    "\u2581", "\u2581\u2581x", " \u2581 x", "x\u2581", "<0x41>", "<0x41><0x0a>x", "<s>", "</s>a", "<s>  a", " <s> x </s> y", "a<unk>b", "q\u4e00\u4e01q\U0001f600",
    "\ufb01n \uff21\uff22 \u00bd", "\u00a8x", "\u00a8", "e\u0301x e\u0301\u0301", "\u00adx", "x\u00ad\u00ad", "\u00ad", "a\tb\r\nc\rd", "\x01\x02x\x01",
    "\u2126\u0301 \u0915\u094d\u0937\u0301", "\u0915\u0301x \u0915\u0301\u0301x", "\u0416\u0434\u0430 x\u0416\u0434\u0430", "   leading", "trailing   ", "  both  ends  ", "the  miller's   daughter", "\n\nthe\n", "noise" * 40,
]

# Rules of a character map: the code points on the left become those on the right.
CHARACTER_MAP = [
    ("\ufb01", "fi"), ("\u00bd", "1\u20442"), ("\u00a8", " \u0308"), ("e\u0301", "\u00e9"), ("\u00ad", ""), ("\x01", ""), ("\t", " "), ("\n", " "),
    ("\r", " "), ("\u3000", " "), ("\u00a0", " "), ("\u2126", "\u03a9"), ("\ufdfa", "\u0635\u0644\u0649 x"), ("\u0915", "k"),
] + [(chr(0xFEE0 + c), chr(c)) for c in range(0x21, 0x7F)]


def byte_level(use_regex, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior=behavior, invert=invert)


def train(pre_tokenizer, normalizer=None, vocab=420, added=(), ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return tokenizer


def with_whole_pieces(tokenizer, pieces):
    """Adds to the vocabulary pieces that no merge makes: only ignore_merges finds them."""
    text = json.loads(tokenizer.to_str())
    vocab = text["model"]["vocab"]
    for piece in pieces:
        vocab[piece] = len(vocab)
    for i, token in enumerate(text["added_tokens"]):
        token["id"] = len(vocab) + i
    return Tokenizer.from_str(json.dumps(text))


def compiled(rules):
    """The base64 text of a character map, as SentencePiece compiles it."""
    path = os.path.join(OUT, "rules.tsv")
    with open(path, "w", encoding="utf-8") as file:
        for old, new in rules:
            file.write(" ".join(f"{ord(c):X}" for c in old) + "\t" + " ".join(f"{ord(c):X}" for c in new) + "\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, model_type="char", vocab_size=400, hard_vocab_limit=False,
        normalization_rule_tsv=path, minloglevel=2)
    os.remove(path)
    spec = field(model.getvalue(), 3)  # ModelProto.normalizer_spec
    return base64.b64encode(field(spec, 2)).decode()  # NormalizerSpec.precompiled_charsmap


def field(message, wanted):
    """The last field `wanted` of a protocol buffer, which is bytes."""
    at, found = 0, None

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 2:
            length = varint()
            if key >> 3 == wanted:
                found = message[at:at + length]
            at += length
        elif kind == 0:
            varint()
        else:
            at += {1: 8, 5: 4}[kind]
    return found


def character_bpe(normalizer=None, pre_tokenizer=None, strip=True, byte_fallback=True, fuse_unk=True, added=(), vocab=620):
    """Trained on words, as SentencePiece does, whatever the pre-tokenizer is later."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256) if byte_fallback]
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=special)
    # Without the lines whose many letters would fill the vocabulary.
    tokenizer.train_from_iterator(CORPUS[:4] + CORPUS[7:] + ["la rivière coule; naïve café"], trainer)
    text = json.loads(tokenizer.to_str())
    text["pre_tokenizer"] = None
    text["added_tokens"] = [token for token in text["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(text))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return tokenizer


def unigram(normalizer, pre_tokenizer, decoder, byte_fallback=False):
    """Pieces of a BPE with decreasing scores: more segmentations of a word, and more ties, than a trainer produces."""
    learned = json.loads(character_bpe(byte_fallback=False, vocab=460).to_str())["model"]["vocab"]
    vocab = [(token, 0.0 if token in ("<unk>", "<s>", "</s>") else -2 - round(id / 40, 1)) for token, id in learned.items()]
    # A letter that occurs only in a longer piece: unknown, or that piece and worse ones after it.
    vocab += [("Жд", -13.5), ("да", -3.0), ("а", -8.0)]
    if byte_fallback:
        vocab += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(vocab, 0, byte_fallback))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    return tokenizer


def sentencepiece_kinds():
    normal, metaspace = normalizers, pre_tokenizers.Metaspace
    prepend = normal.Sequence([normal.Prepend("\u2581"), normal.Replace(" ", "\u2581")])
    character_map = normal.Precompiled(base64.b64decode(compiled(CHARACTER_MAP)))
    spaces = decoders.Metaspace("\u2581", "always")
    bytes_and_spaces = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    gemma_split = pre_tokenizers.Split(" ", "merged_with_previous")
    return {
        "llama2": character_bpe(prepend),
        "mistral": character_bpe(None, metaspace("\u2581", "first", False)),
        "mistral_added": character_bpe(None, metaspace("\u2581", "first", False), added=ADDED),
        "gemma": character_bpe(normal.Replace(" ", "\u2581"), gemma_split, strip=False),
        "unknown_fused": character_bpe(prepend, byte_fallback=False, vocab=380),
        "unknown_single": character_bpe(None, metaspace("\u2581", "always"), byte_fallback=False, fuse_unk=False, vocab=380),
        "t5": unigram(normal.Sequence([character_map, normal.Strip(False, True), normal.Replace(Regex(" {2,}"), "\u2581")]),
                      metaspace("\u2581", "always"), spaces),
        "xlmr": unigram(character_map, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]), spaces),
        "unigram_first": unigram(normal.Sequence([character_map, normal.Strip(True, True)]), metaspace("\u2581", "first"),
                                 decoders.Metaspace("\u2581", "first")),
        "split_first": unigram(character_map, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace("\u2581", "first")]), spaces),
        "joined": character_bpe(normal.Replace(" ", "\u2581"), pre_tokenizers.Split("e", "merged_with_previous"), strip=False),
        "unigram_bytes": unigram(prepend, gemma_split, bytes_and_spaces, byte_fallback=True),
    }


def pieces(tokenizer, text):
    """Bytes of each piece; none for texts with added tokens, which are split before."""
    if "<|endoftext|>" in text or "<mask>" in text:
        return []
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    return [len(piece) for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]


def write(name, value):
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


def added_ids():
    """Lists with ids out of order, with gaps, of entries of the vocabulary, of tokens listed twice, of empty tokens."""
    base = json.load(open(os.path.join(OUT, "gpt2.json"), encoding="utf-8"))
    vocab = base["model"]["vocab"]
    draw, cases = random.Random(7), []
    names = ["<x>", "<y>", "<z>", "<eos>", "<|a b|>", "<x", "the", "\u0120the", "e", "", "\xe9", "\u65e5\u672c", "<pad>", " "]
    while len(cases) < 48:
        count = draw.randrange(1, 8)
        added = []
        for j in range(count):
            text = draw.choice(names)
            stated = draw.choice([len(vocab) + j, vocab.get(text, len(vocab)), draw.randrange(2 * len(vocab)), len(vocab) + count - j])
            flags = {key: draw.random() < 0.2 for key in ("single_word", "lstrip", "rstrip", "normalized")}
            added.append({"id": stated, "content": text, "special": draw.random() < 0.5, **flags})
        texts = ["".join(draw.choice(names + [" ", "b", "  "]) for _ in range(10)) for _ in range(3)]
        tokenizer = Tokenizer.from_str(json.dumps(dict(base, added_tokens=added)))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        cases.append({"added": added, "texts": texts, "ids": ids})
    write("added_ids.json", {"made_by": "tokenizers " + __version__, "cases": cases})


def main():
    os.makedirs(OUT, exist_ok=True)
    sequence = pre_tokenizers.Sequence
    nfc = normalizers.NFC()
    made = {
        "gpt2": train(byte_level(True)),
        "gpt2_added": train(byte_level(True), added=ADDED),
        "spaces_added": train(byte_level(True), added=SPACES_ADDED[:5]),
        "words_added": train(byte_level(True), added=SPACES_ADDED),
        "prefix_space": train(byte_level(True, prefix=True), added=ADDED[:1]),
        "llama3": with_whole_pieces(train(sequence([split(LLAMA3), byte_level(False)]), ignore_merges=True),
                                    ["ĠDON", "Ġworld", "indented", "ĠindentĠ"]),
        "qwen": train(sequence([split(QWEN), byte_level(False)]), normalizer=nfc),
        "qwen_added": train(sequence([split(QWEN), byte_level(False)]), normalizer=nfc, added=ADDED),
        "deepseek": train(sequence([split(p) for p in DEEPSEEK] + [byte_level(False)])),
        "starcoder": train(sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)])),
        "digit_runs": train(sequence([pre_tokenizers.Digits(individual_digits=False), byte_level(True)])),
        "o200k": train(sequence([split(O200K, "removed", True), byte_level(False)])),
        "words": train(sequence([split(r"\w+|[^\w\s]+|\s+"), byte_level(False)])),
    }
    others = sentencepiece_kinds()
    texts = TEXTS + SPACES + MARKS
    cases = {"made_by": "tokenizers " + __version__, "texts": texts, "ids": {}, "pieces": {}, "decoded": {}}
    for name, tokenizer in (made | others).items():
        text = json.loads(tokenizer.to_str())
        if name == "starcoder":  # the older spelling of merges
            text["model"]["merges"] = [" ".join(pair) for pair in text["model"]["merges"]]
        write(name + ".json", text)
        again = Tokenizer.from_str(json.dumps(text))
        cases["ids"][name] = [again.encode(t, add_special_tokens=False).ids for t in texts]
        if name in others:
            cases["decoded"][name] = [again.decode(ids, skip_special_tokens=False) for ids in cases["ids"][name]]
        elif not name.endswith("added"):
            cases["pieces"][name] = [pieces(again, t) for t in texts]
    write("cases.json", cases)

    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = byte_level(True)
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    # Orthant's trainer skips <|endoftext|> in the text, which encoding never splits.
    corpus = CORPUS + [t for t in TEXTS if t and "\x00" not in t and "<|endoftext|>" not in t]
    bare.train_from_iterator(corpus, trainer)
    write("bpe_trainer.json", {"documents": corpus, "vocab_size": bare.get_vocab_size(),
                               "merges": json.loads(bare.to_str())["model"]["merges"]})
    added_ids()


if __name__ == "__main__":
    main()
