#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the inputs of tests/fuzz/corpus that are made by hand:  tests/fuzz/make_corpus.py

valid-* must be accepted and refused-* must not (replay.c). Files with other names were found by
fuzzing and stay. Python 3, standard library."""
import gzip
import json
import os
import struct

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
corpus = os.path.join(root, "tests", "fuzz", "corpus")


def put(kind, name, data):
    os.makedirs(os.path.join(corpus, kind), exist_ok=True)
    with open(os.path.join(corpus, kind, name), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def fixture(path):
    with open(os.path.join(root, path), "rb") as file:
        return file.read()


# ---- stores of a teacher: the target adds checksums ----

def store(records, sequence_length=4, vocab_size=300, windows=None, draws=20, ids=20, id_bits=17, version=1):
    windows = len(records) if windows is None else windows
    numbers = [version, sequence_length, -1, vocab_size, windows, draws, ids, 5, 1, 0, id_bits, 7]
    head = b"OTTEACH1" + struct.pack("<12q", *numbers) + b"0" * 96
    at, index = 256 + 8 * (windows + 1), []
    for record in records + [b""]:
        index.append(at)
        at += len(record)
    return head.ljust(256, b"\0") + struct.pack(f"<{len(index)}Q", *index) + b"".join(records)


def record(tokens, id_bits=17):
    """Of each token, its (id, count)."""
    bits = at = 0
    for pairs in tokens:
        for number, count in pairs:
            bits |= (number | count << id_bits) << at
            at += id_bits + 7
    return bytes(24) + bytes(len(pairs) for pairs in tokens) + bits.to_bytes((at + 7) // 8, "little")


def teacher():
    kind, whole = "teacher", [[(7, 20)], [], [(1, 15), (299, 5)], [(0, 20)]]
    put(kind, "valid-two", store([record(whole), record(whole[::-1])]))
    put(kind, "valid-wide", store([record(whole, 24)], id_bits=24, vocab_size=200000))
    put(kind, "refused-id", store([record([[(300, 20)], [], [], []])]))
    put(kind, "refused-sum", store([record([[(7, 19)], [], [], []])]))
    put(kind, "refused-length", store([record(whole)[:-1]]))
    put(kind, "refused-windows", store([record(whole)], windows=1 << 39)[:400])
    put(kind, "refused-sequence", store([record(whole)], sequence_length=1 << 24))
    put(kind, "refused-version", store([record(whole)], version=2))
    put(kind, "refused-empty", b"")


# ---- safetensors ----

def tensors(header, data_bytes):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text)) + text.encode() + bytes(data_bytes)


def one(dtype="F32", shape=(1,), offsets=(0, 4), **more):
    return {"w": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}}


def safetensors():
    kind = "safetensors"
    put(kind, "valid-empty", tensors({}, 0))
    put(kind, "valid-one", tensors(one(), 4))
    put(kind, "valid-metadata", tensors({"__metadata__": {"format": "pt"}, **one()}, 4))
    put(kind, "valid-types", tensors({
        name: {"dtype": name, "shape": [2, 1], "data_offsets": [2 * i, 2 * i + 2]}
        for i, name in enumerate(["BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"])}, 10))
    put(kind, "valid-no-elements", tensors(one(shape=(0, 1 << 40), offsets=(0, 0)), 0))
    put(kind, "valid-escapes", tensors('{"\\u00e9\\ud83d\\ude00":' + json.dumps(one()["w"]) + "}", 4))
    put(kind, "refused-length-2-to-64", b"\xff" * 8 + b"{}")
    put(kind, "refused-length-beyond-end", struct.pack("<Q", 1000) + b"{}")
    put(kind, "refused-length-of-gigabytes", struct.pack("<Q", 1 << 36) + b"{}")
    put(kind, "refused-truncated", tensors(one(), 4)[:-3])
    put(kind, "refused-overflow", tensors(one(shape=(1 << 32, 1 << 32)), 4))
    put(kind, "refused-overflow-bits", tensors(one(shape=(1 << 62,), offsets=(0, 0)), 0))
    put(kind, "refused-negative", tensors(one(shape=(-1,)), 4))
    put(kind, "refused-nine-dimensions", tensors(one(shape=(1,) * 9), 4))
    put(kind, "refused-deep", tensors('{"w":' + "[" * 2100, 0))
    put(kind, "refused-deep-objects", tensors('{"w":{"a":' * 500, 0))
    put(kind, "refused-deep-shape", tensors('{"w":{"shape":' + "[" * 2100, 0))
    put(kind, "refused-twice", tensors('{"w":%s,"w":%s}' % ((json.dumps(one()["w"]),) * 2), 4))
    put(kind, "refused-nul-in-name", tensors({"a\0b": one()["w"]}, 4))
    put(kind, "refused-long-name", tensors({"n" * 513: one()["w"]}, 4))
    put(kind, "refused-gap", tensors(one(offsets=(4, 8)), 8))
    put(kind, "refused-not-utf8", tensors("{}", 0)[:8] + b"{\xff")


# ---- the manifest of a checkpoint; without "checksum" the target adds the right one ----

def manifest():
    kind = "manifest"
    mesh = '"mesh": {"pp": 1, "vpp": 1, "dp_replicate": 1, "dp_shard": 2, "cp": 1, "ep": 1, "tp": 1, "ranks": 2}'
    head = '{"format": 1, "step": 4, "config": {"seed": 1}, ' + mesh + ', "data": {"next_sample": 8, "tokens": 512}'
    entry = '{"bytes": 5, "xxh3_128": "%s", "piece_bytes": 4, "pieces_xxh3_64": "%s"}' % ("0" * 32, "a" * 32)

    def files(name, value=entry):
        return head + ', "files": {"%s": %s}' % (name, value)

    put(kind, "valid-files", files("model.safetensors"))
    put(kind, "valid-state", head + ', "state": {"loss": 1.5}, "files": {}')
    for name, bad in (("parent", "../x"), ("absolute", "/etc/passwd"), ("below", "a/b"), ("nul", "a\\u0000b"),
                      ("hidden", ".x"), ("dots", ".."), ("empty", ""), ("backward", "a/../../x")):
        put(kind, "refused-name-" + name, files(bad))
    put(kind, "refused-checksum", files("model.safetensors") + ', "checksum": "%s"}' % ("0" * 32))
    put(kind, "refused-checksum-missing", files("model.safetensors") + ', "cheksum": ""}, "checksum"')
    put(kind, "refused-bytes-2-to-63", files("m", entry.replace('"bytes": 5', '"bytes": 9223372036854775808')))
    put(kind, "refused-bytes-negative", files("m", entry.replace('"bytes": 5', '"bytes": -5')))
    put(kind, "refused-piece-bytes-0", files("m", entry.replace('"piece_bytes": 4', '"piece_bytes": 0')))
    put(kind, "refused-piece-bytes-huge", files("m", entry.replace(
        '"piece_bytes": 4, "pieces_xxh3_64": "%s"' % ("a" * 32),
        '"piece_bytes": 9223372036854775807, "pieces_xxh3_64": "%s"' % ("a" * 16))))
    put(kind, "refused-mesh", files("m").replace('"pp": 1', '"pp": 4294967296'))
    put(kind, "refused-format", files("m").replace('"format": 1', '"format": 2'))
    put(kind, "refused-deep", head + ', "files": {"a": ' + "[" * 2100)
    put(kind, "refused-no-files", head)


# ---- trees: JSON, YAML, settings, other software's ----

def trees():
    model = '"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, ' \
            '"vocab_size": 256, "intermediate_size": 128'
    put("json", "valid-model", "{" + model + "}")
    put("json", "valid-preset-deepseek-v3", fixture("presets/models/deepseek-v3.json"))
    put("json", "valid-preset-gemma3-1b", fixture("presets/models/gemma3-1b.json"))
    put("json", "valid-preset-gpt-oss-20b", fixture("presets/models/gpt-oss-20b.json"))
    put("json", "valid-non-finite", "{" + model + ', "id2label": {"0": NaN, "1": -Infinity}}')
    put("json", "refused-deep", "[" * 2100)
    put("json", "refused-deep-objects", '{"a":' * 2100)
    put("json", "refused-65-deep", "[" * 65 + "]" * 65)
    put("json", "refused-twice", '{"steps": 1, "steps": 2}')
    put("json", "refused-zero-byte-after-number", b'{"":1\0}')
    put("json", "refused-nul", '{"a\\u0000b": 1}')
    put("json", "refused-surrogate", '{"a": "\\ud800"}')
    put("json", "refused-number", '{"steps": 1e999999999}')
    put("json", "refused-huge-model", "{" + model.replace('"num_hidden_layers": 2', '"num_hidden_layers": 1e18') + "}")
    run = "model: {" + model.replace('"', "") + "}\ndata:\n  train: [a]\n  sequence_length: 16\nsteps: 4\n"
    put("yaml", "valid-run", run)
    put("yaml", "valid-cluster-gb200", fixture("presets/clusters/gb200-nvl72.yaml"))
    put("yaml", "valid-engine-megatron", fixture("presets/engines/megatron-core.yaml"))
    put("yaml", "refused-deep", "[" * 2100)
    put("yaml", "refused-deep-maps", "{a: " * 2100)
    put("yaml", "refused-deep-dashes", "- " * 2100)
    put("yaml", "refused-deep-indent", "".join(" " * i + "a:\n" for i in range(100)))
    put("yaml", "refused-anchor", "a: &x [1]\nb: *x\n")
    put("yaml", "refused-laughs", "".join("l%d: &l%d [%s]\n" % (i, i, ", ".join(["*l%d" % (i - 1)] * 9) if i else "lol")
                                          for i in range(9)))
    put("yaml", "refused-tag", "a: !!python/object/apply:os.system [id]\n")
    put("yaml", "refused-merge", "<<: {a: 1}\n")
    put("yaml", "refused-documents", "a: 1\n---\nb: 2\n")
    put("yaml", "refused-control", b"a: \x01\n")
    put("yaml", "refused-not-utf8", b"a: \xff\xfe\n")
    put("yaml", "refused-huge-layers", run.replace("num_hidden_layers: 2", "num_hidden_layers: 100000000"))
    sets = run_sets()
    put("settings", "valid-run", sets)
    put("settings", "refused-no-equals", "steps")
    put("settings", "refused-index", sets + "\ndata.train.4000000000=x")
    put("settings", "refused-many-dots", "a" + ".a" * 2000 + "=1")
    put("settings", "refused-deep", sets + "\noptimizer.betas=" + "[" * 3000)
    put("settings", "refused-number", sets + "\nsteps=99999999999999999999Ti")
    put("settings", "refused-real", sets + "\noptimizer.lr=3e-4s")
    for name in sorted(os.listdir(os.path.join(root, "tests/fixtures/import"))):
        put("import", "valid-" + name.replace(".", "-"), fixture("tests/fixtures/import/" + name))
    put("import", "refused-deep-toml", "[model]\n[training]\nx = " + "[" * 2100)
    put("import", "refused-deep-script", "python x.py --num-layers " + "$((" * 700)
    put("import", "refused-nul", b"[model]\nname = 'a'\n\0[training]\n")


def run_sets():
    return "\n".join(("model=llama3-8b", "data.train=[a, b]", "steps=1k", "data.sequence_length=4k",
                      "optimizer.lr=3e-4", "model.num_hidden_layers=2"))


def scripts():
    put("shell", "valid-flags", 'A=(--x 1)\nB=${C:-$((2*3))}\nif [ "$B" -gt 4 ]; then A+=(--y "$B"); fi\n'
        'torchrun --n 8 train.py "${A[@]}" # end\n')
    put("shell", "valid-here-document", "cat <<EOF > f\n$X\nEOF\nfor i in 1 2; do python a.py --i $i; done\n")
    put("shell", "refused-deep-if", "if [ 1 -eq 1 ]; then\n" * 200)
    put("shell", "deep-arithmetic", "a=" + "$((" * 700)
    put("shell", "refused-doubling", "a=xxxxxxxxxxxxxxxx\n" + "a=$a$a\n" * 40 + "python t.py $a\n")
    put("shell", "parentheses", "((" * 700)
    put("shell", "braces", "${" * 700)
    put("shell", "open-quote", "python 'a")


# ---- tokenizers ----

def byte_alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    return {**{b: chr(b) for b in kept}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def tokenizers():
    letters = [byte_alphabet()[b] for b in range(256)]
    vocab = {c: i for i, c in enumerate(letters)}
    vocab.update({"He": 256, "ll": 257, "Hell": 258})
    bpe = {"type": "BPE", "vocab": vocab, "merges": ["H e", "l l", "He ll"]}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    whole = {"version": "1.0", "added_tokens": [{"id": 259, "content": "<|endoftext|>", "special": True}],
             "normalizer": {"type": "NFC"}, "pre_tokenizer": level, "decoder": {"type": "ByteLevel"}, "model": bpe}

    def text(**changes):
        return json.dumps({**whole, **changes}, ensure_ascii=False, separators=(",", ":"))

    def split(regex):
        return text(pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
            {**level, "use_regex": False}]})

    kind = "tokenizer"
    put(kind, "valid-byte-level", text())
    put(kind, "valid-split", split("\\p{L}+|\\p{N}{1,3}|[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"))
    put(kind, "valid-beside", '#{"eos_token": "a", "bos_token": {"content": "b"}, "chat_template": [{"name": "default", '
        '"template": "t"}]}\0{"eos_token_id": [1, 2]}\0{{ messages }}\\n')
    put(kind, "refused-beside-ends", '#{}\0{"eos_token_id": [1, "2"]}')
    put(kind, "refused-beside-deep", '#{"eos_token":' + "[" * 2100)
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["\u2581", -2.5], ["\u2581a", -3], ["e", -4.5]]}
    put(kind, "valid-unigram", json.dumps({
        "added_tokens": [], "normalizer": None, "model": unigram,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}}))
    fallback = {"<unk>": 0, **{"<0x%02X>" % b: b + 1 for b in range(256)}, "\u2581": 257, "a": 258, "\u2581a": 259}
    put(kind, "valid-byte-fallback", json.dumps({
        "added_tokens": [{"id": 0, "content": "<unk>", "special": True}],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": fallback, "merges": ["\u2581 a"], "byte_fallback": True,
                  "unk_token": "<unk>", "fuse_unk": True}}))
    put(kind, "valid-gpt2-pair", json.dumps(vocab).encode() + b"\0#version: 0.2\nH e\nl l\nHe ll\n")
    put(kind, "refused-deep", '{"model":' + "[" * 2100)
    put(kind, "refused-not-json", "tokens")
    put(kind, "refused-huge-id", text(model={**bpe, "vocab": {**vocab, "x": (1 << 24) - 1}}))
    put(kind, "valid-huge-added-id", text(added_tokens=[{"id": (1 << 24) - 1, "content": "<x>", "special": True}]))
    put(kind, "refused-id-2-to-63", text(model={**bpe, "vocab": {**vocab, "x": 1 << 62}}))
    put(kind, "refused-merge", text(model={**bpe, "merges": ["H zz"]}))
    put(kind, "refused-backtracking", split("(?:(?:[^\\s]+)+)+(?=\\x{1}\\x{2})|.*.*.*.*.*.*.*.*\\x{3}"))
    put(kind, "refused-growing", text(normalizer={"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 16}] * 12}))
    put(kind, "refused-pattern-of-nothing", split("a*"))
    put(kind, "refused-pattern-open", split("(" * 300))
    put(kind, "refused-gpt2-merges", json.dumps(vocab).encode() + b"\0H\n")


# ---- tokens and texts ----

def shards():
    def shard(how, idx, data):
        return struct.pack("<BH", how, len(idx)) + idx + data

    def index(kind=8, lengths=(3, 2), offsets=(0, 6), documents=(0, 1, 2), counts=None, version=1):
        sequences, entries = counts or (len(lengths), len(documents))
        return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, kind, sequences, entries)
                + struct.pack("<%di" % len(lengths), *lengths) + struct.pack("<%dq" % len(offsets), *offsets)
                + struct.pack("<%dq" % len(documents), *documents))

    kind, tokens = "shard", struct.pack("<5H", 1, 2, 3, 4, 0)
    put(kind, "valid-megatron", shard(0x14, index(), tokens))
    put(kind, "valid-megatron-int32", shard(0x14, index(4, (1, 1), (0, 4)), struct.pack("<2i", 7, 8)))
    put(kind, "valid-llmc", shard(0x00, b"", struct.pack("<3i", 20240520, 1, 5) + bytes(1012) + tokens))
    put(kind, "valid-llmc-u32", shard(0x00, b"", struct.pack("<3i", 20240801, 7, 1) + bytes(1012) + bytes(4)))
    put(kind, "valid-nanogpt", shard(0x43, b"", tokens))
    put(kind, "valid-meta", shard(0x20, b"", json.dumps({
        "tool": "t", "tokenizer": {"path": "p", "xxh3_128": "0" * 32}, "bin_xxh3_128": "0" * 32, "vocab_size": 3,
        "text_bytes": 4, "eod": 0}).encode()))
    put(kind, "refused-counts-2-to-61", shard(0x04, index(counts=(1 << 61, 3)), tokens))
    put(kind, "refused-counts-wrap", shard(0x04, index(counts=((1 << 64) // 12 + 2, 3)), tokens))
    put(kind, "refused-no-documents", shard(0x04, index(documents=()), tokens))
    put(kind, "refused-negative-length", shard(0x04, index(lengths=(-3, 8)), tokens))
    put(kind, "refused-huge-lengths", shard(0x04, index(5, (2147483647,) * 2, (0, 17179869176)), tokens))
    put(kind, "refused-offset", shard(0x04, index(offsets=(0, 1 << 62)), tokens))
    put(kind, "refused-document", shard(0x04, index(documents=(0, 1 << 40, 2)), tokens))
    put(kind, "refused-truncated", shard(0x04, index(), tokens[:-1]))
    put(kind, "refused-type", shard(0x04, index(kind=7), tokens))
    put(kind, "refused-version", shard(0x04, index(version=2), tokens))
    put(kind, "refused-id", shard(0x14, index(), struct.pack("<5H", 1, 2, 3, 4, 300)))
    put(kind, "refused-llmc-count", shard(0x00, b"", struct.pack("<3i", 20240520, 1, -5) + bytes(1012) + tokens))
    put(kind, "refused-odd", shard(0x03, b"", tokens[:-1]))
    put(kind, "refused-meta-deep", shard(0x20, b"", b'{"tokenizer":' + b"[" * 2100))


def texts():
    import zlib
    kind, line = "corpus", '{"text": "a b"}\n\n{"text": "\\u0000 c", "more": [1]}\n'
    put(kind, "valid-text", b"\0\1" + b"some words of a text \xc3\xa9\n" * 400)
    put(kind, "valid-lines", b"\1\0" + line.encode())
    put(kind, "valid-gzip", b"\2\1" + gzip.compress(b"a text", mtime=0) + gzip.compress(b" of two parts", mtime=0))
    put(kind, "valid-lines-gzip", b"\3\0" + gzip.compress(line.encode(), mtime=0))
    # One frame of Zstandard: a raw block of five bytes, the last.
    frame = b"\x28\xb5\x2f\xfd\x20\x05\x29\0\0hello"
    put(kind, "valid-zstd", b"\4\0" + frame)
    put(kind, "refused-zstd-truncated", b"\4\0" + frame[:-1])
    put(kind, "refused-zstd-window", b"\4\0" + b"\x28\xb5\x2f\xfd\x00\xff" + b"\x29\0\0hello")
    put(kind, "refused-gzip-truncated", b"\2\1" + gzip.compress(b"a text", mtime=0)[:-9])
    put(kind, "refused-gzip-not", b"\2\1plain text")
    put(kind, "refused-lines-deep", b"\1\0" + b"[" * 2100)
    put(kind, "refused-lines-no-text", b'\1\0{"txt": "a"}\n')
    put(kind, "refused-lines-twice", b'\1\0{"text": "a", "text": "b"}\n')
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    put(kind, "refused-long-line-gzip", b"\3\0" + bomb.compress(b'{"text": "' + b"a" * (1 << 20) + b'"}\n') + bomb.flush())


def small_ones():
    put("order", "valid-order", b"\x02" + b"0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n")
    put("order", "valid-layout", b"\x03" + b"E|t*8L")
    put("order", "refused-deadlock", b"\x02" + b"0B0\n1F0\n")
    put("order", "refused-number", b"\x02" + b"0F99999999999999999999\n")
    put("order", "refused-lines", b"\x02" + b"\n0F0" * 1000)
    put("order", "refused-layout-count", b"\x03" + b"E|t*99999999999999999999L")
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    put("index", "valid-two", json.dumps(index))
    for name, bad in (("parent", "../1.safetensors"), ("absolute", "/etc/passwd"), ("dots", ".."), ("dot", "."),
                      ("empty", ""), ("below", "x/1.safetensors"), ("missing", "3.safetensors"), ("number", 7),
                      ("other", "2.safetensors"), ("hidden", ".x")):
        put("index", "refused-" + name, json.dumps({"weight_map": {**index["weight_map"], "a": bad}}))
    put("index", "refused-nul", '{"weight_map": {"a": "1.safetensors\\u0000x"}}')
    put("index", "refused-deep", '{"weight_map":' + "[" * 2100)
    put("index", "refused-many", json.dumps({"weight_map": {str(i): "%d.x" % i for i in range(500)}}))
    step = '{"step":%d,"loss":%s,"grad_norm":1,"lr":1e-3,"tokens":%d,"step_seconds":%s,"tokens_per_second":9,' \
           '"mfu":0.5,"exposed_seconds":{"tp":0.1,"dp":0.2},"gradient_norm/layers.0":2}\n'
    events = '{"event":"start","time":1e9,"step":0,"ranks":2,"attempt":1,"from":"init"}\n' \
             '{"event":"first_step","time":1000000001.5,"step":1}\n' \
             '{"event":"save","time":1000000002,"step":2,"seconds":0.5,"blocked_seconds":0.1,"bytes":9}\n' \
             '{"event":"failure","time":1000000003,"attempt":1,"kind":"rank","rank":1,"host":"h","exit":9}\n' \
             '{"event":"restart","time":1000000004,"attempt":2,"ranks":2,"waited_seconds":1}\n' \
             '{"event":"spike","time":1000000005,"step":2,"name":"loss","z":9,"first_sample":1,"last_sample":4,' \
             '"action":"note"}\n{"event":"stop","time":1000000006,"step":3,"reason":"end"}\n'
    lines = "".join(step % (i + 1, 5 - i, 64 * i, 0.5) for i in range(3))
    put("report", "valid-run", lines + '{"step":2,"val_loss":3}\n{"step":2,"spike/loss":9}\n\0' + events)
    put("report", "valid-null", step % (1, "null", 1, "null"))
    put("report", "valid-huge", (step % (9e15 - 1, 1e308, 1 << 62, 1e308)) + step % (1, -1e308, 1, -1e308) + "\0"
        + events.replace("1e9", "-1e308").replace("1000000006", "1e308"))
    put("report", "valid-beyond-double", step % (1, "1e999", 1, "-1e999") + step % (2, "1e-999", 1, "0"))
    put("report", "refused-negative-step", step % (-1, 1, 1, 1))
    put("report", "refused-deep", '{"step":1,"a":' + "[" * 2100 + "\n")
    put("report", "refused-no-step", '{"loss":1}\n')
    put("report", "refused-event-text", '\0{"event":"start","time":"now"}\n')
    put("report", "refused-step-2-to-63", '{"step":9223372036854775807,"val_loss":1}\n\0')
    put("report", "refused-event-step-2-to-63", '\0{"event":"stop","time":1,"step":9223372036854775807}\n')
    put("report", "refused-event-twice", '\0{"event":"start","event":"stop","time":1}\n')
    put("records", "valid-lines", '{"step":1,"loss":2.5}\n{"step":2}\n{"step":3}\n{"st')
    put("records", "valid-huge-step", '{"step":99999999999999999999}\n{"step":-1}\n')
    head = "orthant gemm.table 1\ncuBLASLt 0 on a GPU\n"
    key = "64 64 64 64 64 64 64 16 16 16 16 0 14 14 68 0 1 0"
    words = " : 1 2 3 4 5 6 7 8\n"
    put("gemm", "valid-rows", head + key + words + key.replace("64", "32") + " : own\n")
    put("gemm", "valid-bias", head + "1 2 3 4 5 6 7 4 8 16 2 2 1 1 70 1 0 1" + words)
    put("gemm", "valid-row-twice", head + (key + words) * 2)
    put("gemm", "valid-empty", head)
    put("gemm", "refused-title", "orthant gemm.table 2\ncuBLASLt 0 on a GPU\n")
    put("gemm", "refused-place", head.replace("a GPU", "a\x1b[2J GPU"))
    put("gemm", "refused-no-end", head[:-1])
    put("gemm", "refused-algorithm", head + key + words.replace("1 2", "13 2"))
    put("gemm", "refused-workspace", head + key + words.replace("1 2", "1 99999999999"))
    put("gemm", "refused-alignment", head + key.replace("16 0", "16 9223372036854775807") + words)
    put("gemm", "refused-negative", head + "-" + key + words)
    put("gemm", "refused-lines-in-row", head + key.replace(" ", "\n") + words)
    put("gemm", "refused-truncated", head + key + words[:-3])
    put("score", "valid-lines", '{"text": "ab"}\n{"context": "a", "continuation": "b"}\n{"tokens": [0, 299]}')
    put("score", "valid-continuation-only", '{"context": "", "continuation": "b"}\n')
    for name, line in (("empty-line", "\n"), ("no-object", "[1]"), ("nothing", "{}"), ("no-text", '{"text": 1}'),
                       ("no-tokens", '{"tokens": []}'), ("id", '{"tokens": [300]}'), ("id-negative", '{"tokens": [-1]}'),
                       ("id-real", '{"tokens": [1.0]}'), ("id-2-to-64", '{"tokens": [18446744073709551616]}'),
                       ("long", '{"text": "%s"}' % ("a" * 65)), ("deep", '{"tokens": ' + "[" * 2100),
                       ("half", '{"context": "a"}'), ("twice", '{"text": "a", "text": "b"}'), ("zero", '{"text": "a"}\0'),
                       ("control", '{"\x1b[2J": 1}')):
        put("score", "refused-" + name, line + "\n")
    scored = '{"tokens": [5, 6], "logprobs": [-1.5, -0.25]}'
    put("logprobs", "valid-scores", scored + '\n{"context_tokens": [1], "tokens": ["a"], "logprobs": [null]}\n')
    put("logprobs", "valid-server", '{"choices": [{"logprobs": {"tokens": ["a", "token_id:3"], "token_logprobs": [null, '
        '-1], "top_logprobs": [null, {"b": -0.5}]}, "prompt_token_ids": [7], "token_ids": [3]}]}\n')
    put("logprobs", "valid-chat", '{"prompt_logprobs": [null, {"2": {"logprob": -1.5, "decoded_token": "b"}}], "choices": '
        '[{"logprobs": {"content": [{"token": "c", "logprob": -1, "id": 4, "top_logprobs": []}]}}]}\n')
    put("logprobs", "valid-sglang", '{"meta_info": {"id": "x", "input_token_logprobs": [[null, 1, null], [-2, 3, "d"]], '
        '"output_token_logprobs": [[-1, 2, null]], "output_top_logprobs": [[[-1, 2, null]]]}}\n')
    for name, line in (("positive", scored.replace("-1.5", "1.5")), ("id", scored.replace("5,", "-5,")),
                       ("length", scored.replace("5, ", "")), ("form", "{}"), ("deep", "[" * 3000)):
        put("logprobs", "refused-" + name, line + "\n")
    put("records", "valid-zero-bytes", b'{"step":1}\n\0\0\0\n{"step":2}\n')


def requests():
    """Bodies of requests to a server, after the letter of their kind."""
    put("request", "valid-echo", 'p{"model": "mock", "prompt": [[77,111]], "temperature": 0, "max_tokens": 1, '
        '"logprobs": 1, "seed": 1234, "echo": true}')
    put("request", "valid-texts", 'p{"prompt": ["a","\\u00e9"], "max_tokens": 12, "temperature": 0.5, "top_p": 0.9, '
        '"top_k": -1, "min_p": 0.1, "n": 3, "stop": ["\\n", ".", ""], "seed": -5, "stream": true, '
        '"stream_options": {"include_usage": true}}')
    put("request", "valid-chat", 'c{"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": '
        '[{"type": "text", "text": "a"}, {"text": "b"}]}], "max_completion_tokens": 4, "logprobs": true, '
        '"top_logprobs": 2}')
    put("request", "valid-tokenize", 't{"prompt": "test", "add_special_tokens": false}')
    put("request", "valid-detokenize", 'd{"tokens": [0, 256]}')
    # Of a teacher: two sequences of three tokens, five of the vocabulary, two ids at most.
    lesson = ('l{"tokens": [0,1,2,3,4,0], "targets": [1,2,-1,4,0,-1], "positions": [0,1,0,0,1,2], '
              '"documents": [0,0,2,0,0,0], "keys": [1,-2,3,4,5,9223372036854775807]}')
    answer = ('a{"teacher": "' + 32 * "a" + '", "logprobs": [-1,-2,0,-1.5,-1,0], "entropy": [1,1,0,1,1,0], '
              '"count": [2,1,0,1,2,0], "ids": [0,4,1,2,0,1], "weights": [0.5,0.5,1,1,0.75,0.25]}')
    facts = ('f{"teacher": "' + 32 * "a" + '", "tokenizer": "' + 32 * "0" + '", "sequences": 2, "sequence_length": 3, '
             '"draws": 4, "ids": 2, "compute_bits": 32, "vocab_size": 5, "positions": 3}')
    put("request", "valid-lesson", lesson)
    put("request", "valid-answer", answer)
    put("request", "valid-facts", facts)
    for name, text, old, new in (("token", lesson, "[0,1,2,3,4,0]", "[0,1,2,3,5,0]"),
                                 ("document", lesson, "[0,0,2,0,0,0]", "[0,1,0,0,0,0]"),
                                 ("later-document", lesson, "[0,0,2,0,0,0]", "[0,2,2,0,0,0]"),
                                 ("position", lesson, "[0,1,0,0,1,2]", "[0,1,0,0,1,3]"),
                                 ("keys", lesson, '"keys"', '"kays"'), ("teacher", answer, "aaaa", "aaab"),
                                 ("count", answer, "[2,1,0,1,2,0]", "[2,1,0,3,0,0]"),
                                 ("sum", answer, "[2,1,0,1,2,0]", "[2,1,0,1,1,0]"), ("id", answer, "[0,4,", "[0,5,"),
                                 ("number", answer, "-1.5", "null"), ("hash", facts, "aaaa", "aaa")):
        changed = text.replace(old, new, 1)
        assert changed != text
        put("request", "refused-lesson-" + name, changed)
    for name, body in (("large-id", 'p{"prompt": [65, 66, 2147483648]}'), ("no-prompt", 'p{"prompt": [], "n": 1e9}'),
                       ("deep", 'p{"prompt": [[[1]]]}'), ("many-logprobs", 'p{"prompt": "a", "logprobs": 99}'),
                       ("no-content", 'c{"messages": [{"role": "user"}]}'), ("negative", 'd{"tokens": [-1]}'),
                       ("twice", 'p{"prompt": "a", "prompt": "b"}'), ("many", 'p{"prompt": ["a","b","c"], "n": 99}'),
                       ("no-text", 't{"prompt": 1}'), ("empty", "p")):
        put("request", "refused-" + name, body)


# ---- records of a training step: the target writes the tensor files ----

def step_record():
    """Texts of two ranks, then the bytes of their tensors, divided by zero bytes."""
    def text(rank, world, places, **more):
        return json.dumps({"format": "orthant-step-1", "rank": rank, "world": world, **more, "tensors": places})

    def mesh(rank, **more):
        return {"mesh": {"dp": 1, "tp": 2}, "coordinates": {"dp": 0, "tp": rank}, **more}

    def words(*numbers):
        return struct.pack(f"<{len(numbers)}i", *numbers)

    kind = "step_record"
    ids = words(1, 2, 3, 4, 5, 6, 7, 8)
    tokens = {"batch/0.ids": {}, "batch/0.labels": {}}
    batch = {"batches": [{"micro": 0, "shifted": True}], "scalars": {"loss": "nan", "norm": 1.5}}
    group = {"names": ["w"], "settings": {"lr": 1e-3, "betas": [0.9, 0.95], "foreach": None}}
    one = text(0, 1, {"grad/w": {}, "weight/w": {"shape": [3, 2], "flat": [0, 6]}, "new/x": 1, **tokens}, **batch,
               optimizer={"class": "AdamW", "groups": [group]}, aliases={"v": "w"}, moment="", note="n", dropout=0.1)
    put(kind, "valid-one", one.encode() + b"\0\0" + bytes(72) + ids + ids)
    shards = [text(r, 2, {"grad/w": {"shape": [4, 3], "offset": [2 * r, 0]},
                          "grad/v": {"shape": [4], "partial": ["tp"]}, "act/0.l": {"shape": [2, 2], "flat": [2 * r, 2]},
                          "grad/l.mlp.experts.gate_up_proj": {}}, **mesh(r)) for r in range(2)]
    put(kind, "valid-shards", "\0".join(shards))
    whole = {"batch/0.ids": {}, "batch/0.labels": {}, "batch/0.positions": {}, "batch/0.documents": {}, "batch/0.weight": {},
             "routes/0.l": {}}
    copies = [text(r, 2, whole, **mesh(r), batches=[{"micro": 0, "shifted": False}]) for r in range(2)]
    documents = struct.pack("<8q", 0, 0, 1, 1, 2, 2, 2, 3)
    put(kind, "valid-batches", "\0".join(copies).encode() + b"\0" + ids + ids + documents + words(*range(8)) + bytes(32))
    put(kind, "valid-runs", "\0".join(text(r, 2, {
        "grad/w": {"shape": [2, 6], "offset": [0, 2 * r], "block": [2, 4], "flat": [[0, 1, 1, 3, 4, 2], [2, 2, 4, 4]][r]},
        "grad/v": {"shape": [2, 4], "flat": [4 * r, 4]}}) for r in range(2)))
    put(kind, "refused-holes", "\0".join(text(r, 2, {"grad/w": {"shape": [4, 3], "offset": [r, 0]}}) for r in range(2)))
    put(kind, "refused-overlap", "\0".join(text(r, 2, {"grad/w": {"shape": [3, 3], "offset": [r, 0]}})
                                           for r in range(2)).encode() + b"\0" + struct.pack("<6f", *range(6)))
    put(kind, "refused-rank", text(0, 2, {}))
    put(kind, "refused-world", text(0, 1 << 40, {}))
    put(kind, "refused-format", text(0, 1, {}).replace("step-1", "step-0"))
    put(kind, "refused-size", text(0, 1, {"grad/w": {"shape": [1 << 40, 3]}}))
    put(kind, "refused-overflow", text(0, 1, {"grad/w": {"shape": [1 << 62, 1 << 62]}}))
    put(kind, "refused-axis", text(0, 1, {"grad/w": {"partial": ["tp"]}}))
    put(kind, "refused-mesh", "\0".join(text(r, 2, {}, mesh={"dp": 2}, coordinates={"dp": 0}) for r in range(2)))
    put(kind, "refused-id", text(0, 1, tokens, **batch).encode() + b"\0\0" + words(31) + bytes(60))
    put(kind, "refused-no-labels", text(0, 1, {"batch/0.ids": {}}, **batch))
    put(kind, "refused-alias", one.replace('"v": "w"', '"\\u001b[2J": 1'))
    put(kind, "refused-deep", '{"format": "orthant-step-1", "future": ' + "[" * 3000)
    put(kind, "refused-empty", b"")


safetensors()
step_record()
teacher()
manifest()
trees()
scripts()
tokenizers()
shards()
texts()
small_ones()
requests()
