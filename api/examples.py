"""An example for every parameter, body and answer of the OpenAPI document; tests hold it complete.

Bodies whose schema has an example of its own keep that one.
"""

from typing import Any

_JOB_ID = "01980f5e-5b1c-7cc3-b0c4-5a3f0d6f2b11"
_BATCH_ID = "01980f5e-6f2a-7d18-9a41-0f5f3c1be0a7"
_UPLOAD_ID = "01980f5e-71c9-7a52-8f0e-2d9e55a1c3d4"
_KEY_ID = "01980f5e-73e0-7b06-a1d8-6f2f0c9be812"
_ENDPOINT_ID = "01980f5e-75aa-7e61-bc4d-913c7a50fd26"
_DELIVERY_ID = "01980f5e-7741-70d9-8b3a-c80d1e64f937"
_BEGUN, _ENDED, _LATER = "2026-11-30T09:15:02Z", "2026-11-30T09:15:04Z", "2026-11-30T21:15:02Z"
_TEXT = "Ask not what your country can do for you, ask what you can do for your country."
_URL = "https://example.com/scriptorium"

_ERROR = {"code": "media_undecodable", "message": "The media cannot be decoded."}
_SEGMENT = {"start": 0.32, "end": 10.56, "text": _TEXT}

_JOB: dict[str, Any] = {
    "id": _JOB_ID,
    "status": "completed",
    "model": "whisper-base",
    "revision": "c7b291196809",
    "options": {"language": "en", "timestamps": "word"},
    "priority": "standard",
    "reference": "interview-17",
    "metadata": {"archive": "1961"},
    "batch_id": None,
    "reused_from": None,
    "filename": "en_kennedy.flac",
    "size_bytes": 214_512,
    "progress": {
        "windows_done": 1,
        "windows_total": 1,
        "audio_s_done": 11.0,
        "audio_s_total": 11.0,
        "percent": 100.0,
    },
    "duration_s": 11.0,
    "language": "en",
    "coverage": {"speech_s": 9.8},
    "warnings": [],
    "error": None,
    "created_at": _BEGUN,
    "started_at": _BEGUN,
    "finished_at": _ENDED,
    "delete_at": None,
}
_QUEUED_JOB = _JOB | {
    "status": "queued",
    "revision": None,
    "progress": dict.fromkeys(_JOB["progress"], 0),
    "duration_s": None,
    "language": None,
    "coverage": None,
    "started_at": None,
    "finished_at": None,
}
_BATCH: dict[str, Any] = {
    "id": _BATCH_ID,
    "status": "running",
    "counts": {
        "total": 10_000,
        "queued": 8210,
        "running": 16,
        "completed": 1771,
        "failed": 3,
        "cancelled": 0,
    },
    "audio_s_done": 318_780.0,
    "audio_s_total": 1_800_000.0,
    "eta_s": 7430.5,
    "error": None,
    "created_at": _BEGUN,
    "started_at": _BEGUN,
    "finished_at": None,
}
_UPLOAD: dict[str, Any] = {
    "id": _UPLOAD_ID,
    "method": "PUT",
    "url": f"https://scriptorium.example/v1/uploads/{_UPLOAD_ID}/content?token=…",
    "headers": {"Content-Type": "audio/mp4"},
    "parts": None,
    "size_bytes": 48_000_000,
    "received_bytes": 0,
    "expires_at": _LATER,
}
_KEY: dict[str, Any] = {
    "id": _KEY_ID,
    "name": "archive",
    "prefix": "sk-Zb3x",
    "scopes": ["submit", "read"],
    "limits": {"active_jobs": 1000},
    "created_at": _BEGUN,
    "last_used_at": None,
    "revoked_at": None,
}
_ENDPOINT: dict[str, Any] = {
    "id": _ENDPOINT_ID,
    "url": _URL,
    "events": ["job.completed", "job.failed"],
    "description": "The newsroom",
    "status": "active",
    "disabled_reason": None,
    "paused_until": None,
    "failures": 0,
    "created_at": _BEGUN,
}
_DELIVERY: dict[str, Any] = {
    "id": _DELIVERY_ID,
    "webhook_id": "evt_01980f5e791770c58a2bd03a5c16ee48",
    "event_type": "job.completed",
    "subject_id": _JOB_ID,
    "endpoint_id": _ENDPOINT_ID,
    "url": _URL,
    "status": "delivered",
    "attempts": 1,
    "next_attempt_at": None,
    "last_status": 204,
    "last_error": None,
    "created_at": _ENDED,
    "finished_at": _ENDED,
}
_MODEL = {
    "id": "whisper-base",
    "object": "model",
    "created": 1_767_225_600,
    "owned_by": "openai",
}
_SECRET = "whsec_…"  # noqa: S105 - none that works

ANSWERS: dict[str, Any] = {
    "JobView": _JOB,
    "JobList": {"data": [_JOB], "next_cursor": None},
    "BatchView": _BATCH,
    "BatchPage": {"data": [_BATCH], "next_cursor": None},
    "ItemPage": {
        "data": [
            {"index": 0, "custom_id": "0001", "job_id": _JOB_ID, "status": "completed"},
            {
                "index": 1,
                "custom_id": "0002",
                "job_id": None,
                "status": "failed",
                "error": {
                    "code": "media_not_found",
                    "message": "There is no object 'inbox/2.wav'.",
                },
            },
        ],
        "next_cursor": "1",
    },
    "DryRunView": {
        "total": 2,
        "usable": 1,
        "unusable": 1,
        "problems": [
            {
                "index": 1,
                "custom_id": "0002",
                "code": "media_not_found",
                "message": "There is no object 'inbox/2.wav'.",
            }
        ],
        "probed": 1,
        "audio_s": 180.5,
        "codecs": {"pcm_s16le": 1},
        "estimated_s": 6.1,
    },
    "UploadView": _UPLOAD,
    "KeyView": _KEY,
    "CreatedKey": _KEY | {"key": "sk-…"},
    "KeyList": {"data": [_KEY]},
    "EndpointView": _ENDPOINT,
    "CreatedEndpoint": _ENDPOINT | {"secret": _SECRET},
    "EndpointList": {"data": [_ENDPOINT]},
    "SecretView": {"secret": _SECRET, "previous_secret_expires_at": "2026-12-01T09:15:04Z"},
    "DeliveryView": _DELIVERY,
    "DeliveryPage": {"data": [_DELIVERY], "next_cursor": None},
    "DeliveryDetail": _DELIVERY
    | {
        "attempt_log": [
            {
                "number": 1,
                "started_at": _ENDED,
                "duration_ms": 84,
                "response_status": 204,
                "response_body": "",
                "error": None,
            }
        ],
        "payload": '{"type":"job.completed","timestamp":"2026-11-30T09:15:04Z","data":{…}}',
    },
    "ModelView": _MODEL,
    "ModelList": {"object": "list", "data": [_MODEL]},
    "HealthView": {
        "status": "ok",
        "checks": {name: {"ok": True, "error": None} for name in ("database", "redis", "storage")},
    },
    "ProblemView": {
        "type": "urn:scriptorium:problem:media_undecodable",
        "title": "The media cannot be decoded",
        "status": 400,
        "detail": "The media cannot be decoded.",
        "instance": "/v1/jobs",
        "code": "media_undecodable",
        "request_id": "01980f5e5b1c7cc3b0c45a3f0d6f2b11",
    },
    "OpenAiError": {
        "error": {
            "message": "language: no language 'xx'",
            "type": "invalid_request_error",
            "param": "language",
            "code": "unknown_language",
        }
    },
}
"""By the name of the answer's schema."""

TEXTS: dict[str, Any] = {
    "text/plain": _TEXT,
    "application/x-subrip": f"1\n00:00:00,320 --> 00:00:10,560\n{_TEXT}\n\n",
    "text/vtt": f"WEBVTT\n\n00:00:00.320 --> 00:00:10.560\n{_TEXT}\n\n",
    "text/tab-separated-values": f"start\tend\ttext\n320\t10560\t{_TEXT}\n",
    "application/x-ndjson": (
        f'{{"index":0,"custom_id":"0001","job_id":"{_JOB_ID}","status":"completed",'
        f'"text":"{_TEXT}"}}\n'
    ),
    "text/event-stream": 'id: 3\nevent: transcript.segment\ndata: {"seq":3,"type":"…"}\n\n',
    "application/octet-stream": "(the recording)",
    "text/html": "<!doctype html>",
}
"""By the answer's content type."""

ROUTES: dict[str, Any] = {
    "GET /v1/jobs/{job_id}/transcript": {
        "language": "en",
        "duration": 11.0,
        "text": _TEXT,
        "segments": [_SEGMENT],
    },
    "POST /v1/jobs": _QUEUED_JOB,
    "POST /v1/audio/transcriptions": {"text": _TEXT},
    "POST /v1/audio/translations": {"text": _TEXT},
    "GET /health/live": {"status": "ok"},
    "GET /health/ready": ANSWERS["HealthView"],
    "GET /metrics": 'scriptorium_jobs{status="queued"} 3.0\n',
    "GET /v1/batches/{batch_id}/errors": (
        f'{{"index":1,"custom_id":"0002","job_id":"{_JOB_ID}","status":"failed",'
        f'"error":{{"code":"{_ERROR["code"]}","message":"{_ERROR["message"]}"}}}}\n'
    ),
}
"""By method and path, for the JSON (or only) answer of routes that are not as their schema says."""

BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/jobs": {
        "application/json": {"media_url": "https://example.com/talk.mp3", "language": "en"},
        "multipart/form-data": {"file": "(the recording)", "language": "en"},
    },
    "POST /v1/audio/transcriptions": {
        "multipart/form-data": {"file": "(the recording)", "model": "whisper-1"}
    },
    "POST /v1/audio/translations": {
        "multipart/form-data": {"file": "(the recording)", "model": "whisper-1"}
    },
    "POST /v1/webhooks/{endpoint_id}/rotate": {"application/json": {}},
}
"""By method and path, then content type."""

PATH_PARAMETERS: dict[str, Any] = {
    "job_id": _JOB_ID,
    "batch_id": _BATCH_ID,
    "upload_id": _UPLOAD_ID,
    "endpoint_id": _ENDPOINT_ID,
    "delivery_id": _DELIVERY_ID,
    "key_id": _KEY_ID,
    "number": 1,
    "model_name": "whisper-base",
}


def add_examples(document: dict[str, Any]) -> None:
    """Put the examples into an OpenAPI document."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            route = f"{method.upper()} {path}"
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    parameter["example"] = PATH_PARAMETERS[parameter["name"]]
            bodies = operation.get("requestBody", {}).get("content", {})
            for content_type, example in BODIES.get(route, {}).items():
                bodies[content_type]["example"] = example
            for response in operation["responses"].values():
                _add_to_answer(route, response.get("content", {}))


def _add_to_answer(route: str, contents: dict[str, Any]) -> None:
    for content_type, content in contents.items():
        name = _schema_name(content.get("schema", {}))
        is_main = content_type == "application/json" or len(contents) == 1
        if name in ("ProblemView", "OpenAiError"):
            content["example"] = ANSWERS[name]
        elif route in ROUTES and is_main:
            content["example"] = ROUTES[route]
        elif name in ANSWERS:
            content["example"] = ANSWERS[name]
        elif content_type in TEXTS:
            content["example"] = TEXTS[content_type]


def _schema_name(schema: dict[str, Any]) -> str:
    """Return the name of a schema, of several the first's, or ""."""
    first = schema.get("anyOf", [schema])[0]
    return str(first.get("$ref", "")).rpartition("/")[2]
