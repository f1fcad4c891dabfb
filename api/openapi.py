"""What the generated OpenAPI document must be told: errors, and bodies that are read as streams."""

from typing import Any

from fastapi import FastAPI

from api.batch_schemas import PrefixBatch
from api.examples import add_examples
from api.problems import PROBLEM_TYPE
from api.schemas import CreateJob, OpenAiError, ProblemView
from lifecycle.submissions import SOURCE_FIELDS

_REF = {"$ref": "#/components/schemas/ProblemView"}
_OPENAI_REF = {"$ref": "#/components/schemas/OpenAiError"}

COMMON_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {PROBLEM_TYPE: {"schema": _REF}}}
    for status, text in {
        400: "Something in the request cannot be used; `param` names it.",
        401: "No valid API key.",
        403: "The key lacks a scope.",
        404: "There is no such thing, or it belongs to another key.",
        409: "The state does not allow that.",
        413: "The file is too large.",
        422: "A query or path parameter is malformed.",
        429: "A limit is reached; see Retry-After.",
        503: "Something this needs is down; see Retry-After.",
    }.items()
}


def job_body() -> dict[str, Any]:
    """Return `requestBody` of `POST /v1/jobs`: JSON, or a form with a file."""
    fields = CreateJob.model_json_schema()
    form = {n: schema for n, schema in fields["properties"].items() if n not in SOURCE_FIELDS}
    form["metadata"] = {"type": "string", "description": "A JSON object.", "example": "{}"}
    form["file"] = {"type": "string", "format": "binary"}
    return {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": form,
                    "required": ["file"],
                    "additionalProperties": False,
                }
            },
            "application/json": {"schema": fields},
        },
    }


def batch_body() -> dict[str, Any]:
    """Return `requestBody` of `POST /v1/batches`: lines, or a prefix."""
    line = '{"custom_id": "1", "media_url": "https://example.com/a.wav", "language": "en"}\n'
    return {
        "required": True,
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}, "example": line},
            "application/json": {"schema": PrefixBatch.model_json_schema()},
        },
    }


def install(app: FastAPI) -> None:
    """Add our error schemas, and say which errors have which shape."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = generate()
        schemas = document["components"]["schemas"]
        for model in (ProblemView, OpenAiError):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[model.__name__] = schema
        for path, operations in document["paths"].items():
            if path.startswith(("/v1/audio", "/v1/models")):
                _use_openai_errors(operations)
        add_examples(document)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _use_openai_errors(operations: dict[str, Any]) -> None:
    for operation in operations.values():
        for status, response in operation["responses"].items():
            if not status.startswith("2"):
                response["content"] = {"application/json": {"schema": _OPENAI_REF}}
