# SPDX-License-Identifier: Apache-2.0
"""One rank, accumulation over micro-batches, packed documents: all families and types, faults planted anew."""
import torch

from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func as balancing_loss

from models import (EXPERTS, FAMILIES, IGNORED, adamw, attention_mask, batches, config_of, model_of, nats_of,
                    state_settings, targets_in, turned)
from orthant_record import Recorder
from trial import Case, Wanted

TYPES = ("float32", "bfloat16", "autocast")
NORMS = r"norm|ln_|bias$"
FAULTS = {
    "sound": None, "half": Wanted("factor"), "micro_batches": Wanted("factor"), "means": Wanted("mean_of_means"),
    "documents": Wanted("documents_ignored"), "packing": Wanted("packing_ignored"),
    "shifted": Wanted("labels_shifted_again"), "unshifted": Wanted("labels_not_shifted"),
    "epsilon": Wanted("norm_epsilon"), "theta": Wanted("rope_base"), "scale": Wanted("attention_scale"),
    "zero": Wanted("factor_on_some", tensors=NORMS), "norms_halved": Wanted("factor_on_some", tensors=NORMS),
    "stale": Wanted("stale_buffer", tensors=r"\.0\."), "one_use": Wanted("gradient", tensors="embed|wte"),
    "turned": Wanted("gradient", tensors=r"\.0\."), "nan": Wanted("not_finite", tensors=r"\.0\."),
    "decay": Wanted("update_decay", tensors=NORMS), "rate": Wanted("update_rate"), "betas": Wanted("update_moments"),
    "after": Wanted("update"), "norm_short": Wanted("norm_lacks"), "norm_twice": Wanted("norm_factor"),
    "clip_apart": Wanted("clip_differs"), "clip_missing": Wanted("clip"),
    "loss_scale": Wanted("factor"), "identity": Wanted("gradient"), "head_partial": Wanted("gradient"),
    "below_doubled": Wanted("factor_on_some", tensors=r"\.0\.|embed|wte|wpe"),
    "embedding_doubled": Wanted("factor_on_some", tensors="embed|wte"),
    "old_weights": Wanted(("gradient", "loss", "update")), "bias_step": Wanted(("update_rate", "update_moments", "update")),
    "router_twice": Wanted("balance_loss_over_layers"), "router_half": Wanted("balance_loss_over_layers"),
}
MORE = {  # setting: families, faults
    "weighted": (("llama", "qwen3"), {"sound": None, "weight_of_first": Wanted("gradient"),
                                      "sequences_short": Wanted(("gradient", "factor"))}),
    "z": (("mixtral", "qwen3_moe"), {"sound": None, "z_twice": Wanted("z_loss"), "z_by_tokens": Wanted("z_loss")}),
    "routers": (("mixtral", "qwen3_moe"), {
        "sound": None, "router_uneven": Wanted(("gradient", "balance_loss_over_layers")),
        "router_one_layer": Wanted("gradient", tensors="gate|norm|proj|w[123]|embed")}),
}
PADDED = {"sound": None, "router_twice": Wanted("balance_loss_over_layers_without_padding")}  # transformers'

SMALL = {"epsilon", "theta", "scale"}  # certain to show in float32 alone
ROUTERS = {"router_twice", "router_half"}


def applies(family, type_, fault):
    if fault in ROUTERS:
        return FAMILIES[family] is EXPERTS and type_ == "float32"
    if fault == "one_use":
        return config_of(family).tie_word_embeddings
    if fault in ("embedding_doubled", "below_doubled", "head_partial") and config_of(family).tie_word_embeddings:
        return False
    if family == "gpt2" and fault in SMALL:
        return fault == "epsilon" and type_ == "float32"
    if family in ("gemma2", "gemma3", "gpt2") and fault == "theta":
        return False
    if fault in ("decay", "bias_step") and type_ == "bfloat16":  # below the rounding of weights
        return False
    return fault not in SMALL or type_ == "float32"


CASES = [Case("single", 1, family, type_, fault, wanted) for family in FAMILIES for type_ in TYPES
         for fault, wanted in FAULTS.items() if applies(family, type_, fault)]
CASES += [Case("padded", 1, family, type_, fault, wanted) for family in FAMILIES if FAMILIES[family] is EXPERTS
          for type_ in ("float32", "autocast") for fault, wanted in PADDED.items()
          if type_ == "float32" or fault == "sound"]
CASES += [Case(setting, 1, family, "float32", fault, wanted) for setting, (families, faults) in MORE.items()
          for family in families for fault, wanted in faults.items()]


def plant_in_model(fault, model):
    for module in model.modules():
        for name in ("variance_epsilon", "eps", "epsilon"):
            if fault == "epsilon" and isinstance(getattr(module, name, None), float):
                setattr(module, name, getattr(module, name) * 100)
        if fault == "scale" and isinstance(getattr(module, "scaling", None), float):
            module.scaling *= 1.2
    if fault == "one_use":
        model.get_input_embeddings().register_forward_hook(lambda m, i, o: o.detach())
    if fault == "head_partial":
        head = model.get_output_embeddings()
        head.forward = lambda x: PartialHead.apply(x, head.weight.to(x.dtype))
    if fault == "below_doubled":
        doubled = model.model.layers[0] if hasattr(model, "model") else model.transformer.h[0]
        doubled.register_forward_hook(lambda m, i, o: Doubled.apply(o) if torch.is_tensor(o) else
                                      (Doubled.apply(o[0]), *o[1:]))


class PartialHead(torch.autograd.Function):
    """A head whose rows are divided over two ranks, and the gradient of its input summed over none."""
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        half, grad = len(weight) // 2, grad.to(weight.dtype)
        return grad[..., :half] @ weight[:half], grad.flatten(0, -2).T @ x.flatten(0, -2)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def plant_in_gradients(fault, model):
    named = [(n, p) for n, p in model.named_parameters() if p.grad is not None]
    vectors = [p for _, p in named if p.ndim == 1]
    matrices = [p for n, p in named if p.ndim == 2 and ".0." in n]
    if fault == "zero":
        vectors[0].grad.zero_()
    if fault == "norms_halved":
        for p in vectors:
            p.grad.mul_(0.5)
    if fault == "stale":
        matrices[0].grad.add_(matrices[0].detach())
    if fault == "turned":
        matrices[1].grad.copy_(matrices[1].grad.flip(0))
    if fault == "embedding_doubled":
        dict(named)[next(n for n, _ in named if "embed" in n or "wte" in n)].grad.mul_(2)
    if fault == "nan":
        matrices[0].grad[0, 0] = float("nan")


def clip(fault, model, limit):
    grads = [(n, p.grad) for n, p in model.named_parameters() if p.grad is not None]
    square = sum(g.double().square().sum().item() for _, g in grads)
    norm = square ** 0.5
    if fault == "norm_short":
        norm = (square - max(g.double().square().sum().item() for n, g in grads if g.ndim == 2)) ** 0.5
    if fault == "norm_twice":
        norm *= 2
    for i, (_, g) in enumerate(grads):
        if fault != "clip_missing":
            g.mul_(min(1.0, limit / (norm + 1e-6)) * (0.7 if fault == "clip_apart" and i % 2 else 1))
    return norm


def collect_scores(model):
    """A list that receives the logits of each router in a forward pass."""
    scores = []
    for name, module in model.named_modules():
        if name.endswith(".gate"):
            module.register_forward_hook(lambda m, i, out: scores.append(out[0] if isinstance(out, tuple) else out))
    return scores


def weight_of(b, seed):
    g = torch.Generator().manual_seed(seed + b["ids"].sum().item())
    return 0.5 + torch.rand(b["ids"].shape, generator=g)


def weighted_nats(fault, logits, labels, weight):
    each = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED,
                                             reduction="none").view(labels.shape)
    if fault == "weight_of_first":
        weight = weight[:, :1].expand_as(weight)
    if fault == "sequences_short":  # each sequence is divided by one token too many
        counts = (labels != IGNORED).sum(1, keepdim=True)
        weight = weight * counts / (counts + 1)
    return (each * weight).sum()


def pad(b):
    """Turns the second document into padding after the first."""
    return dict(b, labels=b["labels"].masked_fill(b["documents"] > 0, IGNORED), positions=b["at"])


def record(out, case):
    fault, autocast, seed = case.fault, case.type == "autocast", 17 + case.seed
    dtype = torch.float32 if autocast else getattr(torch, case.type)
    padded = case.setting == "padded"
    routers = fault in ROUTERS or padded or case.setting == "routers"
    changes = dict(output_router_logits=True, router_aux_loss_coef=0.1) if routers else {}
    config = config_of(case.family, **changes, **({"router_z_loss_coef": 0.02} if case.setting == "z" else {}))
    stated = config_of(case.family, theta=9000.0) if fault == "theta" else config
    model = model_of(config, dtype, seed)
    plant_in_model(fault, model)
    optimizer = adamw(model, 0.1 if fault == "decay" else 0.0, 2e-2 if fault == "rate" else 1e-2,
                      0.999 if fault == "betas" else 0.95)
    rec = Recorder(out, model, stated, note=case.name)
    rec.weights()
    if fault == "old_weights":
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 0.02 * torch.randn_like(p))
    parts = list(batches(config.vocab_size, seed, documents=padded or not routers))
    parts = [pad(b) for b in parts] if padded else parts
    shift = {"shifted": 1, "unshifted": -1}.get(fault, 0)
    used = [turned(b["labels"], shift) if shift else b["labels"] for b in parts]
    total, loss = sum(targets_in(u) for u in used), 0.0
    scores = collect_scores(model) if case.setting == "z" else []
    if case.setting == "weighted":
        weights = [weight_of(b, seed) for b in parts]
        total = sum((w * (u != IGNORED)).sum().item() for w, u in zip(weights, used))
    for i, (b, labels) in enumerate(zip(parts, used)):
        weight = weights[i] if case.setting == "weighted" else None
        rec.batch(b["ids"], b["labels"], b["positions"], b["documents"], weight, shifted=True)
        documents = torch.zeros_like(b["documents"]) if fault in ("documents", "packing") else b["documents"]
        positions = b["at"] if fault == "packing" else b["positions"]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            # The router loss of transformers takes a mask of two dimensions only.
            mask = 1 - documents if padded else None if routers else attention_mask(config, documents, dtype)
            output = model(input_ids=b["ids"], attention_mask=mask, position_ids=positions, use_cache=False)
        nats = nats_of(output.logits, labels)
        if fault == "identity":  # log_softmax has the gradient of the identity
            seen = labels != IGNORED
            nats = nats.detach() - output.logits.float().gather(-1, labels.clamp_min(0)[..., None])[seen].sum()
        if weight is not None:
            nats = weighted_nats(fault, output.logits, labels, weight)
        count = targets_in(labels)
        scale = 1 / (count * len(parts)) if fault == "means" else 1 / total
        scale *= {"half": 0.5, "micro_batches": 1 / len(parts), "loss_scale": 1 / 65536}.get(fault, 1)
        share = {"router_twice": 2, "router_half": 0.5, "router_uneven": 2 * i / (len(parts) - 1)}.get(fault, 1)
        balance = output.aux_loss * 0.1 * share if routers else 0
        if fault == "router_one_layer":  # the last one alone has the loss of all
            balance = balancing_loss(output.router_logits[-1:], config.num_local_experts, 2) * 0.1
        if scores:
            squares = sum(s.float().logsumexp(-1).square().mean() for s in scores)
            balance = 0.02 * squares * {"z_twice": 2, "z_by_tokens": b["ids"].numel()}.get(fault, 1)
            scores.clear()
        (nats * scale + balance / len(parts)).backward()
        loss += nats.item() * (scale if fault == "means" else 1 / total)
        loss += balance.item() / len(parts) if padded else 0
    plant_in_gradients(fault, model)
    rec.grads()
    rec.scalar(loss=loss, norm=clip(fault, model, 0.5), clip=0.5)
    if fault == "bias_step":  # as if a step had been taken
        for p in model.parameters():
            optimizer.state[p].update(step=torch.tensor(1.0), exp_avg=torch.zeros_like(p),
                                      exp_avg_sq=torch.zeros_like(p))
    optimizer.step()
    if fault == "bias_step":
        for p in model.parameters():
            optimizer.state[p]["step"] = torch.tensor(1.0)
    if fault == "after":
        with torch.no_grad():
            list(model.parameters())[3].add_(1e-2 * torch.randn_like(list(model.parameters())[3]))
    rec.after(optimizer)
    state_settings(rec)
    rec.close()
