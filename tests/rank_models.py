"""Tiny reranking models for llama.cpp: the larger the share of the letter z in a passage, the larger its score.

All attention is uniform, so what the last layer sees is the mean of the tokens. In that mean, dimension 0 counts the
tokens that are a z, and dimension 1 all others.
"""

import numpy as np

from gguf_writer import write_gguf

WIDTH, HEADS, HIDDEN, WINDOW = 64, 2, 32, 512
LETTER = "z"
RANK_POOLING = 4
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
TEMPLATE = "<s>Judge the document.\n<query>: {query}\n<document>: {document}</s>"


def write_qwen(path, *, template=TEMPLATE, classifier=True):
    """Write a model of the kind of Qwen3-Reranker: a template, and two outputs that are probabilities."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz"]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * 27]
    values = _common("qwen3", tokens, kinds) | {
        "qwen3.attention.layer_norm_rms_epsilon": 1e-5,
        "qwen3.attention.key_length": WIDTH // HEADS,
        "qwen3.attention.value_length": WIDTH // HEADS,
        "qwen3.classifier.output_labels": ["yes", "no"],
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.scores": [0.0] * 259 + [-1.0] * 27,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
        **({"tokenizer.chat_template.rerank": template} if template else {}),
    }
    tensors = {"token_embd.weight": _embeddings(tokens), "output_norm.weight": _ones(WIDTH)}
    tensors |= {f"blk.0.{name}_norm.weight": _ones(WIDTH) for name in ("attn", "ffn")}
    tensors |= {f"blk.0.attn_{name}_norm.weight": _ones(WIDTH // HEADS) for name in "qk"}
    tensors |= _attention() | _feed_forward("gate", "up")
    if classifier:
        head = np.zeros((2, WIDTH), np.float32)
        head[:, 0], head[:, 1] = (6.0, -6.0), (-0.3, 0.3)
        tensors["cls.output.weight"] = head
    return write_gguf(path, values, tensors)


def write_bert(path):
    """Write a model of the kind of bge-reranker: no template, and one output that is a logit."""
    words = ["▁quay", "▁ferry", "▁tea", "▁[", "▁]", *(f"▁{chr(letter)}" for letter in range(97, 123))]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    values = _common("bert", tokens, [CONTROL] * 4 + [NORMAL] * len(words)) | {
        "bert.attention.layer_norm_epsilon": 1e-5,
        "bert.attention.causal": False,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
    }
    tensors = {"token_embd.weight": _embeddings(tokens)}
    tensors |= {"token_types.weight": _zeros(2, WIDTH), "position_embd.weight": _zeros(WINDOW, WIDTH)}
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        tensors |= {f"{name}.weight": _ones(WIDTH), f"{name}.bias": _zeros(WIDTH)}
    tensors |= _attention() | _feed_forward("up")
    sizes = {"attn_q": WIDTH, "attn_k": WIDTH, "attn_v": WIDTH, "attn_output": WIDTH, "ffn_up": HIDDEN}
    tensors |= {f"blk.0.{name}.bias": _zeros(size) for name, size in {**sizes, "ffn_down": WIDTH}.items()}
    head = np.zeros((1, WIDTH), np.float32)
    head[0, 0] = 4.0
    tensors |= {"cls.weight": 0.2 * np.eye(WIDTH), "cls.bias": _zeros(WIDTH)}
    tensors |= {"cls.output.weight": head, "cls.output.bias": _zeros(1)}
    return write_gguf(path, values, tensors)


def _common(architecture, tokens, kinds):
    return {
        "general.architecture": architecture,
        "general.name": "tiny reranker",
        f"{architecture}.context_length": WINDOW,
        f"{architecture}.embedding_length": WIDTH,
        f"{architecture}.block_count": 1,
        f"{architecture}.feed_forward_length": HIDDEN,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": HEADS,
        f"{architecture}.pooling_type": RANK_POOLING,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
    }


def _embeddings(tokens):
    found = np.zeros((len(tokens), WIDTH), np.float32)
    for place, token in enumerate(tokens):
        found[place, 0 if token.strip("▁").lower() in {LETTER, f"<0x{ord(LETTER):02x}>"} else 1] = 1.0
    return found


def _attention():
    """Queries and keys are zero, values and outputs are the tokens themselves."""
    found = {f"blk.0.attn_{name}.weight": _zeros(WIDTH, WIDTH) for name in "qk"}
    return found | {f"blk.0.attn_{name}.weight": np.eye(WIDTH, dtype=np.float32) for name in ("v", "output")}


def _feed_forward(*inputs):
    found = {f"blk.0.ffn_{name}.weight": _zeros(HIDDEN, WIDTH) for name in inputs}
    return found | {"blk.0.ffn_down.weight": _zeros(WIDTH, HIDDEN)}


def _ones(*shape):
    return np.ones(shape, np.float32)


def _zeros(*shape):
    return np.zeros(shape, np.float32)
