#!/usr/bin/env python3
"""Cuts a joint graph, written as graph text, with torch's own min-cut partitioner: what would it save?

Usage: partition_peer.py JOINT.tdm ...

Answers with a line of JSON per file: names of the saved values, their bytes, and the bytes of those that are no
parameter. Views are counted by their own elements, as the peer does. The graph must be static and dense.
"""

import json
import math
import operator
import re
import sys

import torch
import torch.fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
          "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
          "bool": torch.bool, "c64": torch.complex64, "c128": torch.complex128}
FORMATS = {"contiguous": torch.contiguous_format, "preserve": torch.preserve_format,
           "channels_last": torch.channels_last, "channels_last_3d": torch.channels_last_3d}
TOKEN = re.compile(r'\s*(%\w+|"(?:[^"\\]|\\.)*"|-?inf|nan|-?\d[\w.+-]*|[A-Za-z_][\w.]*|[\[\](),=:])')


class Text:
    """One line, token by token."""

    def __init__(self, line):
        self.tokens = TOKEN.findall(line)
        self.at = 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected=None):
        token = self.peek()
        if expected is not None and token != expected:
            raise ValueError(f"expected {expected}, found {token} in {' '.join(self.tokens)}")
        self.at += 1
        return token

    def list_of(self, item, close):
        items = []
        while self.peek() != close:
            items.append(item())
            if self.peek() == ",":
                self.take()
        self.take(close)
        return items

    def type(self):
        """(dtype, sizes, strides), or None for a number."""
        word = self.take()
        if word in ("int", "float"):
            return None
        if word == "bool" and self.peek() != "[":
            return None
        self.take("[")
        sizes = self.list_of(lambda: int(self.take()), "]")
        strides, step = [], 1
        for size in reversed(sizes):
            strides.insert(0, step)
            step *= max(size, 1)
        if self.peek() == "(":
            self.take()
            strides = self.list_of(lambda: int(self.take()), ")")
        return DTYPES[word], sizes, strides

    def operand(self, values):
        token = self.take()
        if token == "[":
            return self.list_of(lambda: self.operand(values), "]")
        if token.startswith("%"):
            return values[token]
        if token.startswith('"'):
            return json.loads(token)
        words = {"none": None, "true": True, "false": False, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}
        if token in words:
            return words[token]
        if token in DTYPES:
            return DTYPES[token]
        if token in FORMATS:
            return FORMATS[token]
        if token == "strided":
            return torch.strided
        if token == "cpu":
            return torch.device("cpu")
        return float(token) if re.search(r"[.eE]", token) else int(token)


def without_location(line):
    return re.sub(r"\s+# [^\"]*$", "", line)


class Translation:
    """A graph of torch.fx with the values of the text, by name."""

    def __init__(self, text):
        self.graph = torch.fx.Graph()
        self.values, self.names, self.static, self.inputs = {}, {}, [], []
        self.mode = FakeTensorMode()
        self.backward = False
        lines = [without_location(line) for line in text.splitlines()]
        self.head(lines[0])
        for line in lines[1:]:
            if " = constant " in line:
                self.constant(Text(line.split(" = ", 1)[0]))
        for line in lines[1:]:
            line = line.strip()
            if " = constant " in line:
                continue
            if line == "backward:":
                self.backward = True
            elif line.startswith("return"):
                self.returned(Text(line))
            elif line and line != "}":
                self.node(line)

    def fake(self, type_):
        if type_ is None:
            return 1
        dtype, sizes, strides = type_
        with self.mode:
            return torch.empty_strided(sizes, strides, dtype=dtype)

    def add(self, name, node, type_):
        node.meta["val"] = self.fake(type_)
        self.tag(node)
        self.values["%" + name] = node
        self.names[node.name] = name

    def tag(self, node):
        node.meta["partitioner_tag"] = "is_backward" if self.backward else "is_forward"

    def head(self, line):
        text = Text(line[line.index("("):])
        text.take("(")
        count = self.count = {"primals": 0, "tangents": 0}
        while text.peek() != ")":
            name = text.take()[1:]
            text.take(":")
            type_ = text.type()
            role = text.take()
            text.take()  # its index or name
            kind = "tangents" if role == "tangent" else "primals"
            count[kind] += 1
            node = self.graph.placeholder(f"{kind}_{count[kind]}")
            self.backward = kind == "tangents"
            self.add(name, node, type_)
            self.inputs.append(node.meta["val"])
            if role in ("param", "buffer", "lifted"):
                self.static.append(count[kind] - 1)
            if text.peek() == ",":
                text.take()
        self.backward = False

    def constant(self, text):
        """Like a buffer: it is there in any case, so keeping it costs nothing."""
        name = text.take()[1:]
        text.take(":")
        self.count["primals"] += 1
        node = self.graph.placeholder(f"primals_{self.count['primals']}")
        self.add(name, node, text.type())
        self.inputs.append(node.meta["val"])
        self.static.append(self.count["primals"] - 1)

    def node(self, line):
        left, call = line.split(" = ", 1)
        text = Text(left)
        results, is_list = [], False
        while text.peek():
            if text.peek() in ("[", "]", ","):
                is_list |= text.take() == "["
                continue
            token = text.take()
            if token == "none":
                results.append(None)
                continue
            text.take(":")
            results.append((token[1:], text.type()))
        text = Text(call)
        namespace, packet, *overload = text.take().split(".")
        op = getattr(getattr(getattr(torch.ops, namespace), packet), overload[0] if overload else "default")
        text.take("(")
        args, kwargs = [], {}
        while text.peek() != ")":
            if text.tokens[text.at + 1] == "=":
                name = text.take()
                text.take("=")
                kwargs[name] = text.operand(self.values)
            else:
                args.append(text.operand(self.values))
            if text.peek() == ",":
                text.take()
        node = self.graph.call_function(op, tuple(args), kwargs)
        if len(results) == 1 and not is_list and results[0] is not None:
            self.add(*self.named(results[0], node))
            return
        self.tag(node)
        node.meta["val"] = tuple(None if r is None else self.fake(r[1]) for r in results)
        for i, result in enumerate(results):
            if result is not None:
                self.add(*self.named(result, self.graph.call_function(operator.getitem, (node, i))))

    @staticmethod
    def named(result, node):
        name, type_ = result
        return name, node, type_

    def returned(self, text):
        text.take("return")
        forward, backward = [], []
        while text.peek():
            token = text.take()
            value = None if token == "none" else self.values[token]
            text.take(":")
            role = text.take()
            while text.peek() not in (",", ""):
                text.take()
            if text.peek() == ",":
                text.take()
            (backward if role == "grad" else forward).append(value)
        self.forward_outputs = len(forward)
        self.graph.output(tuple(forward + backward))


def saved_by_peer(text):
    translation = Translation(text)
    module = torch.fx.GraphModule(torch.nn.Module(), translation.graph)
    forward, _ = min_cut_rematerialization_partition(
        module, translation.inputs, num_fwd_outputs=translation.forward_outputs,
        static_lifetime_input_indices=translation.static)
    outputs = next(node for node in forward.graph.nodes if node.op == "output").args[0]
    static = {f"primals_{i + 1}" for i in translation.static}
    saved = list(outputs[translation.forward_outputs:])
    names = [translation.names.get(node.name, node.name) for node in saved]
    size = {name: node.meta["val"].numel() * node.meta["val"].itemsize for name, node in zip(names, saved)}
    return {"saved": names, "bytes": size,
            "activation_bytes": sum(size[name] for name, node in zip(names, saved) if node.name not in static)}


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            print(json.dumps({"file": path, **saved_by_peer(file.read())}), flush=True)
