"""Reading CTranslate2's model.bin, on a small one written here."""

import struct

import numpy as np
import pytest

from adapters.weights.ctranslate2 import read_model_bin, to_hugging_face
from core import errors

Variables = dict[str, np.ndarray]
CODES = {"float32": 0, "int8": 1, "int32": 3, "float16": 4}


def model_bin(variables: Variables, *, spec: str = "WhisperSpec", version: int = 6) -> bytes:
    def text(value: str) -> bytes:
        raw = value.encode() + b"\0"
        return struct.pack("<H", len(raw)) + raw

    data = struct.pack("<I", version) + text(spec) + struct.pack("<II", 3, len(variables))
    for name, value in variables.items():
        raw = value.tobytes()
        data += text(name) + struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        data += struct.pack("<BI", CODES[value.dtype.name], len(raw)) + raw
    return data + struct.pack("<I", 0)


def small() -> Variables:
    random = np.random.default_rng(0)
    half = lambda *shape: random.normal(size=shape).astype(np.float16)  # noqa: E731
    bias = half(12)
    bias[4:8] = 0  # keys have none
    return {
        "encoder/num_heads": np.array(2, np.int32),
        "decoder/embeddings/weight": half(10, 4),
        "decoder/layer_3/self_attention/linear_0/weight": half(12, 4),
        "decoder/layer_3/self_attention/linear_0/bias": bias,
        "decoder/layer_3/attention/linear_1/weight": half(8, 4),
        "encoder/layer_norm/gamma": half(4),
    }


def test_fused_matrices_are_split_and_values_stay_as_they_are() -> None:
    variables = small()

    tensors = to_hugging_face(read_model_bin(model_bin(variables)))

    fused = variables["decoder/layer_3/self_attention/linear_0/weight"]
    attention = "model.decoder.layers.3.self_attn."
    for number, name in enumerate(("q_proj", "k_proj", "v_proj")):
        part = tensors[f"{attention}{name}.weight"]
        assert part.dtype == np.float16
        assert np.array_equal(part, fused[4 * number : 4 * number + 4])
    assert f"{attention}k_proj.bias" not in tensors
    assert "model.decoder.layers.3.encoder_attn.v_proj.weight" in tensors
    assert np.array_equal(
        tensors["model.encoder.layer_norm.weight"], variables["encoder/layer_norm/gamma"]
    )


def test_an_unknown_variable_is_refused_rather_than_lost() -> None:
    with pytest.raises(errors.CheckpointInvalid, match="decoder/surprise"):
        to_hugging_face(
            read_model_bin(model_bin({**small(), "decoder/surprise": np.ones(2, "f4")}))
        )


def test_a_key_bias_cannot_be_dropped_silently() -> None:
    variables = small()
    variables["decoder/layer_3/self_attention/linear_0/bias"][5] = 1

    with pytest.raises(errors.CheckpointInvalid, match="key bias"):
        to_hugging_face(read_model_bin(model_bin(variables)))


def test_an_untied_projection_is_refused() -> None:
    variables = {**small(), "decoder/projection/weight": np.ones((10, 4), "f4")}

    with pytest.raises(errors.CheckpointInvalid, match="tied"):
        to_hugging_face(read_model_bin(model_bin(variables)))


def test_quantised_weights_are_refused() -> None:
    variables = {**small(), "encoder/conv1/weight": np.ones((2, 2, 2), np.int8)}

    with pytest.raises(errors.CheckpointInvalid, match="quantised"):
        to_hugging_face(read_model_bin(model_bin(variables)))


def test_another_model_or_version_is_refused() -> None:
    with pytest.raises(errors.CheckpointInvalid, match="TransformerSpec"):
        to_hugging_face(read_model_bin(model_bin(small(), spec="TransformerSpec")))
    with pytest.raises(errors.CheckpointInvalid, match="version 5"):
        read_model_bin(model_bin(small(), version=5))


@pytest.mark.parametrize("size", [3, 40, 150])
def test_a_file_that_is_cut_short_is_refused(size: int) -> None:
    with pytest.raises(errors.CheckpointInvalid):
        read_model_bin(model_bin(small())[:size])
