"""Reading CTranslate2's `model.bin`, and renaming its Whisper tensors as Hugging Face does.

Format: CTranslate2 4.x, `python/ctranslate2/specs/model_spec.py` (`ModelSpec._serialize`): a
binary version, the spec's name and revision, the variables, then aliases; little-endian, strings
with a 16-bit length that counts a closing NUL.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core import errors

BINARY_VERSION = 6
Tensor = NDArray[np.generic]
"""float16 or float32, as the source stores it."""

# CTranslate2's DataType enumeration, as far as unquantised checkpoints use it.
_DTYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2"}
_FLOATS = ("<f4", "<f2")


@dataclass(frozen=True, slots=True)
class SourceModel:
    """A parsed `model.bin`: its spec ("WhisperSpec") and variables by CTranslate2's names."""

    spec: str
    variables: Mapping[str, NDArray[np.generic]]


class _Reader:
    """A cursor over the file's bytes that refuses to run past the end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def raw(self, size: int) -> memoryview:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise errors.CheckpointInvalid("model.bin ends too early.")
        self._at += size
        return piece

    def number(self, code: str) -> int:
        value: int
        (value,) = struct.unpack(f"<{code}", self.raw(struct.calcsize(f"<{code}")))
        return value

    def text(self) -> str:
        return bytes(self.raw(self.number("H"))).rstrip(b"\0").decode()


def read_model_bin(data: bytes | memoryview) -> SourceModel:
    """Parse `model.bin` without copying the tensors.

    Raises:
        CheckpointInvalid: The bytes are not a version 6 model, or are cut short.
    """
    reader = _Reader(memoryview(data))
    version = reader.number("I")
    if version != BINARY_VERSION:
        raise errors.CheckpointInvalid(f"model.bin has version {version}, not {BINARY_VERSION}.")
    spec = reader.text()
    reader.number("I")  # the spec's revision: CTranslate2 uses it to migrate old names
    variables: dict[str, NDArray[np.generic]] = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        kind, size = reader.number("B"), reader.number("I")
        if kind not in _DTYPES:
            raise errors.CheckpointInvalid(f"{name} has CTranslate2's data type {kind}.")
        variables[name] = np.frombuffer(reader.raw(size), _DTYPES[kind]).reshape(shape)
    return SourceModel(spec, variables)


# One rule a kind of CTranslate2 variable: a pattern, and the Hugging Face modules it holds one
# after the other along the first axis (CTranslate2 fuses q, k, v). `{i}` is the layer.
_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(encoder)/(conv[12])", ("model.{0}.{1}",)),
    (r"(encoder|decoder)/layer_norm", ("model.{0}.layer_norm",)),
    (r"(encoder|decoder)/position_encodings/encodings", ("model.{0}.embed_positions.weight",)),
    (r"(decoder)/embeddings", ("model.{0}.embed_tokens",)),
    (
        r"(encoder|decoder)/layer_(\d+)/self_attention/linear_0",
        tuple(f"model.{{0}}.layers.{{1}}.self_attn.{p}_proj" for p in "qkv"),
    ),
    (
        r"(encoder|decoder)/layer_(\d+)/self_attention/linear_1",
        ("model.{0}.layers.{1}.self_attn.out_proj",),
    ),
    (
        r"(encoder|decoder)/layer_(\d+)/self_attention/layer_norm",
        ("model.{0}.layers.{1}.self_attn_layer_norm",),
    ),
    (r"(decoder)/layer_(\d+)/attention/linear_0", ("model.{0}.layers.{1}.encoder_attn.q_proj",)),
    (
        r"(decoder)/layer_(\d+)/attention/linear_1",
        tuple(f"model.{{0}}.layers.{{1}}.encoder_attn.{p}_proj" for p in "kv"),
    ),
    (r"(decoder)/layer_(\d+)/attention/linear_2", ("model.{0}.layers.{1}.encoder_attn.out_proj",)),
    (
        r"(decoder)/layer_(\d+)/attention/layer_norm",
        ("model.{0}.layers.{1}.encoder_attn_layer_norm",),
    ),
    (r"(encoder|decoder)/layer_(\d+)/ffn/layer_norm", ("model.{0}.layers.{1}.final_layer_norm",)),
    (r"(encoder|decoder)/layer_(\d+)/ffn/linear_0", ("model.{0}.layers.{1}.fc1",)),
    (r"(encoder|decoder)/layer_(\d+)/ffn/linear_1", ("model.{0}.layers.{1}.fc2",)),
)
_SUFFIXES = {"weight": ".weight", "bias": ".bias", "gamma": ".weight", "beta": ".bias"}
_PATTERNS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern + r"(?:/(weight|bias|gamma|beta))?"), targets)
    for pattern, targets in _RULES
)


def to_hugging_face(source: SourceModel) -> dict[str, Tensor]:
    """Return the tensors of a Whisper model under Hugging Face's names, values untouched.

    Raises:
        CheckpointInvalid: It is no Whisper, it is quantised, or a variable is not understood.
    """
    if source.spec != "WhisperSpec":
        raise errors.CheckpointInvalid(f"model.bin holds a {source.spec}, not a WhisperSpec.")
    tensors: dict[str, Tensor] = {}
    for name, value in source.variables.items():
        if value.ndim == 0 or name.startswith("decoder/projection/"):
            continue  # CTranslate2's own flags; the projection is tied to the embeddings
        for target, part in _rename(name, value):
            if target.endswith("k_proj.bias"):  # Whisper's keys have none: CTranslate2 stores zeros
                _require(not np.any(part), f"{name} has a key bias that is not zero.")
                continue
            tensors[target] = np.ascontiguousarray(part)
    _check_projection(source)
    return tensors


def _rename(name: str, value: NDArray[np.generic]) -> Iterator[tuple[str, NDArray[np.generic]]]:
    if value.dtype.str not in _FLOATS:
        raise errors.CheckpointInvalid(f"{name} is quantised ({value.dtype}).")
    for pattern, targets in _PATTERNS:
        if match := pattern.fullmatch(name):
            *where, kind = match.groups()
            suffix = _SUFFIXES[kind] if kind else ""
            for target, part in zip(targets, np.split(value, len(targets)), strict=True):
                yield target.format(*where) + suffix, part
            return
    raise errors.CheckpointInvalid(f"model.bin has a variable that is not understood: {name}.")


def _check_projection(source: SourceModel) -> None:
    projection = source.variables.get("decoder/projection/weight")
    embeddings = source.variables.get("decoder/embeddings/weight")
    _require(embeddings is not None, "model.bin has no token embeddings.")
    tied = projection is None or np.array_equal(projection, embeddings)  # type: ignore[arg-type]
    _require(tied, "The output projection is not tied to the embeddings.")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise errors.CheckpointInvalid(message)


def scalar(source: SourceModel, name: str) -> int:
    """Return one of CTranslate2's scalar variables, e.g. "encoder/num_heads"."""
    if name not in source.variables:
        raise errors.CheckpointInvalid(f"model.bin lacks {name}.")
    return int(source.variables[name].item())
