"""Requests over HTTP go through policy, and are in the audit log."""

import json

from served import TOKEN, until


def test_policy_and_audit_hold_for_requests_over_http(fresh_site):
    site = fresh_site
    site.start("--no-daemon", EXAMLOPS_API_TOKEN=TOKEN)
    policy = site.folder / "policy.yaml"

    def ask(name, code):
        return site.ask(f"/api/get/{name}", method="POST", token=TOKEN, code=code)

    policy.write_text(
        "policies:\n"
        "  - {name: no models, action: asset_materialize, when: asset == 'jpcp_model', effect: deny}\n"
        "  - {name: ask first, action: asset_materialize, when: actor == 'api' and "
        "asset == 'jpcp_features', effect: require_approval}\n"
    )
    steps = site.ask("/api/plan", name="jpcp_model")["steps"]
    said = {step["name"]: step["policy"] and step["policy"]["decision"] for step in steps}
    assert (said["jpcp_features"], said["jpcp_model"]) == ("require_approval", "deny")
    assert "no models" in ask("jpcp_model", 403)["error"]
    waiting = ask("jpcp_features", 409)["error"]
    assert waiting.startswith("Waiting for approval")
    assert site.home.instance.get_runs() == []
    site.exa("approvals", "grant", waiting.split()[3], EXAMLOPS_ACTOR="somebody else")
    [run] = ask("jpcp_features", 202)["runs"]
    until(lambda: site.detail("jpcp_features")["fresh"], site.log.read_text)
    assert site.detail("jpcp_features")["versions"][0]["run_id"] == run["id"]
    policy.unlink()
    found = site.ask("/api/run", method="POST", token=TOKEN, body={"names": ["from_odd"]})
    assert (found["runs"], found["refused"]) == ([], [])
    site.exa("-m", "pipeline", "assets", "materialize", "by/part")  # records what is left to record
    rows = json.loads(site.exa("audit", "list", "--json").stdout)
    asked = {(row["action"], row["actor"]) for row in rows}
    assert ("asset_materialize_denied", "api") in asked
    assert ("asset_materialize", "api") in asked
