"""The first training step of a fresh process through torch.compile: one line of JSON.

Usage: first_call_peer.py MODEL, with TORCHINDUCTOR_CACHE_DIR an empty folder. The models are those of
benchmarks/models.cpp, which first_call_bench times for Tandem.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


def mlp():
    layers = []
    for _ in range(6):
        layers += [nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(512, 10)), torch.randn(256, 512), torch.randint(10, (256,))


def conv_net():
    layers, width = [], 3
    for wider in (32, 32, 64, 64, 128):
        layers += [nn.Conv2d(width, wider, 3, stride=2 if wider > width else 1, padding=1, bias=False),
                   nn.BatchNorm2d(wider), nn.ReLU()]
        width = wider
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return net, torch.randn(32, 3, 32, 32), torch.randint(10, (32,))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        split = lambda part: part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        query, key, value = map(split, self.qkv(self.norm1(x)).split(width, 2))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, width, heads, blocks):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def gpt():
    return Gpt(2048, 128, 256, 4, 4), torch.randint(2048, (4, 128)), torch.randint(2048, (4 * 128,))


def main():
    torch.manual_seed(0)
    net, x, y = {"mlp": mlp, "conv_net": conv_net, "gpt": gpt}[sys.argv[1]]()
    step = torch.compile(lambda x, y: F.cross_entropy(net(x), y))
    times = []
    for _ in range(2):
        start = time.perf_counter()
        step(x, y).backward()
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"first_ms": times[0], "second_ms": times[1]}))


if __name__ == "__main__":
    main()
