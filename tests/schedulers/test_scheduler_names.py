"""Names and ids: what is written into a job's name is found in it again."""

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examlops_dagster.schedulers import flux_text
from examlops_dagster.schedulers.base import is_ours, job_name, offset_in
from examlops_dagster.schedulers.options import ranges
from examlops_dagster.schedulers.slurm_rows import read_exit, read_id
from examlops_dagster.schedulers.slurm_text import read_submit, read_time

TOKENS = st.uuids().map(lambda one: one.hex)


@given(st.text(max_size=300), TOKENS, st.integers(0, 10**6))
def test_a_jobs_name_is_plain_and_known_again(asset, token, offset):
    name = job_name(asset, token)
    assert re.fullmatch(r"asset-[A-Za-z0-9_.-]*-[0-9a-f]{8}", name)
    assert len(name) <= 120
    assert offset_in(name, token) == 0
    assert offset_in(f"{name}.{offset}", token) == offset


@given(st.text(max_size=50), TOKENS)
def test_another_token_is_another_job(asset, token):
    other = uuid.UUID(int=uuid.UUID(hex=token).int ^ (1 << 127)).hex
    assert not is_ours(job_name(asset, token), other)
    assert not is_ours(job_name(asset, token) + "x", token)
    assert not is_ours("", token)


@given(st.sets(st.integers(0, 5000), min_size=1))
def test_the_tasks_of_an_array_come_back(tasks):
    job_id, parts, open_ended = read_id(f"7_[{ranges(tasks)}%4]")
    assert (job_id, open_ended) == ("7", False)
    assert {task for part in parts for task in part} == tasks


@pytest.mark.parametrize("text", ["", "x", "7_", "7_x", "7.batch", "7 8", "-7", "7_[1-2"])
def test_what_is_no_id_is_none(text):
    assert read_id(text) is None


@given(st.integers(0, 2**63))
def test_an_id_of_flux_is_the_same_in_every_form(number):
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    rest, text = number, "" if number else "1"
    while rest:
        rest, digit = divmod(rest, 58)
        text = letters[digit] + text
    for form in (f"ƒ{text}", f"f{text}\n", str(number), hex(number)):
        assert flux_text.read_id(form) == str(number)


@pytest.mark.parametrize("text", ["", "ƒ", "job", "f0O", "0x"])
def test_what_is_no_id_of_flux_is_none(text):
    assert flux_text.read_id(text) is None


@given(st.text(max_size=200))
def test_no_text_breaks_the_readers(text):
    for read in (read_id, read_exit, read_time, read_submit, flux_text.read_id):
        read(text)
