# SPDX-License-Identifier: Apache-2.0
"""Records a training step of Megatron-core with orthant_record.py; format: docs/record.md.

    meg = Megatron(model, optimizer, config)         # config of Hugging Face, a dict
    rec = Recorder("step0", model, meg.config, names=meg.names, mesh=meg.mesh)
    meg.weights(rec)                                 # before the forward passes
    rec.batch(ids, labels=labels, shifted=True)      # each micro-batch: whole sequences
    rec.grads(meg.grad)                              # before optimizer.step()
    rec.scalar(loss=loss, norm=norm)
    meg.after(rec)
    rec.close()

Parameters that Megatron fuses or cuts become those of Hugging Face: queries, keys and values by
groups, gate and up, experts, layers of pipeline chunks, and the ranges of parameters that the
distributed optimizer has. The padding of the vocabulary counts in Megatron's softmax, so that the
model that is recorded has it: meg.config."""
import functools, re
import torch
from megatron.core import parallel_state as ps
from orthant_record import clean, plain

# Modules of a layer whose parameters have one name each; the dimension of weights that tensor
# parallelism cuts.
WHOLE = {
    "input_layernorm": ("input_layernorm", None),
    "self_attention.linear_qkv.layer_norm": ("input_layernorm", None),  # of TransformerEngine
    "self_attention.q_layernorm": ("self_attn.q_norm", None),
    "self_attention.k_layernorm": ("self_attn.k_norm", None),
    "self_attention.linear_proj": ("self_attn.o_proj", 1),
    "pre_mlp_layernorm": ("post_attention_layernorm", None),
    "mlp.linear_fc1.layer_norm": ("post_attention_layernorm", None),  # of TransformerEngine
    "mlp.linear_fc2": ("mlp.down_proj", 1),
    "mlp.router": ("mlp.gate", None),
    "mlp.shared_experts.linear_fc2": ("mlp.shared_expert.down_proj", 1),
    "mlp.shared_experts.gate": ("mlp.shared_expert_gate", None),
}
GATED = {"mlp.linear_fc1": "mlp", "mlp.shared_experts.linear_fc1": "mlp.shared_expert"}
MIXTRAL = [(".mlp.", ".block_sparse_moe."), (".gate_proj.", ".w1."), (".up_proj.", ".w3."),
           (".down_proj.", ".w2.")]
EXPERT = re.compile(r"mlp\.experts\.(?:local_experts\.(\d+)\.)?linear_fc([12])\.weight(\d*)")

def axis(name):
    """Size of an axis and this rank's coordinate on it."""
    return tuple(getattr(ps, f"get_{name}_parallel_{what}")() for what in ("world_size", "rank"))

def along(dim, ranks):
    """The place of a part that is this rank's, of `ranks` equal ones along a dimension."""
    def place(shape, part):
        whole, offset = list(part.shape), [0] * part.ndim
        if dim is not None: whole[dim], offset[dim] = whole[dim] * ranks[0], whole[dim] * ranks[1]
        return {"shape": whole, "offset": offset}
    return place

def named(name, view, place):
    """`view`: parameter -> what has the name; place(shape of the parameter, part): where it is."""
    def cut(value):
        if not hasattr(value, "orthant_first"):
            part = view(value)
            return part, place(value.shape, part)
        shape = value.orthant_shape  # elements first, first + 1, ... of a parameter of this shape
        part = view(torch.arange(shape.numel()).view(shape))
        at = part.reshape(-1) - value.orthant_first
        own = ((at >= 0) & (at < value.numel())).nonzero().flatten()
        ends = (own.diff() != 1).nonzero().flatten() + 1
        runs = [r for r in own.tensor_split(ends.tolist()) if len(r) > 0]
        flat = [int(x) for r in runs for x in (r[0], len(r))]
        found = {**place(shape, part), "block": list(part.shape), "flat": flat}
        return value[at[own].to(value.device)], found
    return name, cut

class Megatron:
    def __init__(self, model, optimizer, config):
        self.models = list(model) if isinstance(model, (list, tuple)) else [model]
        optimizers = getattr(optimizer, "chained_optimizers", [optimizer])
        self.optimizers = [o for o in optimizers if o is not None]
        self.config, self.layer, self.owner = dict(config), {}, {}
        self.tp, self.etp, self.ep = map(axis, ("tensor_model", "expert_tensor", "expert_model"))
        self.mesh = {"tp": self.tp, "cp": axis("context"), "pp": axis("pipeline_model"),
                     "dp": axis("data")}
        for n, p in (x for m in self.models for x in m.named_parameters()):
            if n.endswith(("word_embeddings.weight", "output_layer.weight")):
                self.config["vocab_size"] = len(p) * self.tp[0]
        self.layers = [m for x in self.models for m in x.modules() if hasattr(m, "self_attention")]
        for m in self.layers:
            held = list(m.parameters()) + list(m.buffers())
            self.layer.update((id(p), m.layer_number - 1) for p in held)
        index = "model_param_group_index_map"  # of the distributed optimizer
        self.sharded = any(hasattr(o, index) for o in self.optimizers)
        for o in self.optimizers:
            for p, (group, _) in getattr(o, index, {}).items():
                self.owner[id(p)] = (o, group, o._get_model_param_range_map(p)["param"])

    def names(self, name, p):
        """[(Hugging Face name, cut)] of a parameter of this rank; none of prediction layers."""
        family, changes = self.config["model_type"], []
        if "qwen" not in family: changes = [(".shared_expert.", ".shared_experts.")]
        if family == "mixtral": changes = MIXTRAL
        return [(functools.reduce(lambda n, c: n.replace(*c), changes, hf), cut)
                for hf, cut in self._names(name, p)]

    def _names(self, name, p):
        name = re.sub(r"^.*?(?=embedding\.|decoder\.|output_layer\.|mtp\.)", "", clean(name))
        layer = re.fullmatch(r"decoder\.layers\.\d+\.(.*)", name)
        if layer: return self._layer_names(f"model.layers.{self.layer[id(p)]}.", layer[1])
        if name.startswith("mtp."): return []
        if name.startswith("decoder.final_layernorm."):
            return [named("model.norm.weight", lambda v: v, along(None, self.tp))]
        tied = name.startswith("embedding.") or self.config.get("tie_word_embeddings")
        return [named("model.embed_tokens.weight" if tied else "lm_head.weight", lambda v: v,
                      along(0, self.tp))]

    def _layer_names(self, prefix, name):
        name = name.replace("layer_norm_", "layer_norm.").replace("gate_weight", "gate.weight")
        name = name.replace("expert_bias", "e_score_correction_bias")
        module, _, kind = name.rpartition(".")
        expert = EXPERT.fullmatch(name)
        if expert: return self._expert_names(prefix, expert)
        if module in GATED: return self._gated(prefix + GATED[module] + ".", kind, self.tp)
        if module == "self_attention.linear_qkv":
            return [self._heads(f"{prefix}self_attn.{x}_proj.{kind}", x) for x in "qkv"]
        if module not in WHOLE: raise KeyError(f"{name}: no Hugging Face name is known")
        hf, dim = WHOLE[module]
        place = along(dim if kind == "weight" else None, self.tp)
        return [named(f"{prefix}{hf}.{kind}", lambda v: v, place)]

    def _gated(self, prefix, kind, ranks):
        """A rank's rows of fc1: those of the gate, then those of up."""
        return [named(f"{prefix}{part}_proj.{kind}", lambda v, k=k: v.chunk(2)[k], along(0, ranks))
                for k, part in enumerate(("gate", "up"))]

    def _expert_names(self, prefix, found):
        keys = ("num_experts", "num_local_experts", "n_routed_experts")
        count = next(self.config[k] for k in keys if self.config.get(k)) // self.ep[0]
        expert = self.ep[1] * count + int(found[1] or found[3] or 0)
        name = f"{prefix}mlp.experts.{expert}."
        if found[2] == "1": return self._gated(name, "weight", self.etp)
        return [named(name + "down_proj.weight", lambda v: v, along(1, self.etp))]

    def _heads(self, name, which):
        """A rank's rows of qkv, by groups: the query heads of a group, its key and its value."""
        heads = self.config["num_attention_heads"]
        groups = self.config.get("num_key_value_heads") or heads
        queries = heads // groups
        rows = {"q": slice(queries), "k": slice(-2, -1), "v": slice(-1, None)}[which]
        def view(v):
            grouped = v.reshape(groups // self.tp[0], queries + 2, -1, *v.shape[1:])
            return grouped[:, rows].reshape(-1, *v.shape[1:])
        return named(name, view, along(0, self.tp))

    def _part(self, p, values):
        """`values`: of the range of p that the optimizer of this rank has."""
        values = values.reshape(-1)
        values.orthant_first, values.orthant_shape = self.owner[id(p)][2].start, p.shape
        return values

    def grad(self, p):
        """Gradients are complete only in the range of this rank if the optimizer is distributed."""
        g = p.grad if getattr(p, "main_grad", None) is None else p.main_grad
        if g is None or not self.sharded: return g
        if id(p) not in self.owner: return None
        own = self.owner[id(p)][2]
        return self._part(p, g.reshape(-1)[own.start:own.end])

    def _state(self, p, key):
        """A tensor of the optimizer: "exp_avg", "exp_avg_sq", or "param", its copy of p."""
        if id(p) in self.owner:
            value = self.owner[id(p)][0]._get_main_param_and_optimizer_states(p).get(key)
            return None if value is None else self._part(p, value)
        main = p if getattr(p, "main_param", None) is None else p.main_param
        if self.sharded: return None
        states = [o.optimizer.state[main] for o in self.optimizers if main in o.optimizer.state]
        return main if key == "param" else states[0].get(key) if states else None

    def _record_states(self, rec, end, moments_end):
        master = lambda p: self._state(p, "param") if p.dtype != torch.float32 else None
        rec.each("master" + end, master)
        rec.each("m" + moments_end, lambda p: self._state(p, "exp_avg"))
        rec.each("v" + moments_end, lambda p: self._state(p, "exp_avg_sq"))

    def weights(self, rec):
        rec.weights()
        self._record_states(rec, "", "_before")

    def activations(self, rec):
        """Outputs of layers, by their numbers in the whole model, and the gradients of these."""
        for m in self.layers:
            ranks = self.tp if m.config.sequence_parallel else (1, 0)
            record = functools.partial(self._activation, rec, f"model.layers.{m.layer_number - 1}",
                                       lambda v, ranks=ranks: (v, along(0, ranks)(v.shape, v)))
            rec.hooks.append(m.register_forward_hook(record))

    def _activation(self, rec, name, cut, module, inputs, out):
        out, micro = out[0] if isinstance(out, tuple) else out, rec.micro
        rec.put("act", name, out, cut, micro)
        if out.requires_grad:
            out.register_hook(lambda grad: rec.put("act_grad", name, grad, cut, micro))

    def after(self, rec):
        rec.after()
        self._record_states(rec, "_after", "")
        groups, params = [], [x for m in self.models for x in m.named_parameters()]
        for o in self.optimizers:
            for i, group in enumerate(o.optimizer.param_groups):
                inside, state = {id(x) for x in group["params"]}, o.optimizer.state
                def has(p):
                    if id(p) in self.owner: return self.owner[id(p)][:2] == (o, i)
                    return id(p) in inside or id(getattr(p, "main_param", None)) in inside
                steps = [float(state[x]["step"]) for x in group["params"]
                         if "step" in state.get(x, {})]
                found = {"step": max(steps, default=None), **group, "params": None}.items()
                groups.append({
                    "names": [hf for n, p in params if has(p) for hf, _ in self.names(n, p)],
                    "settings": {k: plain(v) for k, v in found if plain(v) is not None}})
        kind = type(self.optimizers[0].optimizer).__name__ if self.optimizers else ""
        rec.meta["optimizer"] = {"class": kind, "groups": groups}
