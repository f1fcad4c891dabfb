"""Before anything is decoded: has this key had this recording transcribed like this already?"""

import hashlib

import structlog

from core.db import read_session, unit_of_work
from core.errors import MediaGone
from lifecycle.jobs import transcript_key
from lifecycle.reuse import complete_from_twin, find_twin
from models import Media
from workers.stage import StageClaim

log = structlog.get_logger(__name__)


def reuse_transcript(claim: StageClaim, sha256: str, *, adapter: str, revision: str | None) -> bool:
    """Complete the job from a finished one if there is an equal one; return whether there was.

    Args:
        sha256: Of the job's media.

    Raises:
        LeaseLost: The job is no longer this worker's.
    """
    context, job = claim.context, claim.job
    if not job.may_reuse or job.prepared_at is not None:
        return False
    with read_session(context.sessions) as session:
        twin = find_twin(session, job, sha256=sha256, adapter=adapter, revision=revision)
    if twin is None or twin.job.transcript_key is None:
        return False
    key = transcript_key(job.id)
    try:
        # A copy of its own: deleting either job must leave the other whole.
        data = context.storage.read(twin.job.transcript_key)
    except MediaGone:
        return False
    context.storage.put(key, data, content_type="application/json")
    with unit_of_work(context.sessions) as uow:
        complete_from_twin(
            uow,
            context.publisher,
            job.id,
            twin,
            sha256=sha256,
            transcript_key=key,
            attempt=job.attempt,
            now=context.now(),
        )
    log.info("transcript.reused", reused_from=str(twin.job.id))
    return True


def hash_media(claim: StageClaim, media: Media) -> str:
    """Read the object once: nobody has seen all its bytes before."""
    digest = hashlib.sha256()
    for block in claim.context.storage.chunks(media.storage_key):
        claim.check()
        digest.update(block)
    return digest.hexdigest()
