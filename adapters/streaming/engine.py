"""Steps of many streams in one batch. Imports torch; `adapters.streaming` does not."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import torch

from adapters.qwen3_asr.decoding import Decoded, Row
from adapters.qwen3_asr.languages import find_language_name
from adapters.streaming.base import StreamCounters, StreamUpdate
from adapters.streaming.session import StreamSession, Turn
from adapters.streaming.utterance import measure
from core import errors

if TYPE_CHECKING:
    from adapters.qwen3_asr.adapter import Qwen3ASRAdapter
    from adapters.streaming.utterance import Suffix


class StreamEngine:
    """Drives streaming sessions on one loaded checkpoint; one thread calls it.

    The sessions of a step share its forward passes and nothing else: what one hears does not
    depend on the others.
    """

    def __init__(self, adapter: "Qwen3ASRAdapter") -> None:
        self._runtime = adapter.runtime
        self._config = adapter.chunked_streaming_config
        self._num_steps = 0
        self._reencoded = 0
        self._frames_before = self._runtime.encoder.num_frames
        self._tokens_before = self._runtime.decoder.num_tokens

    @property
    def counters(self) -> StreamCounters:
        """Work done so far."""
        return StreamCounters(
            self._num_steps,
            self._runtime.encoder.num_frames - self._frames_before,
            self._runtime.decoder.num_tokens - self._tokens_before,
            self._reencoded,
        )

    def open(
        self,
        *,
        language: str | None = None,
        prompt: str | None = None,
        with_logprobs: bool = False,
    ) -> StreamSession:
        """Return a new session.

        Args:
            language: Code to force, or None to detect it in every utterance.
            prompt: Context for every utterance; it cannot inject control tokens.
            with_logprobs: Whether updates are to have `logprobs`.

        Raises:
            UnknownLanguage: The family does not know the language.
        """
        name = None if language is None else find_language_name(language)
        if language is not None and name is None:
            raise errors.UnknownLanguage(
                f"{language!r} is not among this model's languages", param="language"
            )
        layout = self._runtime.lay_out(context=prompt, language_name=name)
        return StreamSession(
            self._runtime, self._config, layout, language, with_logprobs=with_logprobs
        )

    @torch.inference_mode()
    def step(self, sessions: Sequence[StreamSession]) -> list[StreamUpdate | None]:
        """Let every session that has a chunk hear it, all in one batch.

        Returns:
            One update a session, in order; None for those that had nothing to do.

        Raises:
            DeviceOutOfMemory: The device has too little memory for one session. Those that could
                not be answered hear the same chunk in the next step.
        """
        due = [session for session in sessions if session.prepare()]
        asked = [turn for session in due for turn in session.unanswered()]
        if asked:
            for turn, answer in zip(asked, self._answer(asked), strict=True):
                turn.answer = answer
        self._num_steps += len(asked)
        updates = {id(session): session.take_update() for session in due}
        return [updates.get(id(session)) for session in sessions]

    def _answer(self, turns: Sequence[Turn]) -> list[Decoded]:
        try:
            return self._answer_batch(turns)
        except torch.OutOfMemoryError as exc:
            if len(turns) == 1:
                raise errors.DeviceOutOfMemory("one step of one stream") from exc
        half = len(turns) // 2
        return [*self._answer(turns[:half]), *self._answer(turns[half:])]

    def _answer_batch(self, turns: Sequence[Turn]) -> list[Decoded]:
        suffixes = self._encode(turns)
        rows = self._rows(turns, suffixes)
        prompts = self._runtime.decoder.read(rows)
        for number, (turn, suffix) in enumerate(zip(turns, suffixes, strict=True)):
            turn.audio.keep(suffix, prompts.keys.row(number))
        return self._runtime.decoder.write(prompts, rows)

    def _encode(self, turns: Sequence[Turn]) -> list["Suffix"]:
        encoder = self._runtime.encoder
        audios = [turn.audio for turn in turns]
        measure(self._runtime.mel, audios)
        plans = [audio.plan() for audio in audios]
        convolved = iter(encoder.convolve([f for plan in plans for f in plan.features.values()]))
        windows = [
            audio.assemble(plan, list(islice(convolved, len(plan.features))))
            for audio, plan in zip(audios, plans, strict=True)
        ]
        embeddings = iter(
            encoder.attend(
                [window for own in windows for window in own],
                num_frames=sum(plan.num_frames for plan in plans),
            )
        )
        suffixes = []
        for audio, plan, own in zip(audios, plans, windows, strict=True):
            before = audio.num_reencoded
            suffixes.append(audio.settle(plan, list(islice(embeddings, len(own)))))
            self._reencoded += audio.num_reencoded - before
        return suffixes

    def _rows(self, turns: Sequence[Turn], suffixes: Sequence["Suffix"]) -> list[Row]:
        heads = [
            turn.audio.prompt.head if suffix.needs_head else ()
            for turn, suffix in zip(turns, suffixes, strict=True)
        ]
        around = [
            tokens
            for turn, head in zip(turns, heads, strict=True)
            for tokens in (head, turn.tail())
        ]
        embedded = self._runtime.decoder.embed(list(chain(*around)))
        parts = iter(torch.split(embedded, [len(tokens) for tokens in around]))
        return [
            Row(
                embeddings=torch.cat(
                    [
                        next(parts),
                        *(clip.to(embedded.dtype) for clip in (*suffix.stable, *suffix.open)),
                        next(parts),
                    ]
                ),
                kept=turn.audio.kept,
                max_new_tokens=self._config.max_final_tokens
                if turn.closes
                else self._config.max_step_tokens,
                loops=turn.loops(),
                no_speech=turn.no_speech(),
            )
            for turn, suffix in zip(turns, suffixes, strict=True)
        ]
