# SPDX-License-Identifier: Apache-2.0
"""Records one training step of a PyTorch program for `orthant judge`; format: docs/record.md.

    rec = Recorder("step0", model, config=model.config)  # on every rank
    rec.weights()                                        # before the forward pass
    rec.batch(ids, labels=labels)                        # each micro-batch: whole sequences
    rec.grads()                                          # reduced over ranks, before clipping
    rec.scalar(loss=loss, norm=norm)                     # of the whole step
    rec.after(optimizer)                                 # before a schedule changes its rates
    rec.close()

Each rank writes what it holds; nothing is communicated, compared or changed. No dropout."""
import glob, json, math, os, re
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as place_of

WRAPPERS = re.compile(r"\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")

def clean(name):
    """The name of a module or parameter without what wrappers add to it."""
    return re.sub(r"^(module\.)+", "", WRAPPERS.sub("", name))

def plain(value):
    """A setting for JSON, which has no NaN and no infinity: they are texts. None: not one."""
    if isinstance(value, torch.Tensor) and value.numel() == 1: value = value.item()
    if isinstance(value, float): return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)): return [plain(x) for x in value]
    return value if isinstance(value, (bool, int, str)) else None

class Recorder:
    """model: a module or a list of them. config: Hugging Face's, as an object, a dict or JSON.
    names(name, parameter): [(Hugging Face name, cut)]; cut: None, or a function from what this
    rank has of the parameter to what has the name, and its place (None: all of it).
    mesh: a DeviceMesh, {axis: size}, innermost last, or {axis: (size, this rank's coordinate)}."""
    def __init__(self, out, model, config=None, names=None, mesh=None, note=None):
        self.rank, self.world, self.micro, first = 0, 1, 0, {}
        if dist.is_initialized(): self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.models = list(model) if isinstance(model, (list, tuple)) else [model]
        self.names = names or (lambda name, parameter: [(clean(name), None)])
        self.path, self.tensors, self.hooks = os.path.join(out, f"rank-{self.rank:05d}"), {}, []
        drops = [m.p for x in self.models for m in x.modules() if isinstance(m, torch.nn.Dropout)]
        self.meta = {"format": "orthant-step-1", "rank": self.rank, "world": self.world, "mesh": {},
                     "coordinates": {}, "software": f"torch {torch.__version__}", "aliases": {},
                     "note": note or "", "dropout": max(drops, default=0.0), "moment": "",
                     "batches": [], "scalars": {}, "optimizer": {}, "tensors": {}}
        for n, p in (x for m in self.models for x in m.named_parameters(remove_duplicate=False)):
            if first.setdefault(id(p), clean(n)) != clean(n):  # a second name of a parameter
                self.meta["aliases"][clean(n)] = first[id(p)]
        ddp = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        self._axes({"dp": self.world} if mesh is None and ddp else mesh or {})
        os.makedirs(out, exist_ok=True)
        for old in glob.glob(glob.escape(self.path) + ".*"): os.remove(old)
        if hasattr(config, "to_json_string"): config = config.to_json_string(use_diff=False)
        if isinstance(config, dict): config = json.dumps(config)
        if self.rank == 0 and config is not None:
            with open(os.path.join(out, "config.json"), "w") as file: file.write(config)
    def _axes(self, mesh):  # adds axes to the mesh of the record; returns their names
        if not isinstance(mesh, dict):
            names = mesh.mesh_dim_names or [f"dim{i}" for i in range(mesh.ndim)]
            mesh = {a: (mesh.size(i), mesh.get_local_rank(i)) for i, a in enumerate(names)}
        inner = math.prod(v for v in mesh.values() if isinstance(v, int))
        if inner not in (1, self.world): raise ValueError(f"{mesh} is not {self.world} ranks")
        for axis, v in mesh.items():
            if isinstance(v, int): inner, v = inner // v, (v, self.rank // (inner // v) % v)
            self.meta["mesh"][axis], self.meta["coordinates"][axis] = v
        return list(mesh)
    def _local(self, value, cut):  # what this rank has of a tensor, and its place
        place = {}
        if isinstance(value, DTensor):
            mesh, placements, shape = value.device_mesh, value.placements, list(value.shape)
            value, (size, offset) = value.to_local(), place_of(shape, mesh, placements)
            ops = {a: p.reduce_op for a, p in zip(self._axes(mesh), placements) if p.is_partial()}
            if tuple(size) != tuple(value.shape) or any(op != "sum" for op in ops.values()):
                raise RuntimeError(f"{placements} of {shape}: a shard of {list(value.shape)}")
            place = {"shape": shape, "offset": list(offset), "partial": list(ops)}
        value, more = cut(value) if cut else (value, None)
        return value, {"shape": list(value.shape), **place, **(more or {})}

    def put(self, kind, name, value, cut=None, micro=None):
        """Records a tensor of any kind."""
        key = f"{kind}/{name}" if micro is None else f"{kind}/{micro}.{name}"
        value, self.meta["tensors"][key] = self._local(value, cut)
        self.tensors[key] = value.detach().to("cpu", copy=True).contiguous()
    def _parameters(self):  # and buffers that files of weights have, such as biases of routers
        for m in self.models:
            yield from m.named_parameters()
            kept = {id(x._buffers[n]) for x in m.modules() for n in
                    set(x._buffers) - x._non_persistent_buffers_set}
            yield from ((n, b) for n, b in m.named_buffers()
                        if id(b) in kept and b.is_floating_point())
    def each(self, kind, get):
        """Records get(parameter) of all parameters of which it is not None."""
        for n, p, value in ((n, p, get(p)) for n, p in self._parameters()):
            for name, cut in self.names(n, p) if value is not None else []:
                self.put(kind, name, value, cut)
    def _moments(self, state, end):
        for kind, key in ("m", "momentum_buffer"), ("m", "exp_avg"), ("v", "exp_avg_sq"):
            self.each(kind + end, lambda p: state[p].get(key) if p in state else None)
    def weights(self, optimizer=None):  # the optimizer from the second step on, for its moments
        self.each("weight", lambda p: p)
        self._moments(getattr(optimizer, "state", {}), "_before")
    def batch(self, ids, labels=None, positions=None, documents=None, weight=None, micro=None,
              shifted=False):  # labels[t] is the id that token t predicts, else the id that it is
        self.micro = len(self.meta["batches"]) if micro is None else micro
        self.meta["batches"].append({"micro": self.micro, "shifted": bool(shifted)})
        fields = {"ids": ids, "labels": labels, "positions": positions, "documents": documents}
        for field, v in {**fields, "weight": weight}.items():
            if v is None: continue
            v = torch.as_tensor(v).to(torch.float32 if field == "weight" else torch.int32)
            self.put("batch", field, v.expand(*torch.as_tensor(ids).shape), micro=self.micro)
    def grads(self, get=None, moment="reduced, before clipping"):
        self.meta["moment"] = moment
        main = lambda p: p.grad if getattr(p, "main_grad", None) is None else p.main_grad
        self.each("grad", get or main)
    def scalar(self, **values):
        for name, v in values.items():
            v = v.full_tensor() if isinstance(v, DTensor) else v
            if v is not None: self.meta["scalars"][name] = plain(float(v))
    def activations(self, select=re.compile(r"(^|\.)(layers|h)\.\d+$").search):
        """Outputs, and their gradients, of the modules that `select` chooses by their names."""
        for n, m in ((clean(n), m) for x in self.models for n, m in x.named_modules()):
            record = lambda module, inputs, out, n=n: self._activation(n, out)
            if select(n): self.hooks.append(m.register_forward_hook(record))
    def _activation(self, name, out):
        out, micro = out[0] if isinstance(out, tuple) else out, self.micro
        self.put("act", name, out, micro=micro)
        if out.requires_grad: out.register_hook(lambda g: self.put("act_grad", name, g, None, micro))
    def after(self, optimizer=None):
        self.each("after", lambda p: p)
        while hasattr(optimizer, "optimizer"): optimizer = optimizer.optimizer  # of accelerate
        self._moments(getattr(optimizer, "state", {}), "")
        if optimizer is not None: self.settings(optimizer)
    def settings(self, optimizer, step=None):  # step: its number from 1, if there is no state
        """after() calls it; call it yourself before DeepSpeed replaces the parameters."""
        names, groups = {p: [hf for hf, _ in self.names(n, p)] for n, p in self._parameters()}, []
        for group in optimizer.param_groups:
            params, state = group["params"], optimizer.state
            steps = [float(state[p]["step"]) for p in params if "step" in state.get(p, {})]
            found = {"step": max(steps, default=step), **group, "params": None}.items()
            groups.append({"names": [hf for p in params for hf in names.get(p, [])],
                           "settings": {k: plain(v) for k, v in found if plain(v) is not None}})
        self.meta["optimizer"] = {"class": type(optimizer).__name__, "groups": groups}
    def close(self):
        for h in self.hooks: h.remove()
        save_file(self.tensors, self.path + ".safetensors")
        with open(self.path + ".partial", "w") as file: json.dump(self.meta, file, allow_nan=False)
        os.replace(self.path + ".partial", self.path + ".json")
