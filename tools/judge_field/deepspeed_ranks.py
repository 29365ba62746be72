# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO 0 to 3 on two ranks, without the collective that it compiles at run time."""
import os

os.environ["DS_ACCELERATOR"] = "cpu"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import deepspeed.comm.torch  # noqa: E402

deepspeed.comm.torch.build_shm_op = lambda: None
import deepspeed  # noqa: E402
from deepspeed.utils import (safe_get_full_fp32_param, safe_get_full_grad,  # noqa: E402
                             safe_get_full_optimizer_state)

from models import adamw, attention_mask, batches, config_of, model_of, nats_of, state_settings, targets_in  # noqa
from orthant_record import Recorder  # noqa: E402
from trial import Case, Wanted  # noqa: E402

FAMILIES = ("llama", "qwen3", "llama-tied", "qwen2")
MICROS = 2
FAULTS = {"means": Wanted("mean_of_means"), "summed": Wanted("factor"), "not_divided": Wanted("factor"),
          "same_data": Wanted("batches_repeat"), "decay": Wanted("update_decay", tensors="norm"),
          "documents": Wanted("documents_ignored")}
CASES = [Case(f"zero{stage}", 2, family, type_, fault, wanted)
         for stage in (0, 1, 2, 3) for family in FAMILIES for type_ in ("float32", "bfloat16")
         for fault, wanted in {"sound": None, **FAULTS}.items()
         if (fault == "sound" or family in FAMILIES[:2]) and (fault, type_) != ("decay", "bfloat16") and not (stage == 0 and type_ == "bfloat16")]


def record(out, case):
    stage, wide, fault = int(case.setting[-1]), case.type == "float32", case.fault
    deepspeed.init_distributed("gloo", verbose=False)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    config = config_of(case.family)
    model = model_of(config, getattr(torch, case.type), 17 + case.seed)
    given = adamw(model, 0.1 if fault == "decay" else 0.0)
    rec = Recorder(out, model, config, mesh={"dp": ranks}, note=case.name)
    rec.settings(given, step=1)
    state_settings(rec)
    if not wide:
        rec.weights()
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=given, config={
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": MICROS, "gradient_clipping": 0.5,
        "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "bf16": {"enabled": not wide}})
    parts = list(batches(config.vocab_size, 13, ranks * MICROS, 2))
    own = parts[0::ranks] if fault == "same_data" else parts[rank::ranks]
    total = sum(targets_in(b["labels"]) for b in (own * ranks if fault == "same_data" else parts))
    if wide:
        rec.each("weight", safe_get_full_fp32_param if stage else lambda p: p)
    loss = torch.zeros(())
    for i, b in enumerate(own):
        rec.batch(b["ids"], b["labels"], b["positions"], b["documents"], shifted=True)
        documents = torch.zeros_like(b["documents"]) if fault == "documents" else b["documents"]
        logits = engine(input_ids=b["ids"], attention_mask=attention_mask(config, documents, logits_type(case)),
                        position_ids=b["positions"], use_cache=False).logits
        nats = nats_of(logits, b["labels"])
        scale = MICROS * ranks / total  # the engine divides by micro-batches and averages over ranks
        scale = {"means": 1 / targets_in(b["labels"]), "summed": scale * ranks, "not_divided": scale * MICROS
                 }.get(fault, scale)
        engine.backward(nats * scale)
        loss += nats.detach() * scale / MICROS / ranks
        if i == MICROS - 1:
            rec.grads(safe_get_full_grad if stage else None)
        engine.step()
    dist.all_reduce(loss)
    rec.scalar(loss=loss, norm=engine.get_global_grad_norm(), clip=0.5)
    rec.each("after", safe_get_full_fp32_param if stage else lambda p: p)
    if stage in (1, 2):  # 0.19.8 links the states of groups when only the first group has been updated
        optimizer._hp_optimizer_states_linked = False
        optimizer._lazy_init_hp_params_optimizer_state()
    if not stage:
        rec.each("m", lambda p: engine.optimizer.state[p]["exp_avg"])
        rec.each("v", lambda p: engine.optimizer.state[p]["exp_avg_sq"])
    if stage:
        rec.each("m", lambda p: safe_get_full_optimizer_state(p, "exp_avg"))
        rec.each("v", lambda p: safe_get_full_optimizer_state(p, "exp_avg_sq"))
    rec.close()
    engine.destroy()


def logits_type(case):
    return getattr(torch, case.type)
