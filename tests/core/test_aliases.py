from examlops_dagster.core.aliases import Dataset, DatasetAlias


def test_a_dataset_is_known_by_its_uri_whatever_else_is_said_of_it():
    one, other = Dataset("s3://x", {"rows": 1}), Dataset("s3://x")
    assert one == other
    assert len({one, other}) == 1
    assert one.name == "s3://x"


def test_an_alias_is_no_dataset_of_that_name():
    assert DatasetAlias("x") != Dataset("x")
    assert {DatasetAlias("x"): 1}[DatasetAlias("x")] == 1
