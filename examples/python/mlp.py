#!/usr/bin/env python3
"""A small network trained twice from the same start: once with PyTorch's product, once with ours.

    python examples/python/mlp.py [--device cuda] [--steps 200]      (in a checkout: PYTHONPATH=. python ...)

Swapping the operator is one line (`multiply=`); gradients come from the operator itself. The two losses must stay
together: they differ only by the rounding of float32. Exit code 1 if they do not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import torch_pmpp

Multiply = Callable[[Tensor, Tensor], Tensor]


class Linear(nn.Module):
    """y = x @ weight + bias, with the product of one's choice."""

    def __init__(self, inputs: int, outputs: int, multiply: Multiply) -> None:
        super().__init__()
        self.multiply = multiply
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.weight) + self.bias


def make_model(multiply: Multiply) -> nn.Module:
    """Three layers; the same seed gives the same weights whatever multiplies."""
    torch.manual_seed(0)
    return nn.Sequential(
        Linear(32, 128, multiply), nn.GELU(), Linear(128, 128, multiply), nn.GELU(), Linear(128, 1, multiply)
    )


def make_data(samples: int) -> tuple[Tensor, Tensor]:
    """Points with a smooth target that a small network can learn."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 32, generator=generator)
    return x, (x[:, :4].sin().sum(1, keepdim=True) + 0.1 * x[:, 4:8].square().sum(1, keepdim=True))


def train(multiply: Multiply, x: Tensor, y: Tensor, steps: int) -> tuple[list[float], float]:
    """Losses of all steps, and seconds taken."""
    model = make_model(multiply).to(x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    start = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, time.perf_counter() - start


def main() -> int:
    """Trains both and compares."""
    parser = argparse.ArgumentParser(
        description="Train a small network with torch.mm and with torch_pmpp.tiled_matmul."
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    x, y = (tensor.to(options.device) for tensor in make_data(1000))

    theirs, their_seconds = train(torch.mm, x, y, options.steps)
    ours, our_seconds = train(torch_pmpp.tiled_matmul, x, y, options.steps)
    print(f"{'step':>6}  {'torch.mm':>10}  {'tiled_matmul':>12}")
    for step in sorted(
        {0, 1, 2, options.steps // 4, options.steps // 2, options.steps - 1} & set(range(options.steps))
    ):
        print(f"{step:>6}  {theirs[step]:>10.6f}  {ours[step]:>12.6f}")
    print(f"torch.mm {their_seconds:.2f} s, tiled_matmul {our_seconds:.2f} s on {options.device}")

    # Rounding differs from the first step on and training amplifies it, so the bound is loose; a wrong gradient would
    # part the curves at once.
    apart = max(abs(a - b) / max(abs(a), 1e-3) for a, b in zip(theirs, ours, strict=True))
    learned = ours[-1] < 0.5 * ours[0]
    print(f"largest relative distance of the losses: {apart:.1e}; loss {ours[0]:.3f} -> {ours[-1]:.3f}")
    if apart > 0.05 or not learned:
        print("The two runs do not agree.", file=sys.stderr)
        return 1
    print("The two runs agree.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
