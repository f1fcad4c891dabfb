"""The audio encoder over many clips at once, without padding one to another's length."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

MAX_PACKED_PIECES = 256
"""Most one-second pieces in one call: bounds the memory of the convolutions (6 MB a piece for
the 1.7B model in float32)."""

_CPU_PIECES = 32
"""The same on CPUs: the memory of larger calls comes anew from the system each time."""


@dataclass(frozen=True, slots=True)
class EncoderGeometry:
    """How frames become tokens.

    The encoder convolves pieces by themselves and attends inside windows of several pieces, so
    that a window's output depends on its own frames only.

    Attributes:
        piece_frames: Mel frames of a piece (100: 1 s).
        window_frames: Mel frames of an attention window (800: 8 s).
    """

    piece_frames: int
    window_frames: int

    @property
    def piece_tokens(self) -> int:
        """Tokens of a full piece (13)."""
        return _convolved(self.piece_frames)

    @property
    def window_tokens(self) -> int:
        """Tokens of a full attention window (104)."""
        return self.piece_tokens * (self.window_frames // self.piece_frames)

    def count_tokens(self, num_frames: int) -> int:
        """Return how many embeddings `num_frames` give."""
        full, rest = divmod(num_frames, self.piece_frames)
        return full * self.piece_tokens + _convolved(rest)


def _convolved(length: int) -> int:
    """Return the length after three convolutions of stride 2."""
    for _ in range(3):
        length = (length + 1) // 2
    return length


class PackedEncoder:
    """Runs the audio tower and its projector over clips laid end to end.

    Two steps, as a stream keeps what the first one gives: pieces are convolved, then windows of
    them attend, those of equal length together. Only the last piece of a clip is padded: alone or
    packed, a clip's embeddings differ by rounding only (4e-6, tested).

    Source of the steps: transformers 5.24, `Qwen3ASREncoder.forward`, which the tests compare with.

    Attributes:
        num_frames: Mel frames encoded since loading; the cost counter of the stream tests.
    """

    def __init__(self, backbone: Any) -> None:  # noqa: ANN401 - Qwen3ASRModel
        config = backbone.config.audio_config
        self.geometry = EncoderGeometry(2 * config.n_window, config.n_window_infer)
        self.num_frames = 0
        self._num_heads = int(config.encoder_attention_heads)
        self._tower = backbone.audio_tower
        self._max_pieces = _CPU_PIECES if backbone.device.type == "cpu" else MAX_PACKED_PIECES
        self._project = backbone.multi_modal_projector
        self._convolutions = [
            # Half the time on CPUs.
            convolution.to(memory_format=torch.channels_last)
            for convolution in (self._tower.conv2d1, self._tower.conv2d2, self._tower.conv2d3)
        ]

    def encode(self, clips: Sequence[Tensor]) -> list[Tensor]:
        """Return the embeddings of each clip.

        Args:
            clips: Features, each of shape (num_bins, frames) with at least one frame.

        Returns:
            Each of shape (tokens, hidden), in order.
        """
        pieces = [torch.split(clip, self.geometry.piece_frames, dim=1) for clip in clips]
        convolved = self.convolve([piece for own in pieces for piece in own])
        size = self.geometry.window_frames // self.geometry.piece_frames
        windows, at = [], 0
        for own in pieces:
            for first in range(0, len(own), size):
                last = min(first + size, len(own))
                windows.append(torch.cat(convolved[at + first : at + last]))
            at += len(own)
        encoded = self.attend(windows, num_frames=sum(clip.shape[1] for clip in clips))
        counts = [self.geometry.count_tokens(clip.shape[1]) for clip in clips]
        return list(torch.split(torch.cat(encoded), counts))

    def convolve(self, pieces: Sequence[Tensor]) -> list[Tensor]:
        """Return what the convolutions make of pieces, each by itself.

        Args:
            pieces: Features, each of shape (num_bins, frames), none longer than a piece.

        Returns:
            Each of shape (tokens, width).
        """
        convolved: list[Tensor] = []
        for group in _split_evenly(pieces, self._max_pieces):
            shape = (len(group), 1, group[0].shape[0], self.geometry.piece_frames)
            padded = group[0].new_zeros(shape)
            for number, piece in enumerate(group):
                padded[number, 0, :, : piece.shape[1]] = piece
            output = self._convolve(padded.to(self._tower.dtype))
            convolved += [
                row[: self.geometry.count_tokens(piece.shape[1])]
                for row, piece in zip(output, group, strict=True)
            ]
        return convolved

    def attend(self, windows: Sequence[Tensor], *, num_frames: int) -> list[Tensor]:
        """Return the embeddings of attention windows, made of convolved pieces.

        Args:
            windows: Each of shape (tokens, width).
            num_frames: How many mel frames they stand for, for the counter.

        Returns:
            Each of shape (tokens, hidden).
        """
        self.num_frames += num_frames
        size = MAX_PACKED_PIECES * self.geometry.piece_frames // self.geometry.window_frames
        groups = [windows[first : first + size] for first in range(0, len(windows), size)]
        return [embedded for group in groups for embedded in self._attend(group)]

    def _convolve(self, pieces: Tensor) -> Tensor:
        pieces = pieces.to(memory_format=torch.channels_last)
        for convolution in self._convolutions:
            # In place: half the memory, and half the time where that comes from the system.
            pieces = torch.ops.aten.gelu_(convolution(pieces))
        output: Tensor = self._tower.conv_out(pieces.permute(0, 3, 1, 2).flatten(2))
        positions = self._tower.positional_embedding(output.shape[1])
        placed: Tensor = output + positions.to(output.dtype)
        return placed

    def _attend(self, windows: Sequence[Tensor]) -> list[Tensor]:
        order = sorted(range(len(windows)), key=lambda number: len(windows[number]))
        counts = [len(windows[number]) for number in order]
        hidden = torch.cat([windows[number] for number in order])
        groups = [(length, len(list(own))) for length, own in groupby(counts)]
        for layer in self._tower.layers:
            hidden = hidden + self._self_attention(layer, hidden, groups)
            inner = layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden)))
            hidden = hidden + layer.fc2(inner)
            if hidden.dtype is torch.float16:
                limit = torch.finfo(hidden.dtype).max - 1000
                hidden = hidden.clamp(-limit, limit)
        embeddings: Tensor = self._project(self._tower.ln_post(hidden))
        attended = dict(zip(order, torch.split(embeddings, counts), strict=True))
        return [attended[number] for number in range(len(windows))]

    def _self_attention(
        self,
        layer: Any,  # noqa: ANN401
        hidden: Tensor,
        groups: Sequence[tuple[int, int]],
    ) -> Tensor:
        """Return what windows see of themselves; `groups` are (length, windows of that length)."""
        attention = layer.self_attn
        normed = layer.self_attn_layer_norm(hidden)
        sizes = [length * number for length, number in groups]
        projected = [
            torch.split(project(normed), sizes)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        ]
        seen = []
        for (length, number), *parts in zip(groups, *projected, strict=True):
            split = (number, length, self._num_heads, -1)
            query, key, value = (part.view(*split).transpose(1, 2) for part in parts)
            heads = scaled_dot_product_attention(query, key, value)
            seen.append(heads.transpose(1, 2).reshape(number * length, -1))
        output: Tensor = attention.out_proj(torch.cat(seen))
        return output


def _split_evenly(pieces: Sequence[Tensor], most: int) -> list[Sequence[Tensor]]:
    """Return groups of at most `most`; none of a few, as one piece takes half as long as four."""
    size = -(-len(pieces) // max(1, -(-len(pieces) // most)))
    return [pieces[first : first + size] for first in range(0, len(pieces), max(1, size))]
