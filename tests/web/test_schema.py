"""Whatever is asked of the API, it answers as its OpenAPI file says, and never fails."""

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from served import TOKEN


def test_schemathesis_finds_no_server_error(served):
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error, status_code_conformance, content_type_conformance,
        response_schema_conformance,
    ]  # fmt: skip
    schema = schemathesis.openapi.from_dict(served.ask("/api/openapi.json"))
    headers = {"Authorization": f"Bearer {TOKEN}".encode()}
    tried = set()
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def ask(case):
            sent = headers if case.method == "POST" else {}
            case.call_and_validate(base_url=served.url, headers=sent, checks=checks, timeout=120)

        ask()
        tried.add(operation.label)
    assert {"GET /api/assets", "POST /api/run", "GET /api/aliases/{name}"} <= tried


@settings(max_examples=40, deadline=None)
@given(
    st.text(max_size=40),
    st.sampled_from(["/api/assets/", "/api/aliases/", "/build/assets/detail?asset="]),
)
def test_any_name_gets_an_answer(served, name, path):
    from urllib.parse import quote

    found = served.answer(f"{path}{quote(name, safe='', errors='replace')}")
    assert found.code in (200, 404), (name, found.text)
