"""The JSON API of a real `exa serve`."""

import json
import time
from urllib.parse import quote

import pytest
from needs import library
from served import ODD, TOKEN, content_of, until

pytestmark = pytest.mark.usefixtures("at_rest")

FACTS = {
    "name", "kind", "description", "version", "lastMaterializedAt", "deps", "dependents", "fresh",
    "reasons", "undeclaredDeps",
}  # fmt: skip
"""What the API of ExaMLOps gives of each asset."""


def rows_of(served, **query):
    return {row["name"]: row for row in served.ask("/api/assets", **query)["assets"]}


def test_the_assets_have_the_shape_of_examlops_and_more(served):
    answer = served.ask("/api/assets")
    assert set(answer["counts"]) == {"total", "stale", "fresh", "states"}
    for row in answer["assets"]:
        assert row.keys() >= FACTS | {"state", "kind", "partition"}
    features = rows_of(served)["jpcp_features"]
    assert (features["kind"], features["deps"]) == ("feature", ["PM100"])
    assert features["description"] is None or "Features" in features["description"]
    assert "jpcp_model" in features["dependents"]
    assert rows_of(served)[ODD]["undeclaredDeps"] == ["nobody's"]
    assert rows_of(served)["nobody's"]["state"] == "undeclared"


@pytest.mark.parametrize("name", ["PM100", "by/part", ODD, "nobody's", "out"])
def test_an_asset_of_any_name_has_an_address(served, name):
    for address in (quote(name), quote(name, safe="")):
        assert served.ask(f"/api/assets/{address}")["name"] == name
    [row] = served.ask("/api/assets", name=name)["assets"]
    assert row["name"] == name


def test_an_unknown_name_is_told_with_the_nearest(served):
    found = served.ask("/api/assets/jpcp_modle", code=404)
    assert "jpcp_modle" in found["error"]
    assert "jpcp_model" in found["error"]


def test_a_name_with_a_newline_is_told_as_any_other_that_nobody_declared(served):
    assert "error" in served.ask("/api/assets/a%0Ab", code=404)
    assert "error" in served.ask("/api/%0A", code=404)


def test_an_unknown_path_is_no_page(served):
    assert "error" in served.ask("/api/nothing/here", code=404)


def test_pages_give_every_row_once(served):
    everything = [row["name"] for row in served.ask("/api/assets")["assets"]]
    found, cursor = [], None
    while True:
        page = served.ask("/api/assets", limit=2, **({"cursor": cursor} if cursor else {}))
        assert len(page["assets"]) <= 2
        found += [row["name"] for row in page["assets"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == everything


def test_filters_narrow_what_is_given(served):
    assert set(rows_of(served, kind="feature")) == {"jpcp_features"}
    assert set(rows_of(served, state="undeclared")) == {"nobody's"}
    assert set(rows_of(served, q="JPCP")) == {"jpcp_features", "jpcp_model"}
    assert set(rows_of(served, kind=["feature", "model"])) == {"jpcp_features", "jpcp_model"}


@pytest.mark.parametrize(
    "query",
    [{"limit": "0"}, {"limit": "x"}, {"state": "rotten"}, {"cursor": "zz"}, {"expand": "all"},
     {"partition": "a"}],
)  # fmt: skip
def test_what_is_not_allowed_is_told_with_what_is(served, query):
    assert served.ask("/api/assets", code=400, **query)["error"]


def test_partitions_are_rows_on_request(served):
    rows = served.ask("/api/assets", name="by/part", expand="partitions")["assets"]
    assert [row["partition"] for row in rows] == ["a", "b"]
    [row] = served.ask("/api/assets", name="by/part", partition="b")["assets"]
    assert row["partition"] == "b"
    assert rows_of(served)["by/part"]["partitions"]


def test_an_answer_that_has_not_changed_is_not_sent_again(served):
    for path in ("/api/assets", "/api/plan", "/api/assets/PM100", "/build/assets/live"):
        first = served.answer(path)
        tag = first.headers["ETag"]
        assert served.answer(path, tag=tag).code == 304
        assert served.answer(path, tag=f'"other", W/{tag}').code == 304
        assert served.answer(path, tag='"other"').code == 200


def test_a_warm_answer_takes_no_snapshot(served):
    served.ask("/api/assets")

    def seconds():
        started = time.perf_counter()
        served.ask("/api/assets")
        return time.perf_counter() - started

    until(lambda: seconds() < 0.1)  # once is enough, for a busy machine


def test_an_alias_names_who_writes_and_reads_it(served):
    found = served.ask("/api/aliases/out")
    assert found["producers"] == ["mail"]
    assert isinstance(found["events"], list)
    assert "error" in served.ask("/api/aliases/PM100", code=404)


def test_the_plan_is_that_of_the_command_line(served):
    here = json.loads(served.exa("-m", "pipeline", "assets", "plan", "--json").stdout)
    assert served.ask("/api/plan") == here
    named = json.loads(
        served.exa("-m", "pipeline", "assets", "plan", "report", "--force", "--json").stdout
    )
    assert served.ask("/api/plan", name="report", force="true") == named


def test_health_names_the_version_and_the_daemon(served):
    found = served.ask("/api/health")
    assert (found["status"], found["daemon"], found["canRun"]) == ("ok", "off", True)


def test_the_answers_are_as_their_description_says(served):
    jsonschema = library("jsonschema")
    document = served.ask("/api/openapi.json")
    for path, schema in (
        ("/api/assets", "Assets"), (f"/api/assets/{quote(ODD)}", "AssetDetail"),
        ("/api/assets/report", "AssetDetail"), ("/api/plan", "Plan"),
        ("/api/aliases/out", "Alias"), ("/api/health", "Health"),
    ):  # fmt: skip
        jsonschema.validate(
            served.ask(path), {"$ref": f"#/components/schemas/{schema}", **document}
        )


def test_get_never_changes_anything(served):
    """Not even where others have written what nobody has taken over yet."""
    served.home.report("PM100", f"of {time.time()}")
    databases = [
        served.folder / "platform.db",
        served.folder / "history" / "runs.db",
        served.folder / "history" / "runs" / "index.db",
    ]
    before = [content_of(path) for path in databases]
    version = served.detail("PM100")["version"]
    for path in (
        "/api/assets", "/api/assets?expand=partitions", "/api/assets/report", "/api/plan",
        "/api/plan?name=report&force=true", "/api/plan?name=mail", "/api/aliases/out",
        "/api/health", "/api/openapi.json", "/build/assets", "/build/assets?asset=report",
        "/build/assets/detail?asset=PM100", "/build/assets/live", f"/api/assets/{quote(ODD)}",
    ):  # fmt: skip
        assert served.answer(path).code == 200
    assert [content_of(path) for path in databases] == before
    assert {row["name"]: row["version"] for row in served.status()}["PM100"] == version
    assert version >= 1


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], f"{TOKEN}x"])
@pytest.mark.parametrize("path", ["/api/run", "/api/get/report"])
def test_nothing_is_built_without_the_token(served, path, token):
    runs = len(served.home.instance.get_run_ids())
    found = served.answer(path, method="POST", body={}, token=token)
    assert found.code == 401
    assert found.headers["WWW-Authenticate"] == "Bearer"
    assert len(served.home.instance.get_run_ids()) == runs


def test_a_request_with_the_token_launches_a_run(served):
    found = served.ask("/api/get/jpcp_features", method="POST", token=TOKEN, code=202)
    [run] = found["runs"]
    assert run["assets"] == ["jpcp_features"]
    assert run["url"] == f"/runs/{run['id']}"
    until(lambda: served.detail("jpcp_features")["fresh"], served.log.read_text)
    assert served.detail("jpcp_features")["links"]["run"] == run["url"]
    again = served.ask("/api/get/jpcp_features", method="POST", token=TOKEN)
    assert (again["runs"], again["plan"]["skipped"]) == ([], ["PM100", "jpcp_features"])


@pytest.mark.parametrize("body", [[1], {"names": "report"}, {"names": [1]}, "text"])
def test_a_body_that_is_none_is_refused(served, body):
    assert served.ask("/api/run", method="POST", body=body, token=TOKEN, code=400)["error"]


def test_a_request_for_what_nobody_can_build_is_refused(served):
    found = served.ask(f"/api/get/{quote(ODD)}", method="POST", token=TOKEN, code=409)
    assert "undeclared" in found["error"]
    assert served.ask("/api/get/zz", method="POST", token=TOKEN, code=404)["error"]
    found = served.ask("/api/run", method="POST", token=TOKEN, body={"names": ["zz"]}, code=404)
    assert "zz" in found["error"]
