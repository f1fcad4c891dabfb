"""The forward passes: windows through the encoder, the decoder one token at a time.

`transformers` loads the weights. Its forward passes are not called: rows here stand at different
positions, leave the batch when they are done, and read keys and values from buffers that are
never copied whole. The tokens are those of its `generate`: a test says so.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention
from transformers import WhisperForConditionalGeneration
from transformers.utils import logging as transformers_logging

from adapters.whisper.layers import DecoderCache, DecoderLayer, EncoderLayer, Place, Watch
from adapters.whisper.linear import Storage, make_linear
from core import errors

_ENCODER_BATCH = 16


@dataclass(frozen=True, slots=True)
class Precision:
    """How numbers are stored.

    Attributes:
        compute: What activations, norms and attention are computed in.
        cross: What the keys and values of the encoder's output are stored in.
        int8: Whether the large matrices are 8-bit integers.
    """

    compute: torch.dtype
    cross: torch.dtype
    int8: bool = False

    @property
    def is_reference(self) -> bool:
        """Whether answers have to equal those of `transformers`: nothing is rounded."""
        return self.compute is torch.float32 and self.cross is torch.float32 and not self.int8


class Network:
    """A loaded Whisper."""

    def __init__(self, model: Any, *, device: torch.device, precision: Precision) -> None:  # noqa: ANN401
        # transformers' annotations are wrong in places, so its objects are Any here.
        config = model.config
        self.device = device
        self.precision = precision
        self.vocab_size = int(config.vocab_size)
        self.num_bins = int(config.num_mel_bins)
        self.max_positions = int(config.max_target_positions)
        self._num_source_positions = int(config.max_source_positions)
        self._num_heads = int(config.decoder_attention_heads)
        self._head_dim = int(config.d_model) // self._num_heads
        self._encoder = model.model.encoder
        coarse = Storage.INT8 if precision.int8 else Storage.PLAIN
        self._encoder_layers = [
            EncoderLayer(layer, feed_forward=coarse) for layer in self._encoder.layers
        ]
        decoder = model.model.decoder
        self._embed: torch.Tensor = decoder.embed_tokens.weight
        self._positions: torch.Tensor = decoder.embed_positions.weight
        self._norm: torch.nn.LayerNorm = decoder.layer_norm
        # A step of the decoder waits for memory, so the second part of the activations is cheap.
        storage = Storage.INT8_FINE if precision.int8 else Storage.PLAIN
        self._layers = [
            DecoderLayer(layer, number=number, storage=storage)
            for number, layer in enumerate(decoder.layers)
        ]
        self._project = make_linear([model.proj_out], storage)
        self._own = torch.empty((0, 2, 0, 0, 0, 0))
        self._cross = torch.empty((0, 2, 0, 0, 0, 0))
        # All layers read the same output: one product gives all their keys and values.
        parts = [part for layer in self._layers for part in layer.cross_parts]
        self._cross_key_values = make_linear(parts, coarse)

    @classmethod
    def from_folder(cls, folder: Path, *, device: torch.device, precision: Precision) -> "Network":
        """Load the weights in `folder`.

        Raises:
            CheckpointInvalid: They do not make a Whisper.
        """
        # Thousands of lines in a worker's log otherwise.
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            model: Any = WhisperForConditionalGeneration.from_pretrained(
                folder, dtype=precision.compute, attn_implementation="sdpa", local_files_only=True
            )
        except (OSError, ValueError, RuntimeError, KeyError) as exc:
            raise errors.CheckpointInvalid(
                f"{folder} cannot be loaded as a Whisper: {exc}"
            ) from exc
        return cls(model.eval().to(device), device=device, precision=precision)

    def encode(self, features: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the encoder's output, shape (1500, width), for each window's features.

        Features of fewer frames give half as many positions; off the CPU all have equally many.

        On the CPU one window at a time is fastest (measured: the caches hold it).
        """
        size = 1 if self.device.type == "cpu" else _ENCODER_BATCH
        encoded: list[torch.Tensor] = []
        for first in range(0, len(features), size):
            batch = torch.stack(list(features[first : first + size])).to(self.precision.compute)
            encoded.extend(self._run_encoder(batch))
        return encoded

    def _run_encoder(self, features: torch.Tensor) -> torch.Tensor:
        encoder = self._encoder
        hidden = F.gelu(encoder.conv1(features))
        hidden = F.gelu(encoder.conv2(hidden))
        # transformers leaves the transposed layout to the layers, which then all stride over it.
        hidden = hidden.transpose(1, 2).contiguous()
        hidden += encoder.embed_positions.weight[: hidden.shape[1]]
        for layer in self._encoder_layers:
            hidden = layer.run(hidden)
        output: torch.Tensor = encoder.layer_norm(hidden)
        return output

    def make_cache(self, encoded: Sequence[torch.Tensor]) -> DecoderCache:
        """Return an empty cache for rows that listen to these encoder outputs.

        It lies in buffers that the next one takes over: only one is in use at a time.
        """
        num_rows = len(encoded)
        if self._own.shape[2] < num_rows or self._own.shape[4] < self.max_positions:
            shape = (len(self._layers), 2, num_rows, self._num_heads)
            precision = self.precision
            self._own = torch.empty(
                (*shape, self.max_positions, self._head_dim),
                dtype=precision.compute,
                device=self.device,
            )
            self._cross = torch.empty(
                (*shape, self._num_source_positions, self._head_dim),
                dtype=precision.cross,
                device=self.device,
            )
        num_positions = [len(hidden) for hidden in encoded]
        longest = max(num_positions)
        own = self._own[:, :, :num_rows]
        cross = self._cross[:, :, :num_rows, :, :longest]
        for row, hidden in enumerate(encoded):
            # (positions, layers * 2 * width) to (layers, 2, heads, positions, head_dim)
            parts = self._cross_key_values(hidden).view(
                len(hidden), len(self._layers), 2, self._num_heads, self._head_dim
            )
            cross[:, :, row, :, : len(hidden)] = parts.permute(1, 2, 3, 0, 4)
        if min(num_positions) == longest:
            return DecoderCache(own, cross)
        mask = torch.zeros((num_rows, 1, 1, longest), dtype=cross.dtype, device=self.device)
        for row, length in enumerate(num_positions):
            cross[:, :, row, :, length:] = 0.0  # what lies there may be no number
            mask[row, ..., length:] = -torch.inf
        return DecoderCache(own, cross, mask)

    def prefill(
        self, cache: DecoderCache, prefixes: Sequence[Sequence[int]], wanted: torch.Tensor
    ) -> torch.Tensor:
        """Run all rows' prefixes, of any lengths, into `cache`.

        Args:
            wanted: Shape (num_rows, num_wanted): positions whose logits are returned.

        Returns:
            Shape (num_rows, num_wanted, vocab_size), float32.
        """
        hidden = self._run_all(cache, prefixes, watch=None)
        rows = torch.arange(len(prefixes), device=self.device)[:, None]
        return self._logits(hidden[rows, wanted.to(self.device)])

    def align(
        self, encoded: torch.Tensor, tokens: Sequence[int], heads: Sequence[tuple[int, int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read a finished text once more and watch where `heads` (layer, head) look.

        Returns:
            Scores before the softmax, shape (num_heads, num_tokens, len(encoded)), and the logits
            at every token, shape (num_tokens, vocab_size); both float32.
        """
        by_layer = defaultdict(list)
        for layer, head in heads:
            by_layer[layer].append(head)
        watch = Watch(by_layer)
        hidden = self._run_all(self.make_cache([encoded]), [tokens], watch=watch)
        return torch.cat(watch.scores, dim=1)[0], self._logits(hidden[0])

    @property
    def late_heads(self) -> list[tuple[int, int]]:
        """All heads of the later half of the layers: what aligns where nothing better is known."""
        layers = range(len(self._layers) // 2, len(self._layers))
        return [(layer, head) for layer in layers for head in range(self._num_heads)]

    def _run_all(
        self, cache: DecoderCache, rows: Sequence[Sequence[int]], *, watch: Watch | None
    ) -> torch.Tensor:
        """Return the last layer's output, shape (num_rows, longest row, width)."""
        length = max(len(row) for row in rows)
        # Padding on the right: causality hides it from the prefix, and later tokens overwrite it.
        tokens = torch.zeros((len(rows), length), dtype=torch.long)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = torch.tensor(row)
        hidden = F.embedding(tokens.to(self.device), self._embed) + self._positions[:length]
        place = Place(slice(0, length), length, watch=watch)
        for layer in self._layers:
            hidden = layer.run(hidden, cache, place)
        return hidden

    def step(
        self, cache: DecoderCache, tokens: Sequence[int], positions: Sequence[int]
    ) -> torch.Tensor:
        """Run one token a row, each at its own position; return logits (num_rows, vocab_size)."""
        where = torch.tensor(positions, device=self.device)
        hidden = F.embedding(torch.tensor(tokens, device=self.device), self._embed)
        hidden = (hidden + self._positions[where])[:, None]
        length = max(positions) + 1
        mask = None
        if min(positions) + 1 < length:
            mask = torch.arange(length, device=self.device)[None] <= where[:, None]
            mask = mask[:, None, None]
        place = Place(where, length, mask)
        for layer in self._layers:
            hidden = layer.run(hidden, cache, place)
        return self._logits(hidden[:, 0])

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._project(self._norm(hidden))
        return logits.float()
