#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the keys of a config.json that orthant ignores with those that transformers reads.

For each family and each key that orthant or a public model (tests/fixtures/hub_models.json) knows, a
config.json with this key alone is given to orthant. An ignored key must occur neither in the family's
own configuration and modeling code nor in the code that all models share. Keys that orthant refuses
although transformers never reads them are listed: they may show that a model differs from its family.

  tools/check_inert_keys.py [build/orthant]      needs transformers; not part of `check`
"""
import collections
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORTHANT = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "orthant")
CODE = pathlib.Path(transformers.__file__).parent
FAMILIES = {"gpt2": "gpt2", "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "olmo2": "olmo2",
            "mistral": "mistral", "ministral": "ministral", "gemma2": "gemma2",
            "gemma3_text": "gemma3", "mixtral": "mixtral", "qwen3_moe": "qwen3_moe", "olmoe": "olmoe",
            "deepseek_v3": "deepseek_v3", "smollm3": "smollm3", "phi3": "phi3",
            "qwen2_moe": "qwen2_moe", "olmo3": "olmo3", "gpt_oss": "gpt_oss", "glm4_moe": "glm4_moe",
            "kimi_k2": "deepseek_v3"}
# Without it the default is no integer.
NEEDED = {"glm4_moe": {"head_dim": 128}}
SHARED = ("configuration_utils.py", "modeling_rope_utils.py", "masking_utils.py")
# Shared code reads these for every model, but they matter only if the model's own code uses them:
# windows, rotary parameters, and the names of layer types in which they are nested.
ASKED_FOR = {"sliding_window", "layer_types", "head_dim", "num_key_value_heads", "rope_theta",
             "rope_scaling", "rope_parameters", "partial_rotary_factor"}
# Read for every model, but without effect on a training step.
HARMLESS = {"auto_map", "quantization_config", "num_labels", "id2label", "label2id",
            "first_k_dense_replace"}


def known_keys():
    keys = set()
    describe = ROOT / "src" / "core" / "describe"
    rows = (describe / "model_keys.c").read_text().split("static const ot_key model_keys")[-1]
    rows += "".join(path.read_text() for path in sorted((describe / "families").glob("*.c")))
    for names in re.findall(r'(?m)(?:^    \{|\.also = )"([^"]+)"', rows):
        keys |= set(names.split())
    for names in re.findall(r'"([A-Za-z_0-9.|]+\|[A-Za-z_0-9.|]*)"', (describe / "unread_keys.c").read_text()):
        keys |= set(names.split("|"))
    for model in json.loads((ROOT / "tests" / "fixtures" / "hub_models.json").read_text()):
        keys |= set(model["settings"])
    return sorted(keys - {"", "model_type", "model"})


@functools.cache
def without_docstrings(path):
    """Source without docstrings: mentioning a key there does not mean that it is read."""
    return re.sub(r'"""[\s\S]*?"""', "", path.read_text())


def reads(code, key, of_config=False):
    """Whether a source uses the key as an attribute, a field or a text."""
    word = re.escape(key)
    own = rf"|self\.{word}\b|^    {word}:" if of_config else ""
    return bool(re.search(rf'config\.{word}\b|["\']{word}["\']{own}', code, re.M))


def is_read(module, key):
    models, shared = CODE / "models" / module, key not in ASKED_FOR | HARMLESS
    if reads(without_docstrings(models / f"configuration_{module}.py"), key, True):
        return True
    if reads(without_docstrings(models / f"modeling_{module}.py"), key):
        return True
    return shared and any(reads(without_docstrings(CODE / name), key, True) for name in SHARED)


def answer(directory, family, key):
    """How orthant handles a config.json with this key: "ignored", "unknown" or something else."""
    (directory / "config.json").write_text(json.dumps({"model_type": family, **NEEDED.get(family, {}), key: "x"}))
    done = subprocess.run([ORTHANT, "presets", str(directory)], capture_output=True, text=True)
    if f"ignored: {key}\n" in done.stderr:
        return "ignored"
    strange = "unknown key" in done.stderr or "another kind of model" in done.stderr
    return "unknown" if strange else "known"


def main():
    wrong, stricter = 0, collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for family, module in FAMILIES.items():
            ignored = 0
            for key in known_keys():
                said = answer(pathlib.Path(folder), family, key)
                used = is_read(module, key)
                if said == "ignored":
                    ignored += 1
                    wrong += used
                    if used:
                        print(f"wrong {family}: ignores {key}, which transformers reads")
                elif said == "unknown" and not used:
                    stricter[key].append(family)
            print(f"ok    {family}: {ignored} keys are ignored")
    for key, families in stricter.items():
        print(f"refused {key}, which transformers never reads: {', '.join(families)}")
    print(f"{wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
