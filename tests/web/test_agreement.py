"""The page, the API and the command line say the same, whatever happens."""

import html
import json
import re

from served import ODD, content_of

ROW = re.compile(
    r'<tr data-n="\d+" data-name="([^"]*)".*?<td data-state="(\w+)">.*?class="shown">([^<]*)<'
    r".*?</td><td>([^<]*)</td><td>([^<]*)</td>"
)


def page(served):
    """Give what the table of the page says: state, words, version and why, by name."""
    text = served.answer("/build/assets").text
    found = {}
    for name, state, shown, version, why in ROW.findall(text):
        found[html.unescape(name)] = (
            state, html.unescape(shown), 0 if version == "—" else int(version),
            "" if why == "—" else html.unescape(why),
        )  # fmt: skip
    return found


def api(served):
    return {
        row["name"]: (row["state"], row["shown"], row["version"], "; ".join(row["reasons"]))
        for row in served.ask("/api/assets")["assets"]
    }


def compare(served):
    from_page, from_api = page(served), api(served)
    rows = served.ask("/api/assets", expand="partitions")["assets"]
    keys = ("name", "partition", "kind", "version", "fresh", "state", "reasons")
    by_node = [{key: row[key] for key in keys} for row in rows]
    assert by_node == served.status()
    assert from_page == from_api
    live = json.loads(served.answer("/build/assets/live").text)["nodes"]
    assert [(state, shown, version, why) for state, _, shown, version, why, _ in live] == list(
        from_api.values()
    )
    return {name: (state, version) for name, (state, _, version, _) in from_api.items()}


def test_they_agree_after_each_of_a_series_of_changes(fresh_site):
    site = fresh_site
    site.start("--no-daemon")

    def exa(*words, code=0):
        site.exa("-m", "pipeline", "assets", *words, code=code)
        return compare(site)

    assert compare(site)["jpcp_model"] == ("runnable_stale", 0)
    assert exa("materialize", "jpcp_model")["jpcp_model"] == ("fresh", 1)
    assert exa("materialize", "report")["report"] == ("fresh", 1)
    found = exa("source-changed", "PM100")
    assert found["jpcp_features"] == ("runnable_stale", 1)
    assert found["report"][0] == "stale_waiting_for_request"
    (site.folder / "broken").touch()
    assert exa("materialize", "jpcp_model", code=1)["jpcp_model"] == ("failed", 1)
    assert exa("materialize", "by/part", code=1)["by/part"] == ("failed", 1)
    (site.folder / "broken").unlink()
    assert exa("retry", "jpcp_model")["jpcp_model"] == ("fresh", 2)
    assert compare(site)["nobody's"] == ("undeclared", 0)
    assert exa("declare", "nobody's")["nobody's"][0] == "runnable_stale"
    site.answer(
        "/report_asset_materialization/PM100", method="POST", body={"data_version": "of REST"}
    )
    before = content_of(site.folder / "platform.db")
    assert api(site)["jpcp_features"][0] == "runnable_stale"  # seen, though nobody took it over
    assert content_of(site.folder / "platform.db") == before
    assert compare(site)["PM100"] == ("fresh", 3)
    site.home.wipe("jpcp_model")
    assert compare(site)["jpcp_model"][1] == 0
    assert exa("materialize", "jpcp_model", "by/part")["by/part"][0] == "fresh"
    site.exa("assets", "undeclare", ODD)  # the module still reads it
    here = site.exa("-m", "pipeline", "assets", "status", code=2)
    there = site.ask("/api/assets", code=503)
    assert here.stderr.strip() == f"Error: {there['error']}"
    assert site.answer("/build/assets").code == 503
    assert exa("declare", ODD)["from_odd"][0] == "runnable_stale"
