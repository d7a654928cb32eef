"""The demo's assets, written as a user would: plain functions, and what each is made from.

::

    digits ──→ digits_features ──→ digits_model ──→ digits_report
    holdout ─→ holdout_features ───┴────────────────┘

Others deliver the two files of images, so they are sources; ``exa assets source-changed digits``
says that new ones came. Then ``digits_features`` and what is made from it are stale; what comes
from ``holdout`` is not, and is not built again.

Heavy libraries are imported where they are used: ``exa assets status`` needs none of them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from examlops_dagster import AssetOutput, Dataset, asset
from examlops_dagster.demo.delivery import delivered

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.ensemble import RandomForestClassifier

DIGITS = Dataset("digits", extra={"description": "Images to learn from, delivered bit by bit"})
HOLDOUT = Dataset("holdout", extra={"description": "Images held out, to test every model on"})


@asset(kind="feature", deps=[DIGITS], group="digits")
def digits_features() -> pd.DataFrame:
    """Pixels, and the ink in each row and column, of the images to learn from."""
    return _features("digits")


@asset(kind="feature", deps=[HOLDOUT], group="digits")
def holdout_features() -> pd.DataFrame:
    """Pixels, and the ink in each row and column, of the images held out."""
    return _features("holdout")


@asset(kind="model", inputs={"train": digits_features, "test": holdout_features}, group="digits")
def digits_model(train: pd.DataFrame, test: pd.DataFrame) -> AssetOutput:
    """Train a random forest to read digits, and test it on images that it never saw."""
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415 - heavy

    model = RandomForestClassifier(n_estimators=100, random_state=0)
    model.fit(train.drop(columns="label"), train["label"])
    right = model.predict(test.drop(columns="label")) == test["label"]
    return AssetOutput(
        model,
        metadata={
            "accuracy": round(float(right.mean()), 4),
            "n_train": len(train),
            "n_test": len(test),
        },
    )


@asset(kind="report", inputs={"model": digits_model, "test": holdout_features}, group="digits")
def digits_report(model: RandomForestClassifier, test: pd.DataFrame) -> dict[str, Any]:
    """Say how well each digit is read, and which two are taken for one another most."""
    read = model.predict(test.drop(columns="label"))
    pairs = [(int(true), int(guess)) for true, guess in zip(test["label"], read, strict=True)]
    images = Counter(true for true, _ in pairs)
    right = Counter(true for true, guess in pairs if true == guess)
    mistakes = Counter(pair for pair in pairs if pair[0] != pair[1]).most_common(1)
    return {
        "accuracy": round(sum(right.values()) / len(pairs), 4),
        "recall": {str(digit): round(right[digit] / images[digit], 4) for digit in sorted(images)},
        "most_mistaken": [
            {"digit": true, "read_as": guess, "times": times} for (true, guess), times in mistakes
        ],
    }


def _features(name: str) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - heavy

    images = pd.read_csv(delivered(name)).drop(columns="image")
    ink: dict[str, Any] = {}
    for n in range(8):
        ink[f"row_{n}"] = images[[f"pixel_{8 * n + m}" for m in range(8)]].sum(axis=1)
        ink[f"column_{n}"] = images[[f"pixel_{8 * m + n}" for m in range(8)]].sum(axis=1)
    return images.assign(**ink)
