#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ids and texts of `orthant` with those of HF `tokenizers` on random strings.

    python tools/fuzz_tokenizers.py [--count 100000] [--seed 1] [--text FILE] [TOKENIZER.json ...]
                                        (needs: pip install tokenizers sentencepiece protobuf)

Strings mix stretches of --text with all of Unicode, control characters, spaces of every kind at the edges and in
long runs, spellings of special and byte tokens, and parts of grapheme clusters. Without a tokenizer, several kinds
are trained on --text first (in a temporary folder): the layouts of Llama 2, Mistral, Gemma, T5 and XLM-R, also with
added tokens, and byte-level ones. Each string is a document of `orthant tokenize --no-eod`, whose ids are read
from the shard. The text of `orthant data decode` is compared with that of tokenizers, in which each invalid byte
is U+FFFD. Characters are those of Unicode 14, the version of the split patterns' tables. Exit 1 on any difference.
"""
import argparse
import array
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SPACES = [" ", "  ", "   ", "    ", "\n", "\n\n", "\t", "\r\n", "\u0085", "\u00a0", "\u2003", "\u2028", "\u3000", "\u2581", "\u2581\u2581"]
ODD = ["<s>", "</s>", "<unk>", "<mask>", "<strip>", " <strip> ", "word", "sword", "word.", "caf\u00e9", "cafe\u0301", "<a", "<ab>", "x y",
       "<0x41>", "<0x0A>", "\u0301", "\u200d", "\ufe0f", "\u00ad", "\ufb01", "\u00bd", "\u2026", "\u2122", "\u1100\u1161\u11a8", "\uac01",
       "e\u0301\u0301", "\u0915\u094d\u0937", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7", "\x01", "\x1f", "\x7f",
       "\ufeff", "\ufffd", "\u180e", "\u212b", "n\u0303", "\u02dc", "\u00a8"]
RANGES = [(0x20, 0x7F, 30), (0x1, 0x500, 20), (0x500, 0x3100, 20), (0x3000, 0x10000, 15), (0x10000, 0x110000, 5), (0x1F000, 0x1FB00, 10)]
ADDED = [
    AddedToken("<mask>", lstrip=True, normalized=False, special=True), AddedToken("<strip>", rstrip=True, lstrip=True, normalized=False),
    AddedToken("word", single_word=True, normalized=True), AddedToken("caf\u00e9", normalized=True), AddedToken("<a", normalized=False),
    AddedToken("<ab>", normalized=False), AddedToken("\u2581\u2581", normalized=False), AddedToken("x y", normalized=True), AddedToken("\n\n", normalized=False),
]


# ---- strings ----

def random_character(draw):
    while True:
        low, high, _ = draw.choices(RANGES, [weight for _, _, weight in RANGES])[0]
        character = chr(draw.randrange(low, high))
        if unicodedata.category(character) not in ("Cs", "Cn"):
            return character


def random_string(draw, base):
    parts = []
    for _ in range(draw.choice([0, 1, 1, 2, 3, 5, 8, 13, 30])):
        kind = draw.random()
        if kind < 0.3:
            start = draw.randrange(len(base))
            parts.append(base[start:start + draw.randrange(1, 40)])
        elif kind < 0.5:
            parts.append(draw.choice(SPACES))
        elif kind < 0.7:
            parts.append(draw.choice(ODD))
        elif kind < 0.95:
            parts.append("".join(random_character(draw) for _ in range(draw.randrange(1, 6))))
        else:
            parts.append(draw.choice(SPACES + ODD + ["a", "ab", "=", "-", "the"]) * draw.randrange(2, 200))
    return "".join(parts)


# ---- tokenizers to compare ----

def character_bpe(lines, normalizer=None, pre_tokenizer=None, strip=True, byte_fallback=True, fuse_unk=True, added=()):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256) if byte_fallback]
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=3000, show_progress=False, special_tokens=special))
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
    return with_added(tokenizer, added)


def with_added(tokenizer, added):
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return tokenizer


def unigram(text_file, folder, rule, normalizer, pre_tokenizer, decoder, byte_fallback=False):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    prefix = os.path.join(folder, "model")
    sentencepiece.SentencePieceTrainer.train(
        input=text_file, model_prefix=prefix, model_type="unigram", vocab_size=3000, normalization_rule_name=rule, hard_vocab_limit=False,
        byte_fallback=byte_fallback, minloglevel=2)
    with open(prefix + ".model", "rb") as file:
        model = sentencepiece_model_pb2.ModelProto.FromString(file.read())
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], model.trainer_spec.unk_id, byte_fallback))
    tokenizer.normalizer = normalizer(model.normalizer_spec.precompiled_charsmap)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    return with_added(tokenizer, [AddedToken(p.piece, normalized=False, special=True) for p in model.pieces if p.type in (2, 3)])


def byte_level(lines, normalizer=None, added=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=3000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    return with_added(tokenizer, added)


def train(text_file, folder):
    with open(text_file, encoding="utf-8") as file:
        lines = file.read().split("\n") + ODD * 5
    metaspace, replace = pre_tokenizers.Metaspace, normalizers.Replace
    prepend = normalizers.Sequence([normalizers.Prepend("\u2581"), replace(" ", "\u2581")])
    split = pre_tokenizers.Split(" ", "merged_with_previous")
    first = metaspace("\u2581", "first", False)
    precompiled = normalizers.Precompiled
    runs = replace(Regex(" {2,}"), "\u2581")
    made = {
        "llama2": character_bpe(lines, prepend),
        "llama2_added": character_bpe(lines, prepend, added=ADDED),
        "mistral": character_bpe(lines, None, first),
        "mistral_added": character_bpe(lines, None, first, added=ADDED),
        "gemma": character_bpe(lines, replace(" ", "\u2581"), split, strip=False),
        "gemma_added": character_bpe(lines, replace(" ", "\u2581"), split, strip=False, added=ADDED),
        "unknown_fused": character_bpe(lines, prepend, byte_fallback=False),
        "unknown_single": character_bpe(lines, None, metaspace("\u2581", "always"), byte_fallback=False, fuse_unk=False),
        "t5": unigram(text_file, folder, "nmt_nfkc", lambda m: normalizers.Sequence([precompiled(m), normalizers.Strip(False, True), runs]),
                      metaspace("\u2581", "always"), decoders.Metaspace("\u2581", "always")),
        "xlmr": unigram(text_file, folder, "nmt_nfkc", precompiled, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]),
                        decoders.Metaspace("\u2581", "always")),
        "unigram_first": unigram(text_file, folder, "nfkc_cf", lambda m: normalizers.Sequence([precompiled(m), normalizers.Strip(True, True)]),
                                 metaspace("\u2581", "first"), decoders.Metaspace("\u2581", "first")),
        "unigram_bytes": unigram(text_file, folder, "identity", lambda _: prepend, metaspace("\u2581", "never", False),
                                 decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]), True),
        "byte_level": byte_level(lines),
        # tokenizers decodes added tokens of this kind through the byte alphabet, where a letter beyond ASCII is a byte.
        "byte_level_nfc": byte_level(lines, normalizers.NFC(), [token for token in ADDED[:6] if token.content.isascii()]),
    }
    paths = []
    for name, tokenizer in made.items():
        paths.append(os.path.join(folder, name + ".json"))
        tokenizer.save(paths[-1])
    return paths


# ---- both sides ----

def ours(orthant, path, strings, folder):
    """Ids and text of each string, read from a shard."""
    corpus, shard = os.path.join(folder, "strings.jsonl"), os.path.join(folder, "shard")
    with open(corpus, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": string}) + "\n" for string in strings)
    subprocess.run([orthant, "tokenize", "--no-eod", "--tokenizer", path, "--out", shard, corpus], check=True, stdout=subprocess.DEVNULL)
    with open(shard + ".idx", "rb") as file:
        index = file.read()
    code, count = index[17], struct.unpack_from("<Q", index, 18)[0]  # after magic and version: data type, sequences
    lengths = array.array("i", index[34:34 + 4 * count])
    ids = array.array({4: "i", 8: "H"}[code])
    with open(shard + ".bin", "rb") as file:
        ids.frombytes(file.read())
    decoded = subprocess.run([orthant, "data", "decode", shard, "--json"], check=True, stdout=subprocess.PIPE).stdout
    texts = [document["text"] for document in json.loads(decoded)]
    at = 0
    for length, text in zip(lengths, texts, strict=True):
        yield ids[at:at + length].tolist(), text
        at += length


def compare(orthant, path, strings, folder):
    reference = Tokenizer.from_file(path)
    different = 0
    results = ours(orthant, path, strings, folder)
    for start in range(0, len(strings), 1000):
        block = strings[start:start + 1000]
        expected = [encoding.ids for encoding in reference.encode_batch(block, add_special_tokens=False)]
        texts = reference.decode_batch(expected, skip_special_tokens=False)
        for string, ids, text, (our_ids, our_text) in zip(block, expected, texts, results):
            if our_ids == ids and our_text.replace("\ufffd", "") == text.replace("\ufffd", ""):
                continue
            different += 1
            if different <= 5:
                print(f"  {ascii(string[:120])}\n    theirs {ids[:40]} {ascii(text[:80])}\n    ours   {our_ids[:40]} {ascii(our_text[:80])}")
    print(f"{os.path.basename(path)}: {different} of {len(strings)} strings differ", flush=True)
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", default=os.path.join(ROOT, "LICENSE"))
    parser.add_argument("--orthant", default=os.path.join(ROOT, "build", "orthant"))
    parser.add_argument("tokenizers", nargs="*", metavar="TOKENIZER.json")
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        base = file.read()
    draw = random.Random(options.seed)
    strings = [random_string(draw, base) for _ in range(options.count)]
    with tempfile.TemporaryDirectory() as folder:
        paths = options.tokenizers or train(options.text, folder)
        different = sum(compare(options.orthant, path, strings, folder) for path in paths)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
