"""Qwen3-ASR behind the adapter contract. Importing this loads no torch."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import structlog

from adapters.aligner.base import NO_ALIGNER, AlignmentRequest, WordAligner
from adapters.aligner.segments import segment_words
from adapters.base import AdapterSpec, LoadOptions, Window
from adapters.qwen3_asr.answers import Answer, parse_answer
from adapters.qwen3_asr.deltas import WindowDeltas, read_before_loop
from adapters.qwen3_asr.languages import LANGUAGE_NAMES, find_language_name
from adapters.qwen3_asr.loops import LOOP_COLLAPSED, is_looping
from adapters.qwen3_asr.recut import graft, halve, merge
from adapters.qwen3_asr.window_length import choose_window_ms
from adapters.registry import register_transcription_adapter
from adapters.streaming.base import DeltaSink
from adapters.streaming.config import ChunkedStreamingConfig
from adapters.text import compression_ratio
from core import errors
from core.logprobs import split_logprobs
from core.options import TaskKind, Timestamps
from core.transcript import SAMPLE_RATE_HZ, Hypothesis, Segment, Word, join_texts

if TYPE_CHECKING:
    from adapters.qwen3_asr.decoding import Decoded
    from adapters.qwen3_asr.runtime import Qwen3Runtime, Request

log = structlog.get_logger(__name__)

# A window's token cap. 512 is the official package's; dense speech in scripts that need several
# tokens a character exceeds it beyond 30 s, so the cap grows with the window.
MIN_NEW_TOKENS = 512
NEW_TOKENS_PER_S = 20

PROMPT_CUT = "prompt_cut"


@register_transcription_adapter("Qwen3ASR")
class Qwen3ASRAdapter:
    """Text and language of each window; word times and real segments with a forced aligner.

    Without an aligner, or for a language it lacks, a window is one segment.
    """

    supports_chunked_streaming = True

    def __init__(
        self, runtime: "Qwen3Runtime", spec: AdapterSpec, *, aligner: WordAligner | None = None
    ) -> None:
        self.spec = spec
        self.runtime = runtime
        self._aligner = aligner

    @classmethod
    def describe(cls, config: Mapping[str, Any]) -> AdapterSpec:
        """Return the spec of the checkpoint with this `config.json`.

        Raises:
            CheckpointInvalid: It is the aligner's, or the window is out of range.
        """
        if not any("ConditionalGeneration" in name for name in config.get("architectures") or ()):
            raise errors.CheckpointInvalid("this is a forced aligner: name it with --aligner")
        return AdapterSpec(
            name="qwen3_asr",
            window_ms=choose_window_ms(config),
            detects_by_vote=False,
            supports_chunked_streaming=True,
            uses_aligner=True,
        )

    @classmethod
    def load(cls, options: LoadOptions) -> Self:
        """Read the weights; takes seconds to minutes.

        `options.extra["aligner"]` names the folder of a Qwen3 forced aligner, which is loaded
        when the first window needs it.

        Raises:
            CheckpointInvalid: The folder is not a Qwen3-ASR checkpoint.
        """
        from adapters.qwen3_asr.runtime import Qwen3Runtime  # noqa: PLC0415 - imports torch

        runtime = Qwen3Runtime.load(options)
        aligner = None
        if folder := options.extra.get("aligner"):
            from adapters.aligner.lazy import LazyAligner  # noqa: PLC0415

            aligner = LazyAligner.beside(options, folder)
        return cls(runtime, cls.describe(runtime.model.config.to_dict()), aligner=aligner)

    @property
    def languages(self) -> frozenset[str]:
        """See `adapters.base.Adapter`."""
        return frozenset(LANGUAGE_NAMES)

    @property
    def chunked_streaming_config(self) -> ChunkedStreamingConfig:
        """How `adapters.streaming` steps through growing audio with this checkpoint.

        An utterance gets no longer than a window: what a small model does not hear well in one
        piece it does not hear better piece by piece. The last third is for finding a pause.
        """
        usual = ChunkedStreamingConfig()
        longest_ms = min(usual.max_utterance_ms, self.spec.window_ms)
        return replace(
            usual,
            max_utterance_ms=longest_ms,
            soft_utterance_ms=min(usual.soft_utterance_ms, longest_ms * 2 // 3),
        )

    def postprocess_text(self, raw: str) -> str:
        """Return the transcript in an answer decoded in full; no tag leaks."""
        return parse_answer(raw, control_tokens=self.runtime.control_tokens).text

    def detect_language(self, windows: Sequence[Window]) -> list[dict[str, float]]:
        """See `adapters.base.Adapter`. The languages' probabilities given that one is spoken."""
        return self.runtime.score_languages(
            [self._request(window, language_name=None) for window in windows]
        )

    def transcribe(self, windows: Sequence[Window]) -> list[Hypothesis]:
        """See `adapters.base.Adapter`.

        Raises:
            TokenLimitReached: A window's answer did not end; shorter windows may.
            UnknownLanguage: A window forces a language the family does not know.
        """
        return self._transcribe(windows, sink=None)

    def transcribe_stream(self, windows: Sequence[Window], sink: DeltaSink) -> list[Hypothesis]:
        """See `adapters.streaming.base.DeltaTranscriber`."""
        return self._transcribe(windows, sink=sink)

    def close(self) -> None:
        """See `adapters.base.Adapter`."""
        if self._aligner is not None:
            self._aligner.close()
        self.runtime.close()

    def _transcribe(self, windows: Sequence[Window], *, sink: DeltaSink | None) -> list[Hypothesis]:
        deltas = WindowDeltas(self.runtime, len(windows), sink) if sink is not None else None
        drafts = self._read(windows, deltas)
        if deltas is not None:
            deltas.finish([draft.text for draft in drafts])
        return self._with_words(windows, drafts)

    def _read(self, windows: Sequence[Window], deltas: WindowDeltas | None) -> list[Hypothesis]:
        """Return an answer of one segment at most for each window.

        Those that went astray are read again in two parts; see `recut`.
        """
        requests = [
            self._request(window, language_name=self._forced_language(window)) for window in windows
        ]
        decoded = self.runtime.answer(requests, sink=deltas)
        drafts: list[Hypothesis] = []
        parts: dict[int, tuple[Window, Window]] = {}
        for number, (window, request, one) in enumerate(
            zip(windows, requests, decoded, strict=True)
        ):
            raw = self.runtime.decode_text(one.tokens)
            answer = parse_answer(raw, control_tokens=self.runtime.control_tokens)
            if not one.has_ended or answer.has_loop or is_looping(one.tokens):
                halves = halve(window, language=window.language or answer.language)
                if halves is not None:
                    parts[number] = halves
                elif not one.has_ended:
                    raise errors.TokenLimitReached(
                        f"{len(one.tokens)} tokens for {window.duration_ms} ms and no end"
                    )
            drafts.append(self._draft(window, request, one, answer))
        if parts:
            log.info("windows.recut", num_windows=len(parts))
            again = iter(self._read([part for pair in parts.values() for part in pair], None))
            for number in parts:
                heard = (next(again), next(again))
                told = read_before_loop(self.runtime, decoded[number].tokens)
                text = graft(told, join_texts(part.text for part in heard))
                merged = merge(windows[number], drafts[number], heard, text)
                drafts[number] = self._with_tokens(merged)
        return drafts

    def _forced_language(self, window: Window) -> str | None:
        if window.task is not TaskKind.TRANSCRIBE:
            raise errors.InvalidOption("this model does not translate", param="task")
        if window.language is None:
            return None
        name = find_language_name(window.language)
        if name is None:
            raise errors.UnknownLanguage(
                f"{window.language!r} is not among this model's languages", param="language"
            )
        return name

    def _request(self, window: Window, *, language_name: str | None) -> "Request":
        from adapters.qwen3_asr.runtime import Request  # noqa: PLC0415 - imports torch

        seconds = len(window.samples) / SAMPLE_RATE_HZ
        temperature = window.temperature or 0.0
        return Request(
            samples=window.samples,
            prompt=self.runtime.lay_out(context=window.prompt, language_name=language_name),
            max_new_tokens=max(MIN_NEW_TOKENS, int(seconds * NEW_TOKENS_PER_S)),
            temperature=temperature,
            seed=zlib.crc32(window.samples.tobytes()) if temperature else 0,
        )

    def _draft(
        self, window: Window, request: "Request", decoded: "Decoded", answer: Answer
    ) -> Hypothesis:
        """Return the answer as one segment over the whole window."""
        doubts = {PROMPT_CUT: request.prompt.was_cut, LOOP_COLLAPSED: answer.has_loop}
        warnings = tuple(code for code, is_so in doubts.items() if is_so)
        language = window.language or answer.language
        if not answer.text:
            return Hypothesis(language=language, warnings=warnings)
        segment = Segment(
            text=answer.text,
            start_ms=0,
            end_ms=window.duration_ms,
            tokens=tuple(self.runtime.encode_text(answer.text)),
            avg_logprob=round(decoded.sum_logprob / (len(decoded.tokens) + 1), 4),
            compression_ratio=compression_ratio(answer.text),
            temperature=request.temperature,
            language=language,
            token_logprobs=self.runtime.spell_answer(decoded) if window.with_logprobs else (),
        )
        return Hypothesis(segments=(segment,), language=language, warnings=warnings)

    def _with_words(
        self, windows: Sequence[Window], drafts: Sequence[Hypothesis]
    ) -> list[Hypothesis]:
        """Return the drafts with times where they are wanted and can be had."""
        finished = list(drafts)
        wanted = [
            index
            for index, window in enumerate(windows)
            if drafts[index].segments and window.timestamps is not Timestamps.NONE
        ]
        if self._aligner is None:
            for index in wanted:
                if windows[index].timestamps is Timestamps.WORD:
                    finished[index] = _warn(drafts[index], NO_ALIGNER)
            return finished
        if not wanted:
            return finished  # and do not load the aligner
        alignments = self._aligner.align(
            [
                AlignmentRequest(
                    samples=windows[index].samples,
                    text=drafts[index].segments[0].text,
                    language=drafts[index].language,
                )
                for index in wanted
            ]
        )
        for index, alignment in zip(wanted, alignments, strict=True):
            is_word = windows[index].timestamps is Timestamps.WORD
            if alignment.words:
                finished[index] = self._segmented(drafts[index], alignment.words, keep=is_word)
            elif alignment.warning and is_word:
                finished[index] = _warn(drafts[index], alignment.warning)
        return finished

    def _with_tokens(self, draft: Hypothesis) -> Hypothesis:
        segments = tuple(
            replace(segment, tokens=tuple(self.runtime.encode_text(segment.text)))
            for segment in draft.segments
        )
        return replace(draft, segments=segments)

    def _segmented(self, draft: Hypothesis, words: Sequence[Word], *, keep: bool) -> Hypothesis:
        pieces = segment_words(draft.segments[0], words)
        logprobs = split_logprobs(
            draft.segments[0].token_logprobs, [piece.text for piece in pieces]
        )
        segments = tuple(
            replace(
                piece,
                tokens=tuple(self.runtime.encode_text(piece.text)),
                token_logprobs=tokens,
                words=piece.words if keep else (),
            )
            for piece, tokens in zip(pieces, logprobs, strict=True)
        )
        return replace(draft, segments=segments)


def _warn(hypothesis: Hypothesis, code: str) -> Hypothesis:
    return replace(hypothesis, warnings=(*hypothesis.warnings, code))
