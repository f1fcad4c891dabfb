"""What may be tuned in chunked streaming. No torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedStreamingConfig:
    """How growing audio is stepped through.

    Attributes:
        chunk_ms: New audio a step.
        num_unfixed_chunks: Steps of an utterance before anything is confirmed: with less audio
            even the language may be wrong.
        num_unfixed_tokens: Tokens at the end of a hypothesis that stay open for the next step.
        max_step_tokens: Most new tokens of a step that is not an utterance's last; a hypothesis
            that is cut there goes on in the next step.
        max_final_tokens: Most new tokens of an utterance's last step, which is to run to its end.
        pause_ms: Silence that ends an utterance.
        min_utterance_ms: Before that no pause ends it.
        soft_utterance_ms: After that a pause of `short_pause_ms` is enough.
        short_pause_ms: See above.
        max_utterance_ms: No utterance gets longer; it ends at the quietest spot of its last chunk.
    """

    chunk_ms: int = 2000
    num_unfixed_chunks: int = 2
    num_unfixed_tokens: int = 5
    max_step_tokens: int = 96
    max_final_tokens: int = 512
    pause_ms: int = 700
    min_utterance_ms: int = 2000
    soft_utterance_ms: int = 12_000
    short_pause_ms: int = 240
    max_utterance_ms: int = 28_000
