"""Whisper in every size: multilingual, English-only, 80 and 128 mel bins."""
