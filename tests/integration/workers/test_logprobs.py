"""Log probabilities on their way from the model to whoever asked for them."""

from sqlalchemy import select

from core.db import read_session
from core.logprobs import join_logprobs
from lifecycle.transcripts import load_transcript
from models import Job
from models import Segment as SegmentRow


def test_they_are_kept_with_the_segments_of_jobs_that_ask(pipeline, submit, events_of):
    asking, other = submit(logprobs=True), submit()
    pipeline.run()
    with read_session(pipeline.context.sessions) as session:
        transcript = load_transcript(session, session.get_one(Job, asking))
        stats = session.scalars(select(SegmentRow.stats).where(SegmentRow.job_id == other)).all()
    tokens = join_logprobs(transcript.segments)
    assert bytes(byte for token in tokens for byte in token.utf8).decode() == transcript.text
    assert stats
    assert all("token_logprobs" not in each for each in stats)
    told = [event.data for event in events_of(asking) if event.type == "transcript.segment"]
    assert ["".join(token["token"] for token in data["logprobs"]) for data in told] == [
        segment.text for segment in transcript.segments
    ]
