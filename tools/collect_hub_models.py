#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures/hub_models.json from copies of public models' config.json files.

  tools/collect_hub_models.py LIST.tsv      needs transformers and torch; not part of `check`

A line of LIST.tsv is NAME, SOURCE and FILE, separated by tabs: the model's name on the Hugging Face
hub, the location of a public copy of its config.json (repository@commit:path), and the copy on this
machine. For each model the table keeps the keys that differ from transformers' defaults of the family,
and the total and active parameters of transformers' own modules.
"""
import copy
import json
import pathlib
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TABLE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "hub_models.json"
# Families that transformers has under another name only.
CLASS_OF = {"kimi_k2": "deepseek_v3"}
ABOUT_THE_FILE = ("transformers_version", "_name_or_path", "_commit_hash")


def model_type(config):
    if "model_type" in config:
        return config["model_type"]
    return {"GPT2LMHeadModel": "gpt2", "LlamaForCausalLM": "llama"}[config["architectures"][0]]


def class_of(config):
    return CLASS_OF.get(model_type(config), model_type(config))


def settings(config):
    """The keys of a file without those that repeat the defaults of its family."""
    usual = CONFIG_MAPPING[class_of(config)]().to_dict()
    missing = object()
    kept = {key: value for key, value in config.items()
            if key == "model_type" or (usual.get(key, missing) != value and key not in ABOUT_THE_FILE)}
    return dict(sorted(kept.items()))


def count(config):
    """Total and active parameters of the modules."""
    plain = {key: value for key, value in config.items()
             if key not in ("quantization_config", "auto_map", "model_type")}
    with torch.device("meta"):
        built = AutoConfig.for_model(class_of(config), **plain)
        model = AutoModelForCausalLM.from_config(built)
    total = active = 0
    for name, parameter in model.named_parameters():
        total += parameter.numel()
        experts = parameter.shape[0] if ".experts." in name and parameter.dim() >= 2 else 0
        share = built.num_experts_per_tok / experts if experts else 1
        active += round(parameter.numel() * share)
    return total, active


def main():
    models = []
    for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
        name, source, path = line.split("\t")
        config = json.loads(pathlib.Path(path).read_text())
        total, active = count(copy.deepcopy(config))
        models.append({"name": name, "source": source, "parameters": total, "active": active,
                       "settings": settings(config)})
        print(f"{name}: {total} parameters, {active} of a token", flush=True)
    models.sort(key=lambda model: model["name"].lower())
    lines = ",\n".join(json.dumps(model) for model in models)
    TABLE.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
