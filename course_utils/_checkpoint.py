"""The file of `train.fit`: one safetensors, which cannot run code when it is read, as pickle can.

It holds named tensors and, as JSON in its metadata, all that is not a tensor. It is replaced in one go, so weights and
history always belong together.
"""

import hashlib
import json
import os

from safetensors import SafetensorError
from safetensors.torch import load, save


def write(path, tensors, about):
    """Write `tensors`, a dict, and `about`, which JSON can hold, whole or not at all; True if it was written."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(save(tensors, metadata={"run": json.dumps(about)}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:  # a full disk, a folder that is read-only
        temporary.unlink(missing_ok=True)
        print(f"{path} could not be written: {error.strerror}. Free some space, or set COURSE_RUNS.")
        return False
    return True


def read(path):
    """(tensors, about) of the file; ValueError or KeyError if it is damaged or not one of these."""
    data = path.read_bytes()
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    # safetensors: 8 bytes that hold the header's length, then the header, which is JSON
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return tensors, json.loads(header["__metadata__"]["run"])


def put_aside(path, why):
    """Keep a file that does not serve as NAME.old.safetensors, and say so."""
    old = path.with_name(path.name.replace(".safetensors", ".old.safetensors"))
    os.replace(path, old)
    print(f"The checkpoint {path} {why}. It is now {old.name}, and this run starts at step 0.")


def part(tensors, prefix):
    """The tensors whose names begin with `prefix`, named without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def weights(model):
    """A copy of each tensor of the model; tied ones, which share memory, once."""
    once = {}
    for name, tensor in model.state_dict().items():
        once.setdefault((tensor.data_ptr(), tensor.shape), (name, tensor))
    return {name: tensor.clone().contiguous() for name, tensor in once.values()}


def fingerprint(content):
    """A hash of numbers, texts, tensors, or a list, tuple or dict of such: equal for equal contents."""
    if hasattr(content, "data_ptr"):  # a tensor
        data = content.cpu().contiguous().numpy().tobytes()
    elif isinstance(content, dict):
        data = fingerprint(sorted(content.items())).encode()
    elif isinstance(content, tuple | list):
        data = " ".join(map(fingerprint, content)).encode()
    else:
        data = repr(content).encode()
    return hashlib.sha256(data).hexdigest()
