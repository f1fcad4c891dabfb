"""The Qwen3 forced aligner: word times for a text that is known. Imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen3ASRForTokenClassification

from adapters.aligner.base import (
    TOKENIZER_MISSING,
    UNSUPPORTED_LANGUAGE,
    WINDOW_TOO_LONG,
    Alignment,
    AlignmentRequest,
)
from adapters.aligner.times import repair_times, spread_words
from adapters.aligner.tokenizers import LANGUAGES, TokenizerMissing, find_units
from adapters.aligner.units import Unit, write_words
from adapters.base import LoadOptions
from adapters.qwen3_asr.encoding import PackedEncoder
from adapters.qwen3_asr.features import LogMel
from adapters.qwen3_asr.runtime import load_pretrained, release
from core import errors
from core.transcript import SAMPLE_RATE_HZ, Word, samples_to_ms

LONGEST_S = 180
"""Longest audio the family was trained to align (QwenLM/Qwen3-ASR README)."""
BATCH_POSITIONS = 16_384
"""Most padded positions (audio and text tokens) in one forward pass."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A request that can be aligned: its place, its units and its tokens after the audio."""

    index: int
    request: AlignmentRequest
    units: list[Unit]
    tokens: list[int]


class ForcedAligner:
    """Aligns texts of eleven languages. It has its own batches: long texts apart from short."""

    def __init__(self, model: Any, processor: Any) -> None:  # noqa: ANN401
        self._model = model
        self._mel = LogMel(processor.feature_extractor, model.device)
        self._encoder = PackedEncoder(model.model)
        self._tokenizer = processor.tokenizer
        self._class_ms = int(processor.timestamp_segment_time)
        self._timestamp_token = int(model.config.timestamp_token_id)

    @classmethod
    def load(cls, options: LoadOptions) -> Self:
        """Read the weights.

        Raises:
            CheckpointInvalid: The folder is not a forced aligner.
        """
        model, processor = load_pretrained(Qwen3ASRForTokenClassification, options)
        if "Qwen3ASRForTokenClassification" not in (model.config.architectures or ()):
            raise errors.CheckpointInvalid(f"{options.folder} is not a Qwen3 forced aligner")
        return cls(model, processor)

    def align(self, requests: Sequence[AlignmentRequest]) -> list[Alignment]:
        """See `adapters.aligner.base.WordAligner`."""
        alignments = [Alignment()] * len(requests)
        jobs: list[_Job] = []
        for index, request in enumerate(requests):
            prepared = self._prepare(index, request)
            if isinstance(prepared, _Job):
                jobs.append(prepared)
            else:
                alignments[index] = prepared
        for batch in _batches(jobs):
            for job, alignment in zip(batch, self._align_batch(batch), strict=True):
                alignments[job.index] = alignment
        return alignments

    def close(self) -> None:
        """See `adapters.aligner.base.WordAligner`."""
        release(self._model)

    def _prepare(self, index: int, request: AlignmentRequest) -> "_Job | Alignment":
        if request.language not in LANGUAGES:
            return Alignment(warning=UNSUPPORTED_LANGUAGE)
        if len(request.samples) > LONGEST_S * SAMPLE_RATE_HZ:
            return Alignment(warning=WINDOW_TOO_LONG)
        try:
            units = find_units(request.text, request.language)
        except TokenizerMissing:
            return Alignment(warning=TOKENIZER_MISSING)
        if not units or len(units) > samples_to_ms(len(request.samples)):
            return Alignment()
        text = "".join(f"{unit.text}<timestamp><timestamp>" for unit in units)
        tokens = self._encode(f"<|audio_end|>{text}")
        return _Job(index, request, units, tokens)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    @torch.inference_mode()
    def _align_batch(self, jobs: Sequence[_Job]) -> list[Alignment]:
        try:
            classes = self._classify(jobs)
        except torch.OutOfMemoryError as exc:
            if len(jobs) == 1:
                raise errors.DeviceOutOfMemory("aligning one window") from exc
            half = len(jobs) // 2
            return [*self._align_batch(jobs[:half]), *self._align_batch(jobs[half:])]
        return [self._read(job, one) for job, one in zip(jobs, classes, strict=True)]

    def _classify(self, jobs: Sequence[_Job]) -> list[list[int]]:
        """Return the time class at every timestamp token."""
        audio = self._encoder.encode([self._mel.features(job.request.samples) for job in jobs])
        start = self._embed(self._encode("<|audio_start|>"))
        rows = [
            torch.cat([start, clip.to(start.dtype), self._embed(job.tokens)])
            for job, clip in zip(jobs, audio, strict=True)
        ]
        # Padding on the right: the model is causal, so that nothing real looks at it.
        hidden = self._model.model(
            inputs_embeds=pad_sequence(rows, batch_first=True), use_cache=False
        ).last_hidden_state
        classes: list[list[int]] = []
        for job, row, states in zip(jobs, rows, hidden, strict=True):
            is_time = torch.tensor(job.tokens, device=states.device) == self._timestamp_token
            marks = states[len(row) - len(job.tokens) : len(row)][is_time]
            classes.append(self._model.score(marks).argmax(dim=-1).tolist())
        return classes

    def _embed(self, tokens: Sequence[int]) -> Tensor:
        ids = torch.tensor(tokens, dtype=torch.long, device=self._model.device)
        embeddings: Tensor = self._model.get_input_embeddings()(ids)
        return embeddings

    def _read(self, job: _Job, classes: Sequence[int]) -> Alignment:
        duration_ms = samples_to_ms(len(job.request.samples))
        times = repair_times([min(one * self._class_ms, duration_ms) for one in classes])
        written = write_words(job.request.text, job.units)
        intervals = spread_words(times, duration_ms=duration_ms)
        return Alignment(
            words=tuple(
                Word(text=text, start_ms=start_ms, end_ms=end_ms)
                for text, (start_ms, end_ms) in zip(written, intervals, strict=True)
            )
        )


def _batches(jobs: Sequence[_Job]) -> list[list[_Job]]:
    """Return jobs of similar length together, within the padded cost."""

    def cost(job: _Job) -> int:
        return len(job.tokens) + len(job.request.samples) * 13 // SAMPLE_RATE_HZ + 2

    batches: list[list[_Job]] = []
    for job in sorted(jobs, key=cost):
        if batches and cost(job) * (len(batches[-1]) + 1) <= BATCH_POSITIONS:
            batches[-1].append(job)
        else:
            batches.append([job])
    return batches
