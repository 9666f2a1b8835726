"""The models of benchmarks/models.cpp for the rival: same layers, sizes and order of random draws.

`make(name)` gives a module, its input and its target (None: the loss is the sum of the output). With the same seed both
languages draw the same weights and data.
"""

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
        x = x + self.out(self.attend(query, key, value).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


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


def gpt_bf16():
    net, tokens, target = gpt()
    return net.bfloat16(), tokens, target


def convolution(before, after, kernel, stride):
    return nn.Sequential(nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(after))


class Bottleneck(nn.Module):
    def __init__(self, before, middle, after, stride):
        super().__init__()
        self.a = convolution(before, middle, 1, 1)
        self.b = convolution(middle, middle, 3, stride)
        self.c = convolution(middle, after, 1, 1)
        self.shortcut = convolution(before, after, 1, stride) if before != after or stride != 1 else None

    def forward(self, x):
        beside = x if self.shortcut is None else self.shortcut(x)
        return F.relu(self.c(F.relu(self.b(F.relu(self.a(x))))) + beside)


class Resnet(nn.Module):
    def __init__(self, blocks, width):
        super().__init__()
        self.stem = convolution(3, width, 7, 2)
        stages, before = [], width
        for stage, count in enumerate(blocks):
            middle = width << stage
            for i in range(count):
                stages.append(Bottleneck(before, middle, 4 * middle, 2 if i == 0 and stage > 0 else 1))
                before = 4 * middle
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(before, 1000)

    def forward(self, x):
        seen = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        return self.head(F.adaptive_avg_pool2d(self.stages(seen), 1).flatten(1))


def resnet():
    return Resnet([1, 1, 1, 1], 16), torch.randn(8, 3, 96, 96), torch.randint(1000, (8,))


class Pointwise(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))

    def forward(self, x):
        y = torch.tanh(x * self.w + self.b)
        z = torch.sigmoid(y) * x + torch.exp(-y.abs())
        return (z * z.cos()).sum(1, keepdim=True) + z.mean(-1, keepdim=True)


def pointwise():
    return Pointwise(4096), torch.randn(512, 4096), None


def make(name):
    torch.manual_seed(0)
    return {"mlp": mlp, "conv_net": conv_net, "gpt": gpt, "gpt_bf16": gpt_bf16, "resnet": resnet,
            "pointwise": pointwise}[name]()


def loss_of(output, target):
    return output.sum() if target is None else F.cross_entropy(output.float(), target)
