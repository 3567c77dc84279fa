"""A minimal writer of GGUF files, version 3: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md"""

import struct

import numpy as np

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
F32 = 0
ALIGNMENT = 32


def write_gguf(path, values, tensors):
    """Write the key-value pairs and the tensors, which are arrays of float32, and return the path."""
    data, infos = bytearray(), bytearray()
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        infos += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, F32, len(data))
        data += _padded(np.ascontiguousarray(tensor, np.float32).tobytes())
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(_string(key) + _value(value) for key, value in values.items()) + infos
    path.write_bytes(_padded(head) + data)
    return path


def _value(value):
    if isinstance(value, list):
        kind, _ = _scalar(value[0])
        # llama.cpp requires this type of the arrays of numbers that it reads.
        kind = INT32 if kind == UINT32 else kind
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(_scalar(item)[1] for item in value)
    kind, encoded = _scalar(value)
    return struct.pack("<I", kind) + encoded


def _scalar(value):
    if isinstance(value, bool):
        return BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return UINT32, struct.pack("<I", value)
    if isinstance(value, float):
        return FLOAT32, struct.pack("<f", value)
    return STRING, _string(value)


def _string(text):
    encoded = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(encoded)) + encoded


def _padded(data):
    return bytes(data) + bytes(-len(data) % ALIGNMENT)
