"""What a job costs beside its model: archives of short files are capped by it."""

from collections import Counter

from sqlalchemy import event

from tests.integration.batches.conftest import line

NUM_JOBS = 8
MAX_STATEMENTS = 40
"""35, of jobs of one window in batches of four, the beginnings of transactions not counted."""

MAX_COMMITS = 6.5
"""Claim and end of `prepare`, results, claim and end of `finish`; the rest is shared by several."""


def test_a_job_of_one_window_takes_few_statements_and_commits(stack):
    names = [f"{number}.wav" for number in range(NUM_JOBS)]
    lines = [line(key, key) for key in stack.store_audio(*names, seconds=0.9)]
    counts: Counter[str] = Counter()
    engine = stack.context.sessions.kw["bind"]
    batch_id = stack.submit(lines)
    event.listen(engine, "before_cursor_execute", lambda *_: counts.update(["statements"]))
    event.listen(engine, "commit", lambda *_: counts.update(["commits"]))
    stack.run()
    per_job = {name: count / NUM_JOBS for name, count in counts.items()}
    assert stack.get(batch_id)["counts"]["completed"] == NUM_JOBS
    assert per_job["statements"] <= MAX_STATEMENTS, per_job
    assert per_job["commits"] <= MAX_COMMITS, per_job
