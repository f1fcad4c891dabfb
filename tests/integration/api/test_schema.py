"""Requests made up from our own OpenAPI document: no 500, no answer that it does not describe."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.context import ApiContext
from tests.integration.api.conftest import client_of, make_key
from tests.integration.api.fakes import FakeWorker
from tests.integration.api.test_jobs import post

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


EXAMPLES_EACH = 8


def check_operation(operation: APIOperation, mode: GenerationMode, key: str, job_id: str) -> None:
    """Try an operation; where it is about a job and does not delete it, about a real one."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES_EACH,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Case) -> None:
        if "job_id" in case.path_parameters and case.method != "DELETE":
            case.path_parameters["job_id"] = job_id
        response = case.call(headers={"Authorization": f"Bearer {key}"})
        case.validate_response(response, checks=CHECKS)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_made_up_requests_get_documented_answers(
    sqlite_context: ApiContext, worker: FakeWorker, mode: GenerationMode
):
    app = create_app(sqlite_context)
    document = schemathesis.openapi.from_asgi("/openapi.json", app)
    key = make_key(sqlite_context)
    job_id = post(client_of(sqlite_context, key)).json()["id"]
    failures = {}
    for result in document.get_all_operations():
        operation = result.ok()
        try:
            check_operation(operation, mode, key, job_id)
        except Unsatisfiable:  # nothing about it can be wrong
            continue
        except FailureGroup as exc:
            failures[operation.label] = [str(failure) for failure in exc.exceptions]
    assert failures == {}
