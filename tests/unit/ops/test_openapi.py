"""The committed description of the API is the code's."""

import json
from pathlib import Path

from ops.api.app import describe, make

DESCRIPTION = Path(__file__).parents[3] / "docs/openapi.json"


def test_the_committed_description_is_the_codes() -> None:
    assert json.loads(DESCRIPTION.read_text()) == describe(make()), "run `make openapi`"


def test_the_description_is_openapi_3_1_and_every_operation_has_a_name_and_a_summary() -> None:
    told = describe(make())
    operations = [operation for path in told["paths"].values() for operation in path.values()]
    assert told["openapi"].startswith("3.1")
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["description"] for operation in operations)
