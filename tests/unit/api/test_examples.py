"""Every route of the OpenAPI document shows what goes in and what comes out, and it is true."""

import itertools
from typing import Any

import jsonschema_rs
import pytest

from api.app import create_app
from api.main import make_context
from core.settings import Settings


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), redis_url="redis://127.0.0.1:1")
    return create_app(make_context(settings)).openapi()


def operations(document: dict[str, Any]):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def find_example(document: dict[str, Any], content: dict[str, Any]) -> Any:
    """Return the example of a content, or of its schema; None if there is none."""
    if "example" in content:
        return content["example"]
    schema = content.get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return next(iter(schema.get("examples", [])), None)


def contents(operation: dict[str, Any]):
    bodies = operation.get("requestBody", {}).get("content", {})
    answers = (answer.get("content", {}) for answer in operation["responses"].values())
    return itertools.chain(bodies.items(), *(content.items() for content in answers))


def test_every_body_answer_and_path_parameter_has_an_example(document):
    lacking = [
        f"{route}: {content_type}"
        for route, operation in operations(document)
        for content_type, content in contents(operation)
        if find_example(document, content) is None
    ]
    lacking += [
        f"{route}: {parameter['name']}"
        for route, operation in operations(document)
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "path" and "example" not in parameter
    ]
    assert lacking == []
    assert len(document["paths"]) > 25


def test_examples_are_what_their_schemas_describe(document):
    wrong = []
    for route, operation in operations(document):
        for content_type, content in contents(operation):
            schema = {**content.get("schema", {}), "components": document["components"]}
            validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
            wrong += [
                f"{route}: {content_type}: {error.message}"
                for error in validator.iter_errors(find_example(document, content))
            ]
    assert wrong == []


def test_every_route_says_what_it_does(document):
    lacking = [
        route for route, operation in operations(document) if not operation.get("description")
    ]
    assert lacking == []
