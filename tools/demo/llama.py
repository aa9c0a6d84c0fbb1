"""The forward pass that the demo is trained with: Transformers' own parameters, fewer and larger steps.

It computes what LlamaForCausalLM computes (train.py checks that before it begins), on batches of one
shape only, so that a whole training step becomes one CUDA graph. Two things are different. A row holds
several documents, and attention stays within each. And n adapters are trained at once, as they are
served: the batch is n equal parts, part i goes through adapter i, and the products of all adapters with
their parts are one batched product. Adapters of different ranks and modules are padded to the largest;
padding begins as zero, so its gradient is zero and it stays zero.
"""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HEAD_DIM = 64
UNSEEN = -30000.0       # finite: attention computed in tiles may meet a tile with nothing to see


class Stack:
    """LoRA of one projection for n adapters: a [n, rank, in], b [n, out, rank], scale [n, 1, 1]."""

    def __init__(self, layers):
        """layers: for each adapter PEFT's layer, or None where it leaves the projection alone."""
        some = next(layer for layer in layers if layer is not None)
        rank = max(layer.r["default"] for layer in layers if layer is not None)
        self.layers = layers
        self.a = torch.zeros(len(layers), rank, some.in_features)
        self.b = torch.zeros(len(layers), some.out_features, rank)
        self.scale = torch.zeros(len(layers), 1, 1)
        for i, layer in enumerate(layers):
            if layer is not None:
                self.a[i, :layer.r["default"]] = layer.lora_A["default"].weight.detach()
                self.scale[i] = layer.scaling["default"]

    def to(self, device):
        self.a, self.b = (t.to(device).requires_grad_() for t in (self.a, self.b))
        self.scale = self.scale.to(device)
        return self

    @torch.no_grad()
    def give_back(self):
        """Copies what was learned into PEFT's layers."""
        for i, layer in enumerate(self.layers):
            if layer is not None:
                r = layer.r["default"]
                layer.lora_A["default"].weight.copy_(self.a[i, :r])
                layer.lora_B["default"].weight.copy_(self.b[i, :, :r])

    def add(self, y, x, dtype):
        """y + (x A^T) B^T scale, part by part."""
        n = len(self.layers)
        low = torch.bmm(x.view(n, -1, x.shape[-1]), self.a.to(dtype).mT)
        out = torch.baddbmm(y.view(n, -1, y.shape[-1]), low, (self.b * self.scale).to(dtype).mT)
        return out.view(y.shape)


class Llama:
    """weights: LlamaForCausalLM's parameters by name. stacks: Stack by projection ("model.layers.0....")."""

    def __init__(self, config, weights, stacks, length, device, dtype=torch.bfloat16):
        self.config, self.weights, self.stacks, self.dtype = config, weights, stacks, dtype
        frequency = config.rope_parameters["rope_theta"] ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angle = torch.outer(torch.arange(length), frequency).repeat(1, 2)
        self.cos, self.sin = angle.cos().to(device, dtype), angle.sin().to(device, dtype)

    def norm(self, x, name):
        weight = self.weights[name + ".weight"].float()
        return F.rms_norm(x, x.shape[-1:], weight, self.config.rms_norm_eps).to(self.dtype)

    def project(self, x, name):
        y = F.linear(x, self.weights[name + ".weight"].to(self.dtype))
        return self.stacks[name].add(y, x, self.dtype) if name in self.stacks else y

    def rotate(self, x):
        """x: [rows, heads, length, HEAD_DIM]"""
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def attention(self, x, bias, layer):
        rows, length, _ = x.shape
        q, k, v = (self.project(x, f"{layer}.self_attn.{p}_proj").view(rows, length, -1, HEAD_DIM).transpose(1, 2)
                   for p in "qkv")
        q, k = self.rotate(q), self.rotate(k)
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(-1, q.shape[1], -1, -1))
        return self.project(y.transpose(1, 2).reshape(rows, length, -1), f"{layer}.self_attn.o_proj")

    def mlp(self, x, layer):
        gate, up = (self.project(x, f"{layer}.mlp.{p}_proj") for p in ("gate", "up"))
        return self.project(F.silu(gate) * up, f"{layer}.mlp.down_proj")

    def logits(self, ids, doc):
        """ids, doc: [rows, length]; positions see what is before them in the same doc."""
        seen = (doc[:, :, None] == doc[:, None, :]).tril()
        bias = torch.zeros(seen.shape, device=ids.device, dtype=self.dtype).masked_fill(~seen, UNSEEN)[:, None]
        embedding = self.weights["model.embed_tokens.weight"]
        x = F.embedding(ids, embedding).float()
        for i in range(self.config.num_hidden_layers):
            layer = f"model.layers.{i}"
            x = x + self.attention(self.norm(x, f"{layer}.input_layernorm"), bias, layer)
            x = x + self.mlp(self.norm(x, f"{layer}.post_attention_layernorm"), layer)
        return F.linear(self.norm(x, "model.norm"), embedding.to(self.dtype))
