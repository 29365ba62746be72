# SPDX-License-Identifier: Apache-2.0
"""Parallelism of PyTorch itself: DistributedDataParallel, FSDP2, tensor and sequence parallelism with DTensor,
pipelines, and context and expert parallelism in the few lines that most projects write for them."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as comm
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                               SequenceParallel, parallelize_module)
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import eager_attention_forward

from models import (IGNORED, adamw, attention_mask, batches, config_of, model_of, nats_of, state_settings,
                    targets_in, turned)
from orthant_record import Recorder, clean
from trial import Case, Wanted

LIMIT = 0.5  # of the norm
NORMS = r"norm"
QK = r"[qk]_norm"
EXPERT = r"experts"

# setting: (mesh, families, types)
ALL = ("float32", "bfloat16", "autocast")
SETTINGS = {
    "ddp": ({"dp": 2}, ("llama", "llama-tied", "qwen3", "gemma2", "gpt2", "mixtral"), ALL),
    "ddp3": ({"dp": 3}, ("llama", "qwen2"), ALL),
    "fsdp2": ({"dp": 2}, ("llama", "llama-tied", "qwen3", "gemma3", "olmo2", "qwen3_moe"), ALL),
    "fsdp2_mixed": ({"dp": 2}, ("llama", "qwen3"), ("float32",)),
    "hsdp": ({"replicate": 2, "shard": 2}, ("llama", "qwen3"), ALL),
    "tp": ({"tp": 2}, ("llama", "llama-tied", "qwen3", "mistral", "smollm3"), ALL),
    "tp_sp": ({"tp": 2}, ("llama", "qwen2"), ALL),
    "fsdp2_tp": ({"dp": 2, "tp": 2}, ("llama", "qwen3"), ALL),
    "pp": ({"pp": 2}, ("llama", "llama-tied", "qwen3"), ALL[:2]),
    "pp_1f1b": ({"pp": 2}, ("llama", "qwen2"), ALL[:2]),
    "cp": ({"cp": 2}, ("llama", "qwen3"), ALL),
    "ep": ({"ep": 2}, ("qwen3_moe", "mixtral"), ("float32", "autocast")),
    "dp_ep": ({"dp": 2}, ("qwen3_moe", "mixtral"), ("float32", "autocast")),
}
# setting: {fault: Wanted}
DATA = {"means": Wanted("mean_of_means"), "summed": Wanted("factor"), "averaged_twice": Wanted("factor"),
        "same_data": Wanted("batches_repeat"),
        "decay": Wanted("update_decay", tensors=NORMS)}
FAULTS = {
    "ddp": {**DATA, "not_reduced": Wanted("missing_reduction", "dp"), "late": Wanted("missing_reduction", "dp"),
            "one_not_reduced": Wanted("missing_reduction", "dp", r"layers\.1\.mlp"),
            "clip_apart": Wanted(("clip_differs", "replicas_differ"))},
    "fsdp2": {**DATA, "local_clip": Wanted(("norm_differs", "norm", "norm_lacks")),
              "shards_not_counted": Wanted(("norm_lacks", "norm_differs", "norm"))},
    "hsdp": {"replicas_not_reduced": Wanted("missing_reduction", "replicate"), "averaged_twice": Wanted("factor"),
             "same_data": Wanted("batches_repeat")},
    "tp": {"qk_not_reduced": Wanted("missing_reduction", "tp", QK),
           "qk_averaged": Wanted("factor_on_some", tensors=QK), "batches_differ": Wanted("batches_differ"),
           "norm_counts_replicas": Wanted(("norm_counts_again", "norm")),
           "norm_lacks_shards": Wanted(("norm_lacks", "norm_differs", "norm")),
           "clip_one_rank": Wanted(("clip_differs", "replicas_differ", "update")),
           "vocabulary_twice": Wanted("loss"),
           "shifted": Wanted("labels_shifted_again"), "documents": Wanted("documents_ignored")},
    "fsdp2_tp": {"qk_not_reduced": Wanted("missing_reduction", "tp", QK), "averaged_twice": Wanted("factor"),
                 "norm_counts_replicas": Wanted(("norm_counts_again", "norm"))},
    "pp": {"scaled": Wanted("factor"), "tie_not_reduced": Wanted("missing_reduction", "pp", "embed"),
           "norm_of_stage": Wanted(("norm_lacks", "norm_differs", "norm"))},
    "cp": {"not_reduced": Wanted("missing_reduction", "cp"), "averaged": Wanted("factor"),
           "keys_not_reduced": Wanted("gradient"), "border_labels": Wanted(("gradient", "labels_shifted_again")),
           "positions": Wanted(("gradient", "positions_not_restarted"))},
    "ep": {"routers_not_reduced": Wanted(("missing_reduction", "replicas_differ", "gradient"))},
    "dp_ep": {"experts_summed": Wanted("factor_on_some", tensors=EXPERT),
              "experts_averaged_twice": Wanted("factor_on_some", tensors=EXPERT),
              "norm_lacks_experts": Wanted(("norm_lacks", "norm_differs", "norm"))},
}


def applies(setting, family, type_, fault):
    if fault.startswith("qk_"):
        return family == "qwen3"
    if fault == "tie_not_reduced":
        return family == "llama-tied"
    if fault == "decay" and type_ == "bfloat16":  # below the rounding of weights, which the judge says
        return False
    if fault == "one_not_reduced":
        return family in ("llama", "qwen3")
    return family in SETTINGS[setting][1][:3]


CASES = []
for _setting, (_mesh, _families, _types) in SETTINGS.items():
    _ranks = torch.Size(_mesh.values()).numel()
    for _family in _families:
        for _type in _types:
            for _fault, _wanted in {"sound": None, **FAULTS.get(_setting, {})}.items():
                if _fault == "sound" or applies(_setting, _family, _type, _fault):
                    CASES.append(Case(_setting, _ranks, _family, _type, _fault, _wanted))

# ---- context parallelism: keys and values of all ranks, in the order of the tokens ----


class Gather(torch.autograd.Function):
    """Whole sequences from the parts of ranks along dimension 2."""
    reduce = True

    @staticmethod
    def forward(ctx, part):
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, 2)

    @staticmethod
    def backward(ctx, whole):
        whole = whole.contiguous()
        if Gather.reduce:
            dist.all_reduce(whole)
        return whole.chunk(dist.get_world_size(), 2)[dist.get_rank()]


def attend_whole(module, query, key, value, attention_mask, **kwargs):
    return eager_attention_forward(module, query, Gather.apply(key), Gather.apply(value), attention_mask, **kwargs)


AttentionInterface.register("whole_keys", attend_whole)

# ---- expert parallelism ----


class Copy(torch.autograd.Function):
    """What all ranks have; gradients are those of all ranks."""
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def own_experts(experts, case):
    """Keeps the experts of this rank. Tokens are the same on all ranks (ep) or gathered (dp_ep)."""
    rank, world, count = dist.get_rank(), dist.get_world_size(), experts.num_experts
    own, forward = count // world, experts.forward
    for name in ("gate_up_proj", "down_proj"):
        whole = getattr(experts, name)
        setattr(experts, name, torch.nn.Parameter(whole.detach()[rank * own:(rank + 1) * own].clone()))
    experts.num_experts = own

    def compute(x, chosen, weights):
        chosen = chosen - rank * own
        chosen = chosen.masked_fill((chosen < 0) | (chosen >= own), own)
        return forward(x, chosen, weights.masked_fill(chosen == own, 0))

    def of_same_tokens(x, chosen, weights):
        weights = weights if case.fault == "routers_not_reduced" else Copy.apply(weights)
        return Sum.apply(compute(Copy.apply(x), chosen, weights))

    def of_all_tokens(x, chosen, weights):
        rows = len(x)
        x, weights = torch.cat(comm.all_gather(x)), torch.cat(comm.all_gather(weights.contiguous()))
        every = [torch.empty_like(chosen) for _ in range(world)]
        dist.all_gather(every, chosen.contiguous())
        return Sum.apply(Copy.apply(compute(x, torch.cat(every), weights)))[rank * rows:(rank + 1) * rows]

    experts.forward = of_same_tokens if case.setting == "ep" else of_all_tokens


def expert_names(name, parameter):
    if "experts" not in name or dist.get_world_size() == 1:
        return [(clean(name), None)]
    rank, world = dist.get_rank(), dist.get_world_size()

    def cut(value):
        shape = list(value.shape)
        return value, {"shape": [shape[0] * world] + shape[1:], "offset": [shape[0] * rank, 0, 0]}
    return [(clean(name), cut)]


# ---- tensor parallelism ----


def tensor_plan(layers, sequence):
    plan, whole = {}, Replicate() if not sequence else Shard(1)
    for i in range(layers):
        at = f"model.layers.{i}."
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            plan[at + name] = ColwiseParallel()
        plan[at + "self_attn.o_proj"] = plan[at + "mlp.down_proj"] = RowwiseParallel(output_layouts=whole)
        if sequence:
            plan[at + "input_layernorm"] = plan[at + "post_attention_layernorm"] = SequenceParallel(
                use_local_output=True)
            plan[at + "self_attn"] = PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": Shard(1)},
                desired_input_kwarg_layouts={"hidden_states": Replicate()}, use_local_output=True)
            plan[at + "mlp"] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),),
                                                  use_local_output=True)
    if sequence:
        plan["model.embed_tokens"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        plan["model.norm"] = SequenceParallel(use_local_output=True)
        plan["lm_head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    return plan


def of_heads(config):
    """The norms of queries and keys that are applied to the heads of a rank: their gradients are parts."""
    return ("q_norm", "k_norm") if config.model_type == "qwen3" else ()


# ---- pipelines ----


class Stage(torch.nn.Module):
    def __init__(self, model, rank, world):
        super().__init__()
        layers = model.config.num_hidden_layers // world
        self.first, self.last, self.start, self.model = rank == 0, rank == world - 1, rank * layers, model
        model.model.layers = model.model.layers[self.start:self.start + layers]
        if not self.last:
            model.model.norm = torch.nn.Identity()
            if not self.first or not model.config.tie_word_embeddings:
                del model.lm_head
        if not self.first:
            del model.model.embed_tokens

    def forward(self, x):
        at = torch.arange(x.shape[1]).expand(x.shape[:2])
        dtype = next(self.model.parameters()).dtype
        given = {"input_ids": x} if self.first else {"inputs_embeds": x}
        hidden = self.model.model(**given, position_ids=at, use_cache=False, attention_mask=attention_mask(
            self.model.config, torch.zeros_like(at), dtype)).last_hidden_state
        return self.model.lm_head(hidden) if self.last else hidden

    def names(self, name, parameter):
        name = clean(name).removeprefix("model.")
        parts = name.split(".")
        if parts[:2] == ["model", "layers"]:
            parts[2] = str(int(parts[2]) + self.start)
        name = ".".join(parts)
        tied = self.model.config.tie_word_embeddings and name == "lm_head.weight"
        return [("model.embed_tokens.weight" if tied else name, None)]


def step_pipeline(case, config, model, rec_of):
    rank, world = dist.get_rank(), dist.get_world_size()
    stage_module = Stage(model, rank, world)
    parts = list(batches(config.vocab_size, 5, 4, 1, documents=False))
    total = sum(targets_in(b["labels"]) for b in parts)
    rec = rec_of(stage_module, names=stage_module.names)
    optimizer = adamw(stage_module)
    for b in parts:
        rec.batch(b["ids"], b["labels"], shifted=True)
    stage = PipelineStage(stage_module, rank, world, torch.device("cpu"))
    kind = Schedule1F1B if case.setting == "pp_1f1b" else ScheduleGPipe
    schedule = kind(stage, len(parts), loss_fn=lambda logits, labels: nats_of(logits, labels) / total,
                    scale_grads=case.fault == "scaled")
    ids, labels = (torch.cat([b[k] for b in parts]) for k in ("ids", "labels"))
    losses = []
    if rank == 0:
        schedule.step(ids)
    else:
        schedule.step(target=labels, losses=losses)
    if config.tie_word_embeddings and case.fault != "tie_not_reduced":
        dist.all_reduce(next(p for n, p in stage_module.named_parameters() if "embed" in n or "lm_head" in n).grad)
    loss = torch.tensor(float(sum(x.item() for x in losses)))
    dist.all_reduce(loss)
    squares = torch.tensor(sum(p.grad.double().square().sum().item() for n, p in stage_module.named_parameters()
                               if not (config.tie_word_embeddings and rank > 0 and "lm_head" in n)),
                           dtype=torch.float64)
    if case.fault != "norm_of_stage":
        dist.all_reduce(squares)
    return rec, stage_module, optimizer, loss.item(), squares.item() ** 0.5


# ---- the step ----


def parallel(case, config, model):
    """The model as the setting divides it, and the mesh of its record."""
    sizes = SETTINGS[case.setting][0]
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    if case.setting.startswith("ddp"):
        return torch.nn.parallel.DistributedDataParallel(model), None
    if "tp" in sizes:
        parallelize_module(model, mesh["tp"], tensor_plan(config.num_hidden_layers, case.setting == "tp_sp"))
    if case.setting.startswith(("fsdp2", "hsdp")):
        own = mesh["dp"] if "dp" in sizes else mesh
        mixed = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)} \
            if case.setting == "fsdp2_mixed" else {}
        for layer in model.model.layers:
            fully_shard(layer, mesh=own, **mixed)
        fully_shard(model, mesh=own, **mixed)
    if "ep" in case.setting:
        for layer in model.model.layers:
            own_experts(layer.mlp.experts, case)
    return model, dict(sizes) if case.setting in ("cp", "ep", "dp_ep") else mesh


def data_rank(case):
    """(rank, ranks) with data of their own."""
    sizes, rank = SETTINGS[case.setting][0], dist.get_rank()
    if "tp" in sizes:
        return rank // sizes["tp"], sizes.get("dp", 1)
    return (0, 1) if set(sizes) & {"cp", "ep"} else (rank, dist.get_world_size())


def logits_of(case, net, b, config, dtype):
    documents = torch.zeros_like(b["documents"]) if case.fault == "documents" else b["documents"]
    mask, ids, positions = attention_mask(config, documents, dtype), b["ids"], b["positions"]
    if case.setting == "cp":
        rank, world = dist.get_rank(), dist.get_world_size()
        ids, positions, mask = ids.chunk(world, 1)[rank], positions.chunk(world, 1)[rank], mask.chunk(world, 2)[rank]
        if case.fault == "positions":
            positions = torch.arange(ids.shape[1]).expand_as(ids)
    with torch.autocast("cpu", torch.bfloat16, enabled=case.type == "autocast"):
        logits = net(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
    return logits.full_tensor() if isinstance(logits, DTensor) else logits


def labels_of(case, b):
    labels = b["labels"]
    if case.fault == "shifted":
        labels = turned(labels, 1)
    if case.setting == "cp":
        labels = labels.chunk(dist.get_world_size(), 1)[dist.get_rank()].clone()
        if case.fault == "border_labels":  # shifted after the sequence was cut
            labels[:, -1] = IGNORED
    return labels


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def reduce_by_hand(case, config, model):
    """The sums that the parallel modules leave to the user; and the faults of sums."""
    named, fault = list(model.named_parameters()), case.fault
    if "tp" in SETTINGS[case.setting][0] and fault != "qk_not_reduced":
        size = SETTINGS[case.setting][0]["tp"]
        peers = [dist.new_group(list(range(i, i + size))) for i in range(0, dist.get_world_size(), size)]
        for n, p in named:
            if any(x in n for x in of_heads(config)):
                dist.all_reduce(local(p.grad), group=peers[dist.get_rank() // size])
                local(p.grad).div_(size if fault == "qk_averaged" else 1)
    if case.setting in ("cp", "dp_ep") and fault != "not_reduced":
        for n, p in named:
            if "experts" not in n:
                dist.all_reduce(p.grad)
                p.grad.div_(2 if fault == "averaged" else 1)
    ranks = dist.get_world_size()
    for n, p in named:
        factor = {"summed": ranks, "averaged_twice": 1 / 2}.get(fault, 1)
        if "experts" in n:
            factor = {"experts_summed": 2, "experts_averaged_twice": 0.5}.get(fault, 1)
        if factor != 1:
            local(p.grad).mul_(factor)


def norm_of(case, model):
    """The norm that clips, by its usual definition and by faulty ones."""
    fault, world = case.fault, dist.get_world_size()
    squares = 0.0
    for n, p in model.named_parameters():
        cuts = dict(zip(p.grad.device_mesh.mesh_dim_names, p.grad.placements)) if isinstance(p.grad, DTensor) else {}
        divided = any(x.is_shard() for axis, x in cuts.items() if axis == "tp" or "tp" not in SETTINGS[case.setting][0])
        part = "experts" in n and "ep" in case.setting
        if part and fault == "norm_lacks_experts":
            continue
        of_rank = fault == "local_clip" or (fault in ("shards_not_counted", "norm_lacks_shards") and divided)
        square = (local(p.grad) if of_rank else whole(p.grad)).double().square().sum()
        if part:
            dist.all_reduce(square)
        squares += square.item() * (2 if fault == "norm_counts_replicas" and not divided else 1)
    return squares ** 0.5


def step(case, config, model, rec_of):
    (rank, ranks), dtype, fault = data_rank(case), next(model.parameters()).dtype, case.fault
    net, mesh = parallel(case, config, model)
    parts = list(batches(config.vocab_size, 5, 2 * ranks, 1))
    total = sum(targets_in(b["labels"]) for b in parts)
    own = parts[0::ranks] if fault == "same_data" else parts[rank::ranks]
    if fault == "same_data":
        total = ranks * sum(targets_in(b["labels"]) for b in own)
    if fault == "batches_differ" and dist.get_rank() == 1:
        own = own[:1] + [dict(own[1], ids=own[0]["ids"])]
    rec, optimizer = rec_of(net, mesh=mesh, names=expert_names if "ep" in case.setting else None), adamw(net)
    averaged = ranks if case.setting.startswith(("ddp", "fsdp2", "hsdp")) else 1  # these average over ranks
    loss = torch.zeros(())
    for i, b in enumerate(own):
        labels = labels_of(case, b)
        rec.batch(b["ids"], b["labels"], b["positions"], b["documents"], shifted=True)
        if case.setting.startswith("ddp"):
            net.require_backward_grad_sync = i == len(own) - 1 and fault not in ("not_reduced", "late")
        nats = nats_of(logits_of(case, net, b, config, dtype), labels)
        scale = averaged / total if fault != "means" else averaged / ranks / len(own) / max(targets_in(labels), 1)
        if fault == "late":  # the flag is set between the passes, when the reducer has read it
            net.require_backward_grad_sync = i == len(own) - 1
        (nats * scale).backward()
        loss += nats.detach() * scale / averaged
    if ranks > 1 or case.setting == "cp":
        dist.all_reduce(loss, group=None)
        loss /= dist.get_world_size() / ranks if case.setting != "cp" else 1
    if fault == "vocabulary_twice":  # gathered logits in a loss that sums exponentials over ranks
        loss += torch.tensor(2.0).log()
    return rec, net, optimizer, loss.item(), None


def plant_before_clipping(case, model):
    if case.fault == "one_not_reduced":
        grad = next(p for n, p in model.named_parameters() if "layers.1.mlp.down_proj" in n).grad
        grad.add_(torch.randn(grad.shape, generator=torch.Generator().manual_seed(3)).to(grad.dtype) *
                  grad.std() * (1 - 2 * dist.get_rank()))
    if case.fault == "replicas_not_reduced":
        for n, p in model.named_parameters():
            part = local(p.grad)
            part.add_(torch.randn(part.shape, generator=torch.Generator().manual_seed(len(n))).to(part.dtype) *
                      part.std() * (1 - 2 * (dist.get_rank() // 2)))


def clip(case, model, norm, apart):
    """With torch's own function where it has all gradients, and nothing is wrong with the norm."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    alike = len({isinstance(g, DTensor) for g in grads}) == 1
    if alike and not set(SETTINGS[case.setting][0]) & {"pp", "ep"} and case.setting not in ("dp_ep", "fsdp2_tp") and not (
            "norm" in case.fault or "clip" in case.fault or "counted" in case.fault):
        return whole(torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT))
    for g in grads:
        local(g).mul_(1.0 if apart else min(1.0, LIMIT / (norm + 1e-6)))
    return norm


def record(out, case):
    dtype = torch.float32 if case.type == "autocast" else getattr(torch, case.type)
    config = config_of(case.family, **({"attn_implementation": "whole_keys"} if case.setting == "cp" else {}))
    config._experts_implementation = "eager"
    model = model_of(config, dtype, 17 + case.seed)
    mesh = SETTINGS[case.setting][0]
    Gather.reduce = case.fault != "keys_not_reduced"

    def rec_of(net, mesh=dict(mesh), names=None):
        rec = Recorder(out, net, config, names=names, mesh=mesh, note=case.name)
        rec.weights()
        return rec
    rec, net, optimizer, loss, norm = (step_pipeline if "pp" in mesh else step)(case, config, model, rec_of)
    if "pp" not in mesh:
        reduce_by_hand(case, config, net)
        plant_before_clipping(case, net)
        norm = norm_of(case, net)
    rec.grads()
    apart = case.fault in ("clip_apart", "clip_one_rank") and dist.get_rank() == 1
    norm = clip(case, net, norm, apart)
    rec.scalar(loss=loss, norm=norm, clip=LIMIT)
    if case.fault == "decay":
        optimizer.param_groups[1]["weight_decay"] = 0.1
    optimizer.step()
    rec.after(optimizer)
    state_settings(rec)
    rec.close()
