"""What ``--json`` prints: one document on stdout, whatever functions print."""

import pytest


def test_a_build_reports_as_one_document_whatever_functions_print(built):
    found = built.report.json
    expected = {
        "target": "jpcp_model",
        "rebuilt": ["PM100", "jpcp_features", "jpcp_model"],
        "skipped": [],
        "unchanged": [],
        "failed": [],
        "cancelled": False,
        "fallback": {},
    }
    assert found.items() >= expected.items()
    assert len(found["runs"]) == 1
    for text in ("printed at import", "printed by a child\n", "printed by a child of ours\n"):
        assert text in built.report.err


def test_the_commands_that_read_print_one_document(built):
    module = ("-m", "pipeline", "--json")
    assert built("assets", "graph", *module).json == {
        "PM100": [],
        "jpcp_features": ["PM100"],
        "jpcp_model": ["jpcp_features"],
    }
    assert built("assets", "status", *module).json[1] == {
        "name": "jpcp_features",
        "partition": None,
        "kind": "feature",
        "version": 1,
        "fresh": True,
        "state": "fresh",
        "reasons": [],
    }
    listed = {
        "name": "jpcp_model",
        "version": 1,
        "state": "fresh",
        "kind": "model",
        "freshness": "always",
        "deps": ["jpcp_features"],
    }
    assert built("assets", "list", *module).json[2].items() >= listed.items()
    assert built("assets", "plan", "jpcp_model", "--force", *module).json == {
        "targets": ["jpcp_model"],
        "steps": [
            {
                "name": "jpcp_model",
                "partition": None,
                "action": "build",
                "reasons": ["forced"],
                "policy": None,
            }
        ],
        "skipped": ["PM100", "jpcp_features"],
        "blocked": [],
    }
    [build] = built("assets", "history", "jpcp_model", *module).json
    assert (build["state"], build["version"], build["error"]) == ("succeeded", 1, None)
    nothing = built("assets", "materialize", "jpcp_model", *module).json
    assert (nothing["rebuilt"], nothing["runs"]) == ([], [])
    assert nothing["skipped"] == ["PM100", "jpcp_features", "jpcp_model"]


def test_the_commands_that_change_something_print_one_document(built):
    module = ("-m", "pipeline", "--json")
    assert built("assets", "adopt", "jpcp_model", *module).json["adopted"] == []
    assert built("--json", "assets", "declare", "gone", "--kind", "model").json == {
        "ok": True,
        "message": "Declared model asset gone",
    }
    assert built("assets", "undeclare", "gone", "--json").json == {
        "ok": True,
        "message": "Undeclared gone",
    }
    assert built("init", "--json").json["written"] == []


def test_an_error_is_a_document_too(built):
    done = built("assets", "status", "PM10", "--json", code=2)
    assert done.json == {
        "error": "No asset named 'PM10' is declared. Did you mean PM100?",
        "exit_code": 2,
    }
    assert done.err == f"Error: {done.json['error']}\n"
    assert built("--json", "assets", "status", "PM10", code=2).json == done.json


def test_what_a_module_prints_at_import_is_not_in_the_table_either(built):
    status = built("-m", "pipeline", "assets", "status")
    assert status.out.startswith("Asset ")
    assert "printed at import" in status.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("assets", "status", "--chek", "--json"), "No such option: --chek"),
        (("assets", "history", "--json"), "Missing argument"),
        (("--json", "hpc", "jobs", "-n", "many"), "'many' is not a valid"),
        (("asets", "--json"), "Did you mean 'assets'?"),
    ],
)
def test_words_that_are_refused_are_a_document_too(exa, words, message):
    done = exa(*words, code=2)
    assert message in done.json["error"]
    assert done.json["exit_code"] == 2
    assert message in done.err
