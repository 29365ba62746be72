# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer, trl's SFTTrainer and accelerate, on one and two ranks, with gradient accumulation."""
import importlib.util
import os
import tempfile

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from transformers import Trainer, TrainingArguments

from models import IGNORED, adamw, batches, config_of, model_of, nats_of, state_settings, targets_in, turned
from orthant_record import Recorder
from trial import Case, Wanted

FAMILIES = ("llama", "qwen3", "llama-tied", "mixtral")
TYPES = ("float32", "bfloat16", "autocast")
# setting: (ranks, micro-batches of a rank)
SETTINGS = {"trainer": (1, 1), "trainer_4": (1, 4), "trainer_dp": (2, 1), "trainer_dp_2": (2, 2),
            "accelerate_3": (1, 3), "accelerate_dp_2": (2, 2)}
if importlib.util.find_spec("trl"):
    SETTINGS.update({"sft_4": (1, 4), "sft_dp_2": (2, 2)})
FAULTS = {
    "trainer_4": {"count_not_used": Wanted("mean_of_means"), "loss_without_count": Wanted("mean_of_means"),
                  "mask_of_ones": Wanted("documents_ignored"), "shifted": Wanted("labels_shifted_again"),
                  "clip_missing": Wanted("clip"), "rate": Wanted("update_rate")},
    "trainer_dp_2": {"ranks_averaged": Wanted(("mean_of_means_over_ranks", "mean_of_means")),
                     "count_not_used": Wanted("mean_of_means"), "mask_of_ones": Wanted("documents_ignored")},
    "sft_4": {"mask_of_ones": Wanted("documents_ignored"), "shifted": Wanted("labels_shifted_again"),
              "clip_missing": Wanted("clip"), "rate": Wanted("update_rate")},
    "accelerate_3": {"means": Wanted("mean_of_means"), "divided_twice": Wanted("factor"),
                     "clipped_each": Wanted(("gradient", "factor", "norm"))},
    "accelerate_dp_2": {"means": Wanted("mean_of_means"), "no_sync": Wanted("missing_reduction", "dp"),
                        "same_data": Wanted("batches_repeat")},
}
CASES = [Case(setting, ranks, family, type_, fault, wanted)
         for setting, (ranks, _) in SETTINGS.items() for family in FAMILIES for type_ in TYPES
         for fault, wanted in {"sound": None, **FAULTS.get(setting, {})}.items()
         if fault == "sound" or family in FAMILIES[:2]]


def rows_of(config, ranks, micros):
    """Sequences as a Trainer has them: labels are the ids themselves; documents restart positions."""
    rows = []
    for b in batches(config.vocab_size, 9, ranks * micros, 2):
        labels = torch.cat([torch.full((2, 1), IGNORED), b["labels"][:, :-1]], 1)
        rows += [{"input_ids": b["ids"][i], "labels": labels[i], "position_ids": b["positions"][i]} for i in (0, 1)]
    return rows


def documents_of(positions):
    return (positions == 0).long().cumsum(1)


def settings_of(case, ranks, micros):
    kind, more = TrainingArguments, {}
    if case.setting.startswith("sft"):
        from trl import SFTConfig
        kind, more = SFTConfig, dict(max_length=None, packing=False, dataset_kwargs={"skip_prepare_dataset": True})
    return kind(
        **more, output_dir=tempfile.mkdtemp(), per_device_train_batch_size=2, gradient_accumulation_steps=micros, max_steps=1,
        use_cpu=True, bf16=case.type == "autocast", report_to=[], save_strategy="no", learning_rate=1e-2,
        weight_decay=0.1, adam_beta2=0.95, max_grad_norm=0.5, lr_scheduler_type="constant", logging_steps=1,
        disable_tqdm=True, optim="adamw_torch", ddp_backend="gloo",
        average_tokens_across_devices=case.fault != "ranks_averaged", dataloader_pin_memory=False, remove_unused_columns=False, seed=3)


def collate(case):
    def join(rows):
        batch = {k: torch.stack([torch.as_tensor(r[k]) for r in rows]) for k in rows[0]}
        if case.fault == "mask_of_ones":
            batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        return batch
    return join


def shift_once_more(model, before):
    def forward(*args, labels=None, **kwargs):
        return before(*args, labels=turned(labels, 1) if labels is not None else None, **kwargs)
    model.forward = forward


def plant(case, trainer, model):
    if case.fault == "count_not_used":
        model.accepts_loss_kwargs = trainer.model_accepts_loss_kwargs = False
    if case.fault == "loss_without_count":  # the count is not given to the model, and means are not divided
        samples = trainer.get_batch_samples
        trainer.get_batch_samples = lambda *a, **k: (samples(*a, **k)[0], None)
        trainer.model_accepts_loss_kwargs = True
    if case.fault == "shifted":
        shift_once_more(model, model.forward)


def trainer_of(case, config, model, ranks, micros):
    given = dict(model=model, args=settings_of(case, ranks, micros), data_collator=collate(case))
    rows = rows_of(config, ranks, micros)
    if not case.setting.startswith("sft"):
        return Trainer(train_dataset=rows, **given)
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTTrainer
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(config.vocab_size)}, unk_token="t0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t1", unk_token="t0")
    dataset = Dataset.from_list([{k: v.tolist() for k, v in row.items()} for row in rows])
    return SFTTrainer(train_dataset=dataset, processing_class=tokenizer, **given)


def record_trainer(out, case, config, model, ranks, micros):
    trainer = trainer_of(case, config, model, ranks, micros)
    plant(case, trainer, model)
    rec = Recorder(out, model, config=config, mesh={"dp": ranks}, note=case.name)
    step, clip = trainer.training_step, trainer.accelerator.clip_grad_norm_

    def training_step(m, x, *a, **k):
        rec.batch(x["input_ids"], x["labels"], x["position_ids"], documents_of(x["position_ids"]))
        return step(m, x, *a, **k)

    def clip_grad_norm(*a, **k):
        rec.grads()
        return clip(*a, **k) if case.fault != "clip_missing" else torch.nn.utils.get_total_norm(
            [p.grad for p in model.parameters()])
    trainer.training_step, trainer.accelerator.clip_grad_norm_ = training_step, clip_grad_norm
    rec.weights()
    if case.fault == "rate":
        trainer.args.learning_rate = 2e-2
    trainer.train()
    logged = trainer.state.log_history[0]
    rec.scalar(loss=logged["loss"], norm=logged["grad_norm"], clip=0.5)
    rec.after(trainer.optimizer)
    if case.fault == "rate":
        for group in rec.meta["optimizer"]["groups"]:
            group["settings"]["lr"] = 1e-2
    rec.close()


def record_accelerate(out, case, config, model, ranks, micros):
    accelerator = Accelerator(gradient_accumulation_steps=micros, cpu=True,
                              mixed_precision="bf16" if case.type == "autocast" else "no")
    rank, fault = accelerator.process_index, case.fault
    optimizer = adamw(model)
    net, optimizer = accelerator.prepare(model, optimizer)
    parts = list(batches(config.vocab_size, 9, ranks * micros, 2, documents=False))
    own = parts[0::ranks] if fault == "same_data" else parts[rank::ranks]
    total = sum(targets_in(b["labels"]) for b in (own * ranks if fault == "same_data" else parts))
    rec = Recorder(out, model, config, mesh={"dp": ranks}, note=case.name)
    rec.weights()
    loss = torch.zeros(())
    for i, b in enumerate(own):
        rec.batch(b["ids"], b["labels"], shifted=True)
        accelerator.gradient_state._set_sync_gradients(i == len(own) - 1)
        outer = net.no_sync() if ranks > 1 and (i < len(own) - 1 or fault == "no_sync") else torch.enable_grad()
        with outer:
            nats = nats_of(net(input_ids=b["ids"], use_cache=False).logits, b["labels"])
            scale = micros * ranks / total  # backward() divides by micro-batches, DDP by ranks
            scale = {"means": 1 / targets_in(b["labels"]), "divided_twice": scale / micros}.get(fault, scale)
            accelerator.backward(nats * scale)
        loss += nats.detach() * scale / micros / ranks
        if fault == "clipped_each" and i < len(own) - 1:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    rec.grads()
    norm = accelerator.clip_grad_norm_(net.parameters(), 0.5)
    loss = accelerator.reduce(loss, "sum")
    optimizer.step()
    rec.scalar(loss=loss, norm=norm, clip=0.5)
    rec.after(optimizer)
    state_settings(rec)
    rec.close()


def record(out, case):
    ranks, micros = SETTINGS[case.setting]
    os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    AcceleratorState._reset_state()
    GradientState._reset_state()
    config = config_of(case.family)
    dtype = torch.float32 if case.type == "autocast" else getattr(torch, case.type)
    model = model_of(config, dtype, 17 + case.seed)
    kind = record_accelerate if case.setting.startswith("accelerate") else record_trainer
    kind(out, case, config, model, ranks, micros)
