"""The transcript of the first seed, each command in a new process."""

GRAPH = """\
PM100 (source)
jpcp_features ← PM100
jpcp_model ← jpcp_features
"""

FRESH = """\
Asset          Version  State  Why
PM100          1        fresh  —
jpcp_features  1        fresh  —
jpcp_model     1        fresh  —
"""

STALE = """\
Asset          Version  State  Why
PM100          2        fresh  —
jpcp_features  1        stale  upstream PM100 changed (1 → 2)
jpcp_model     1        stale  upstream jpcp_features is stale
"""

FIRST = "Materialized jpcp_model: rebuilt PM100, jpcp_features, jpcp_model\n"
AGAIN = "jpcp_model already fresh — nothing to rebuild.\n"
MOVED = "PM100 advanced to v2 — downstream assets are now stale.\n"
SLICE = """\
Materialized jpcp_model: rebuilt jpcp_features, jpcp_model
  skipped (fresh): PM100
"""


def test_the_transcript_of_the_first_seed_to_the_letter(seed):
    declared = seed("assets", "declare", "PM100", "--kind", "dataset")
    assert declared.out == "Declared dataset asset PM100\n"
    assert seed("-m", "pipeline", "assets", "graph").out == GRAPH

    first = seed("-m", "pipeline", "assets", "materialize", "jpcp_model")
    assert first.out == FIRST
    assert "building jpcp_model" in first.err
    assert "model from {'jpcp_features': 1}" in first.err

    again = seed("-m", "pipeline", "assets", "materialize", "jpcp_model")
    assert (again.out, again.err) == (AGAIN, "")
    fresh = seed("-m", "pipeline", "assets", "status")
    assert (fresh.out, fresh.err) == (FRESH, "")
    moved = seed("assets", "source-changed", "PM100")
    assert (moved.out, moved.err) == (MOVED, "")
    stale = seed("-m", "pipeline", "assets", "status")
    assert (stale.out, stale.err) == (STALE, "")

    last = seed("-m", "pipeline", "assets", "materialize", "jpcp_model")
    assert last.out == SLICE
    assert "features from {'PM100': 2}" in last.err
    assert "model from {'jpcp_features': 2}" in last.err


def test_the_same_with_all_three_declared_from_the_command_line(exa):
    declare = ("assets", "declare")
    exa(*declare, "PM100", "--kind", "dataset")
    features = exa(*declare, "jpcp_features", "--kind", "feature", "--deps", "PM100")
    assert features.out == "Declared feature asset jpcp_features ← PM100\n"
    exa(*declare, "jpcp_model", "--kind", "model", "--deps", "jpcp_features")
    assert exa("assets", "graph").out == GRAPH

    exa.write(
        "functions.py",
        """\
        from examlops_dagster import asset

        @asset
        def jpcp_features(**upstream):
            print("features from", upstream)

        @asset
        def jpcp_model(jpcp_features):
            print("model from", jpcp_features)
        """,
    )
    with_functions = {"EXAMLOPS_MODULES": "functions"}
    assert exa("assets", "graph", **with_functions).out == GRAPH
    first = exa("assets", "materialize", "jpcp_model", **with_functions)
    assert first.out == FIRST
    assert "features from {'PM100': 1}" in first.err
    assert "model from 1" in first.err
    assert exa("assets", "materialize", "jpcp_model", **with_functions).out == AGAIN
    assert exa("assets", "status", **with_functions).out == FRESH
    assert exa("assets", "status").out == FRESH  # without the functions as well
    assert exa("assets", "source-changed", "PM100").out == MOVED
    assert exa("assets", "status", **with_functions).out == STALE
    kinds = {r["name"]: r["kind"] for r in exa("assets", "list", "--json", **with_functions).json}
    assert kinds == {"PM100": "dataset", "jpcp_features": "feature", "jpcp_model": "model"}
