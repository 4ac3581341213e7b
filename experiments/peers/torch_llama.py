"""A Llama in PyTorch, its GEMMs in BF16 or in FP8 with one scale a tensor.

B batch, T time, C width, H query heads, K key and value heads, D head dim, F ffn, V vocab.
"""
import torch
import torch.nn.functional as F
from torch import nn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def quantise(x, dtype):
    """x in FP8, scaled by its own largest value (current scaling), and the inverse factor."""
    largest = torch.finfo(dtype).max
    scale = largest / x.abs().max().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-largest, largest).to(dtype), 1 / scale


def columns(x):
    """The same matrix stored by columns, as the second operand of an FP8 GEMM must be."""
    return x.t().contiguous().t()


class Fp8Gemm(torch.autograd.Function):
    """y = x w^T, both E4M3; gradients E5M2. Fast accumulation forward, split backward, as the
    recipe fp8.tensorwise has it. The backward keeps BF16 operands and quantises them again."""

    @staticmethod
    def forward(ctx, x, weight):
        x8, from_x = quantise(x, E4M3)
        w8, from_w = quantise(weight, E4M3)
        ctx.save_for_backward(x, weight)
        return torch._scaled_mm(x8, w8.t(), from_x, from_w, out_dtype=torch.bfloat16,
                                use_fast_accum=True)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dy8, from_dy = quantise(dy, E5M2)
        w8, from_w = quantise(weight, E4M3)
        x8, from_x = quantise(x, E4M3)
        dx = torch._scaled_mm(dy8, columns(w8), from_dy, from_w, out_dtype=torch.bfloat16,
                              use_fast_accum=False)
        dweight = torch._scaled_mm(dy8.t().contiguous(), columns(x8), from_dy, from_x,
                                   out_dtype=torch.bfloat16, use_fast_accum=False)
        return dx, dweight


class Linear(nn.Linear):
    """A GEMM of a block, without bias, in the recipe's precision. The head is never FP8."""

    def __init__(self, inputs, outputs, fp8):
        super().__init__(inputs, outputs, bias=False)
        self.fp8 = fp8

    def forward(self, x):
        if not self.fp8:
            return F.linear(x, self.weight)
        return Fp8Gemm.apply(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class Block(nn.Module):
    """Attention and SwiGLU, each behind its RMSNorm and added to its input. x [B,T,C]."""

    def __init__(self, task, fp8):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = task.heads, task.kv_heads, task.head_dim
        rows = (task.heads + 2 * task.kv_heads) * task.head_dim
        self.norm1 = nn.RMSNorm(task.width, task.norm_eps)
        self.qkv = Linear(task.width, rows, fp8)
        self.attn_out = Linear(task.heads * task.head_dim, task.width, fp8)
        self.norm2 = nn.RMSNorm(task.width, task.norm_eps)
        self.ffn_in = Linear(task.width, 2 * task.ffn, fp8)  # gate, then up
        self.ffn_out = Linear(task.ffn, task.width, fp8)

    def attention(self, x, cos, sin):
        heads, kv_heads = self.heads, self.kv_heads
        qkv = self.qkv(x).unflatten(-1, (heads + 2 * kv_heads, self.head_dim))  # [B,T,H+2K,D]
        qk = rotate(qkv[:, :, :heads + kv_heads], cos, sin)
        q, k, v = qk[:, :, :heads], qk[:, :, heads:], qkv[:, :, heads + kv_heads:]
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                           is_causal=True, enable_gqa=heads != kv_heads)
        return self.attn_out(y.transpose(1, 2).flatten(-2))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        gate, up = self.ffn_in(self.norm2(x)).chunk(2, -1)
        return x + self.ffn_out(F.silu(gate) * up)


def rotate(x, cos, sin):
    """RoPE in f32: x [B,T,heads,D] by pairs (i, i + D/2), cos and sin [1,T,1,D/2]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def loss_of(logits, targets):
    """Mean over tokens of the cross entropy over the whole vocabulary, nats, from f32."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Llama(nn.Module):
    """tokens, targets [B,T] -> the loss. Device and dtype are PyTorch's defaults; the RoPE
    tables are always f32."""

    def __init__(self, task, fp8):
        super().__init__()
        self.embedding = nn.Embedding(task.vocab, task.width)
        self.blocks = nn.ModuleList(Block(task, fp8) for _ in range(task.layers))
        self.norm = nn.RMSNorm(task.width, task.norm_eps)
        self.head = nn.Linear(task.width, task.vocab, bias=False)
        self.loss = loss_of
        pairs = torch.arange(0, task.head_dim, 2, dtype=torch.float64) / task.head_dim
        angle = torch.outer(torch.arange(task.seq_len, dtype=torch.float64),
                            task.rope_theta ** -pairs)[None, :, None]
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        self.initialise(task.init_std)

    @torch.no_grad()
    def initialise(self, std):
        for weight in self.parameters():  # the gains of the norms are 1 already
            if weight.dim() == 2:
                weight.normal_(0, std)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.loss(self.head(self.norm(x)), targets)
