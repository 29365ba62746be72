# SPDX-License-Identifier: Apache-2.0
"""megatron-core on gloo: tensor, sequence, pipeline, data and expert parallelism, the distributed optimizer.
Its local layers need no TransformerEngine; what asks CUDA for a device or a stream is answered for the CPU."""
import contextlib
import sys
import zlib

import torch
import torch.distributed as dist


class NoStream:
    def __init__(self, *args, **kwargs):
        pass

    def nothing(self, *args, **kwargs):
        return self
    wait_stream = synchronize = record_event = wait_event = record = wait = nothing


def answer_for_the_cpu():
    def on_cpu(make):
        def call(*args, **kwargs):
            if "cuda" in str(kwargs.get("device", "")):
                kwargs["device"] = "cpu"
            return make(*args, **kwargs)
        return call
    for name in ("zeros", "empty", "ones", "tensor", "full", "arange", "rand", "randn", "zeros_like", "empty_like"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    kind = torch.Tensor.type
    torch.Tensor.type = lambda self, *a, **k: kind(self, *a, **k) if a or k else kind(self).replace(
        "torch.", "torch.cuda.")
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *a, **k: self
    torch.cuda.current_device = lambda: torch.device("cpu")
    for name in ("synchronize", "empty_cache"):
        setattr(torch.cuda, name, lambda *a, **k: None)
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *a, **k: None
    torch.cuda.Stream = torch.cuda.Event = NoStream
    torch.cuda.current_stream = torch.cuda.default_stream = lambda *a, **k: NoStream()
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    exchange = dist.all_to_all_single
    dist.all_to_all_single = torch.distributed.all_to_all_single = lambda out, x, *splits, **k: exchange(
        out, x, *(s.tolist() if torch.is_tensor(s) else s for s in splits),
        **{n: v.tolist() if torch.is_tensor(v) else v for n, v in k.items()})


answer_for_the_cpu()

import megatron.core.tensor_parallel.random as random_states  # noqa: E402
import megatron.core.transformer.moe.moe_utils as moe_utils  # noqa: E402
from megatron.core import parallel_state as ps  # noqa: E402
from megatron.core.distributed import (DistributedDataParallel, DistributedDataParallelConfig,  # noqa: E402
                                       finalize_model_grads)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import torch_norm  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

from models import batches, config_of, targets_in  # noqa: E402
from orthant_record import Recorder  # noqa: E402
from orthant_record_megatron import Megatron  # noqa: E402
from trial import Case, Wanted  # noqa: E402

finalizing = sys.modules[finalize_model_grads.__module__]
for _class in list(vars(random_states).values()):  # dropout is off: no states of CUDA are needed
    if isinstance(_class, type) and hasattr(_class, "fork"):
        _class.fork = lambda self, *a, **k: contextlib.nullcontext()

if not hasattr(moe_utils, "te_general_gemm"):  # megatron-core 0.16.1 does not say that it is absent
    moe_utils.te_general_gemm = None

# setting: sizes; those that are absent are 1
SETTINGS = {"meg": {}, "meg_tp": dict(tp=2), "meg_sp": dict(tp=2, sp=True), "meg_dp": dict(dp=2),
            "meg_dp_sharded": dict(dp=2, sharded=True), "meg_pp": dict(pp=2), "meg_ep": dict(dp=2, ep=2),
            "meg_tp_pp": dict(tp=2, pp=2), "meg_tp_dp_sharded": dict(tp=2, dp=2, sharded=True),
            "meg_pp_dp_sharded": dict(pp=2, dp=2, sharded=True),
            "meg_sp_dp": dict(tp=2, dp=2, sp=True)}
DENSE, EXPERTS, NORMS = ("llama", "llama-tied", "qwen3"), ("mixtral", "qwen3_moe"), "norm"
LOST = ("norm_lacks", "norm_differs", "norm")
FAULTS = {
    "meg_tp": {"shifted": Wanted("labels_shifted_again"), "means": Wanted("mean_of_means")},
    "meg_sp": {"norms_not_reduced": Wanted("missing_reduction", "tp", NORMS),
               "norm_counts_replicas": Wanted(("norm_counts_again", "norm"))},
    "meg_dp": {"means": Wanted("mean_of_means"), "not_reduced": Wanted("missing_reduction", "dp"),
               "summed": Wanted("factor"), "decay": Wanted("update_decay", tensors=NORMS),
               "same_data": Wanted("batches_repeat")},
    "meg_dp_sharded": {"means": Wanted("mean_of_means"), "summed": Wanted("factor"),
                       "norm_of_shard": Wanted(LOST)},
    "meg_pp": {"tie_not_reduced": Wanted("missing_reduction", "pp", "embed"), "norm_of_stage": Wanted(LOST),
               "means": Wanted("mean_of_means")},
    "meg_ep": {"experts_summed": Wanted("factor_on_some", tensors="expert"), "norm_lacks_experts": Wanted(LOST)},
    "meg_sp_dp": {"norms_not_reduced": Wanted("missing_reduction", "tp", NORMS)},
    "meg_tp_pp": {"means": Wanted("mean_of_means")},
}


def families(setting):
    return EXPERTS if setting == "meg_ep" else DENSE + EXPERTS[:1] if setting in ("meg", "meg_dp", "meg_pp") else DENSE


def applies(family, fault):
    return fault == "sound" or (family == "llama-tied" if fault == "tie_not_reduced" else family != "qwen3")


CASES = [Case(setting, sizes.get("tp", 1) * sizes.get("pp", 1) * sizes.get("dp", 1), family, type_, fault, wanted)
         for setting, sizes in SETTINGS.items() for family in families(setting) for type_ in ("float32", "bfloat16")
         for fault, wanted in {"sound": None, **FAULTS.get(setting, {})}.items() if applies(family, fault)
         and (fault, type_) != ("decay", "bfloat16")]


def build(config, sizes, wide):
    tp, pp, ep = (sizes.get(x, 1) for x in ("tp", "pp", "ep"))
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    moe = dict(num_moe_experts=experts, moe_router_topk=config.num_experts_per_tok, moe_router_load_balancing_type="none",
               moe_token_dispatcher_type="alltoall", expert_model_parallel_size=ep, moe_grouped_gemm=False,
               moe_ffn_hidden_size=config.intermediate_size if config.model_type == "mixtral"
               else config.moe_intermediate_size, moe_router_pre_softmax=False, moe_aux_loss_coeff=0.0) if experts else {}
    dtype = torch.float32 if wide else torch.bfloat16
    own = TransformerConfig(
        num_layers=config.num_hidden_layers, hidden_size=config.hidden_size, ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads, num_query_groups=config.num_key_value_heads, kv_channels=8,
        normalization="RMSNorm", layernorm_epsilon=1e-5, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, add_bias_linear=False, hidden_dropout=0.0, attention_dropout=0.0,
        use_cpu_initialization=True, params_dtype=dtype, pipeline_dtype=dtype, bf16=not wide,
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, sequence_parallel=bool(sizes.get("sp")),
        bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, persist_layer_norm=False, qk_layernorm="qwen3" in config.model_type,
        attention_softmax_in_fp32=True, **moe)
    spec = get_gpt_layer_local_spec(num_experts=experts, moe_grouped_gemm=False, normalization="RMSNorm",
                                    qk_layernorm="qwen3" in config.model_type)
    model = GPTModel(own, spec, vocab_size(config, tp), 256, pre_process=ps.is_pipeline_first_stage(),
                     post_process=ps.is_pipeline_last_stage(), position_embedding_type="rope",
                     rotary_base=config.rope_parameters["rope_theta"],
                     share_embeddings_and_output_weights=config.tie_word_embeddings, parallel_output=True)
    return own, model


def vocab_size(config, tp):  # padded, as Megatron does
    return -(-config.vocab_size // (8 * tp)) * 8 * tp


def set_weights(model, meg, config, fault):
    """Values by the name of a parameter and the part of it that a rank has."""
    for name, p in model.named_parameters():
        tied = config.tie_word_embeddings and "output_layer" in name
        key = "embedding.word_embeddings.weight" if tied else name.split("module.")[-1]
        divided = getattr(p, "tensor_model_parallel", False)
        part = (meg.layer.get(id(p)), ps.get_tensor_model_parallel_rank() if divided else 0,
                ps.get_expert_model_parallel_rank() if "experts" in name else 0)
        g = torch.Generator().manual_seed(zlib.crc32(f"{key} {part}".encode()))
        with torch.no_grad():
            value = torch.randn(p.shape, generator=g)
            p.copy_((1 + 0.1 * value if "norm" in name else 0.06 * value).to(torch.bfloat16))
        if "norm" in name and fault == "norms_not_reduced":
            p.sequence_parallel = False


def plain_norms(sizes):
    """The plain norm refuses sequence parallelism; with the flag of its weight it computes it."""
    if sizes.get("sp"):
        def make(cls, config, hidden_size, eps=1e-5, **kwargs):
            norm = torch.nn.RMSNorm(hidden_size, eps=eps)
            norm.weight.sequence_parallel = True
            return norm
        torch_norm.WrappedTorchNorm.__new__ = staticmethod(make)


@contextlib.contextmanager
def planted(case):
    """Faults that replace a function of megatron-core."""
    nothing, kept = (lambda *a, **k: None), []

    def replace(where, name, to):
        kept.append((where, name, getattr(where, name)))
        setattr(where, name, to)
    if case.fault == "tie_not_reduced":
        replace(finalizing, "_allreduce_word_embedding_grads", nothing)
    if case.fault == "not_reduced":
        replace(DistributedDataParallel, "finish_grad_sync", nothing)
        replace(DistributedDataParallel, "start_grad_sync", nothing)
    yield
    for where, name, value in kept:
        setattr(where, name, value)


def plant_in_gradients(case, model):
    for name, p in model.named_parameters():
        if case.fault == "summed" or (case.fault == "experts_summed" and "experts" in name):
            p.main_grad.mul_(2)


def plant_in_norm(case, optimizer):
    for o in getattr(optimizer, "chained_optimizers", [optimizer]):
        if case.fault in ("norm_of_stage", "norm_of_shard"):
            alone = [dist.new_group([r]) for r in range(dist.get_world_size())][dist.get_rank()]
            o.get_grad_stats_parallel_group = lambda alone=alone: alone
            o.grad_stats_parallel_group = alone
        if case.fault == "norm_counts_replicas":
            for group in o.param_groups:
                for p in group["params"]:
                    p.tensor_model_parallel = True
    if case.fault == "norm_lacks_experts":
        chained = optimizer.chained_optimizers
        for o in chained[1:]:
            o.get_grad_norm = lambda: 0.0
            o.get_main_grads_for_grad_norm = lambda: []


def record(out, case):
    sizes, wide, fault = SETTINGS[case.setting], case.type == "float32", case.fault
    tp, pp, dp = (sizes.get(x, 1) for x in ("tp", "pp", "dp"))
    ps.initialize_model_parallel(tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
                                 expert_model_parallel_size=sizes.get("ep", 1))
    plain_norms(sizes)
    changes = {"norm_topk_prob": True} if case.family == "qwen3_moe" else {}
    config = config_of(case.family, **changes)
    torch.manual_seed(1)
    own, net = build(config, sizes, wide)
    hf = config.to_dict()
    set_weights(net, Megatron(net, None, hf), config, fault)
    inner = net if wide else Float16Module(own, net)
    ddp = DistributedDataParallel(own, DistributedDataParallelConfig(
        use_distributed_optimizer=bool(sizes.get("sharded")), overlap_grad_reduce=False,
        grad_reduce_in_fp32=True), inner)
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=1e-2, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.95, adam_eps=1e-8, clip_grad=0.5,
        bf16=not wide, params_dtype=own.params_dtype, use_distributed_optimizer=bool(sizes.get("sharded"))), [ddp])
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
        if fault == "decay":
            group["weight_decay"] = 0.1
        elif "wd_mult" in group:
            group["weight_decay"] = 0.1 * group["wd_mult"]
    meg = Megatron([ddp], optimizer, hf)
    rank, micros = ps.get_data_parallel_rank(), 2
    parts = list(batches(config.vocab_size, 5, dp * micros, 2, documents=False))
    mine = parts[0::dp] if fault == "same_data" else parts[rank::dp]
    total = sum(targets_in(b["labels"]) for b in (mine * dp if fault == "same_data" else parts))
    rec = Recorder(out, [ddp], meg.config, names=meg.names, mesh=meg.mesh, note=case.name)
    meg.weights(rec)
    meg.activations(rec)
    losses = []

    def forward_step(data, model):
        b = next(data)
        rec.batch(b["ids"], b["labels"], shifted=True)
        labels, length = b["labels"], b["ids"].shape[1]
        if fault == "shifted":
            labels = torch.roll(labels, -1, 1)
            labels[:, -1] = -100
        later = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
        out = model(b["ids"], b["at"], later, labels=labels.clamp_min(0))

        def loss_of(out):
            seen = (labels != -100).float()
            nats = (out.float() * seen).sum()
            losses.append(nats.item() / total)
            loss = nats / total * dp * micros  # micro-batches divide the schedule's loss, DDP averages over ranks
            return (nats / seen.sum() if fault == "means" else loss), {}
        return out, loss_of
    own.finalize_model_grads_func, own.no_sync_func = finalize_model_grads, None
    with planted(case):
        ddp.zero_grad_buffer()
        get_forward_backward_func()(forward_step_func=forward_step, data_iterator=iter(mine), model=[ddp],
                                    num_microbatches=micros, seq_length=24, micro_batch_size=2, forward_only=False)
    plant_in_gradients(case, ddp)
    rec.grads(meg.grad)
    plant_in_norm(case, optimizer)
    _, norm, _ = optimizer.step()
    loss = torch.tensor([float(sum(losses))])
    dist.all_reduce(loss)
    rec.scalar(loss=loss / tp, norm=norm, clip=0.5)
    meg.after(rec)
    if fault == "decay":
        for group in rec.meta["optimizer"]["groups"]:
            if all("norm" in n for n in group["names"]):
                group["settings"]["weight_decay"] = 0.0
    rec.close()
    ps.destroy_model_parallel()
