#!/usr/bin/env python3
"""A transformer of GPT-2's size, written with PyTorch alone: no line of it knows of pmpp.

    python -m torch_pmpp compare gpt2                     speed and differences of forward and training step
    python examples/python/gpt2.py [--device cuda]        a few training steps twice: off and on give the same losses

12 layers of width 768, 12 heads, vocabulary 50,257, 124 million parameters; nothing is downloaded, weights are random.
Source of the architecture: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import Tensor, nn

VOCABULARY = 50_257


class Block(nn.Module):
    """Attention and a two-layer perceptron, each added to what it reads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        batch, length, width = x.shape
        packed = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp_out(nn.functional.gelu(self.mlp_in(self.mlp_norm(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Tokens (batch, length) to logits (batch, length, vocabulary)."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the token after each."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @staticmethod
    def loss(logits: Tensor, tokens: Tensor) -> Tensor:
        """Mean cross entropy of each token but the first."""
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def make(
    batch: int = 8,
    length: int = 1024,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = VOCABULARY,
) -> tuple[GPT2, tuple[Tensor, ...]]:
    """The model and one batch of random tokens, on the CPU: what `python -m torch_pmpp compare` asks for."""
    torch.manual_seed(0)
    model = GPT2(layers, width, heads, vocabulary, max(length, 1024))
    return model, (torch.randint(vocabulary, (batch, length)),)


def train(model: GPT2, tokens: Tensor, steps: int) -> list[float]:
    """Losses of `steps` steps on one batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> int:
    """Trains with PyTorch's kernels and with ours; 1 if the losses part."""
    import torch_pmpp

    parser = argparse.ArgumentParser(description="Train a small GPT-2 with the switch off and on.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="124 million parameters instead of a small model")
    options = parser.parse_args()
    size = {} if options.full else {"batch": 2, "length": 32, "layers": 2, "width": 64, "heads": 4, "vocabulary": 1000}

    def fresh() -> tuple[GPT2, Tensor]:
        model, (tokens,) = make(**size)
        return model.to(options.device), tokens.to(options.device)

    theirs = train(*fresh(), options.steps)
    with torch_pmpp.replace_mm(options.device):
        ours = train(*fresh(), options.steps)
    print(f"{'step':>6}  {'PyTorch':>10}  {'pmpp':>10}")
    for step, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        print(f"{step:>6}  {a:>10.6f}  {b:>10.6f}")
    print(torch_pmpp.stats())
    apart = max(abs(a - b) / abs(a) for a, b in zip(theirs, ours, strict=True))
    print(f"largest relative distance of the losses: {apart:.1e}")
    return 0 if apart < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
