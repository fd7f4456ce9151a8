"""Writes a language model with random weights as a GGUF file of 0.2 MB that the real llama-server can load.

    python3 tests/live/tiny_gguf.py OUT.gguf

The vocabulary has the 256 bytes, so that every text has tokens. Only Python's standard library is needed.
"""
import random
import struct
import sys

EMBD, LAYERS, FF, CTX, HEADS = 64, 1, 64, 2048, 1
U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, value):
    """Encodes a key and its value for the header. The kind of an array is a tuple with the kind of its elements."""
    pack = {U32: lambda v: struct.pack("<I", v), F32: lambda v: struct.pack("<f", v), STRING: text,
            I32: lambda v: struct.pack("<i", v)}
    if isinstance(kind, tuple):
        body = struct.pack("<IIQ", ARRAY, kind[0], len(value)) + b"".join(pack[kind[0]](v) for v in value)
    else:
        body = struct.pack("<I", kind) + pack[kind](value)
    return text(key) + body


def vocabulary():
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["\u2581"]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL]
    return tokens, kinds


def header(tokens, kinds, context):
    return [
        entry("general.architecture", STRING, "llama"), entry("general.name", STRING, "random"),
        entry("general.file_type", U32, 0), entry("llama.context_length", U32, context),
        entry("llama.embedding_length", U32, EMBD), entry("llama.block_count", U32, LAYERS),
        entry("llama.feed_forward_length", U32, FF), entry("llama.attention.head_count", U32, HEADS),
        entry("llama.attention.head_count_kv", U32, HEADS),
        entry("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        entry("llama.rope.dimension_count", U32, EMBD // HEADS), entry("llama.vocab_size", U32, len(tokens)),
        entry("tokenizer.ggml.model", STRING, "llama"), entry("tokenizer.ggml.tokens", (STRING,), tokens),
        entry("tokenizer.ggml.scores", (F32,), [0.0] * len(tokens)),
        entry("tokenizer.ggml.token_type", (I32,), kinds), entry("tokenizer.ggml.bos_token_id", U32, 1),
        entry("tokenizer.ggml.eos_token_id", U32, 2), entry("tokenizer.ggml.unknown_token_id", U32, 0)]


def tensors(words):
    yield "token_embd.weight", (EMBD, words)
    yield "output.weight", (EMBD, words)
    yield "output_norm.weight", (EMBD,)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        yield at + "attn_norm.weight", (EMBD,)
        yield at + "ffn_norm.weight", (EMBD,)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"{at}{name}.weight", (EMBD, EMBD)
        yield at + "ffn_gate.weight", (EMBD, FF)
        yield at + "ffn_up.weight", (EMBD, FF)
        yield at + "ffn_down.weight", (FF, EMBD)


def write(path, context=CTX):
    pairs = header(*vocabulary(), context)
    rows, offset, info = list(tensors(len(vocabulary()[0]))), 0, b""
    noise = random.Random(1)
    data = []
    for name, shape in rows:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        info += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        info += struct.pack("<IQ", 0, offset)  # 0: 32-bit floating point
        values = [1.0] * count if len(shape) == 1 else [noise.gauss(0, 0.02) for _ in range(count)]
        raw = struct.pack(f"<{count}f", *values)
        data.append(raw + b"\0" * (-len(raw) % 32))
        offset += len(data[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(rows), len(pairs)) + b"".join(pairs) + info
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        f.write(b"".join(data))


if __name__ == "__main__":
    write(sys.argv[1])
