import csv

import pytest
from needs import library

from examlops_dagster.demo import delivery

library("sklearn")


@pytest.fixture(autouse=True)
def _data(tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_DEMO_DATA", str(tmp_path / "data of the demo"))


def images_in(name):
    with delivery.delivered(name).open() as file:
        return [int(row["image"]) for row in csv.DictReader(file)]


def test_a_missing_file_is_made_as_first_delivered():
    assert len(images_in("digits")) == delivery.FIRST_DELIVERY


def test_a_delivery_contains_the_former_ones():
    first = images_in("digits")
    delivery.deliver("digits", delivery.ALL_IMAGES)
    later = images_in("digits")
    assert len(later) == delivery.ALL_IMAGES
    assert later[: len(first)] == first


def test_no_image_to_learn_from_is_held_out():
    delivery.deliver("digits", delivery.ALL_IMAGES)
    learnt, held_out = set(images_in("digits")), set(images_in("holdout"))
    assert not learnt & held_out
    assert len(learnt | held_out) == 1797


def test_the_same_delivery_is_the_same_file():
    first = delivery.deliver("digits", 100).read_bytes()
    assert delivery.deliver("digits", 100).read_bytes() == first


def test_the_folder_is_not_committed():
    delivery.deliver("digits", 1)
    assert (delivery.folder() / ".gitignore").read_text() == "*\n"
    assert {path.name for path in delivery.folder().iterdir()} == {".gitignore", "digits.csv"}


def test_the_command_says_what_it_delivered(capsys):
    delivery.main(["3"])
    assert capsys.readouterr().out.startswith("3 images delivered to ")
    assert len(images_in("digits")) == 3


@pytest.mark.parametrize("images", ["0", "1439", "many"])
def test_a_number_of_images_that_does_not_exist_is_wrong_usage(images):
    with pytest.raises(SystemExit) as ended:
        delivery.main([images])
    assert ended.value.code == 2
