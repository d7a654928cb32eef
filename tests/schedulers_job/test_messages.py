import json

from hypothesis import given
from hypothesis import strategies as st

from examlops_dagster.schedulers.messages import MessageFile


def line(method, **params):
    return json.dumps({"__dagster_pipes_version": "0.1", "method": method, "params": params}) + "\n"


def said(messages):
    return [m.params.get("message", m.method) for m in messages]


def test_nothing_is_there_yet(tmp_path):
    reader = MessageFile(tmp_path / "messages.jsonl")
    assert reader.read() == []
    assert reader.finish() == []
    assert not reader.opened


def test_messages_come_once_and_closed_comes_last(tmp_path):
    path = tmp_path / "messages.jsonl"
    path.write_text(line("opened") + line("log", message="a") + line("closed"))
    reader = MessageFile(path)
    assert said(reader.read()) == ["opened", "a"]
    assert reader.opened
    with path.open("a") as file:
        file.write(line("log", message="after closed"))
    assert said(reader.read()) == ["after closed"]
    assert reader.read() == []
    assert said(reader.finish()) == ["closed"]


def test_a_torn_line_waits_for_its_end(tmp_path):
    path = tmp_path / "messages.jsonl"
    whole = line("log", message="größer ƒ").encode()
    reader = MessageFile(path)
    for n in range(len(whole)):  # every split, also inside a character
        path.write_bytes(whole[:n])
        assert reader.read() == []
    path.write_bytes(whole)
    assert said(reader.read()) == ["größer ƒ"]


def test_a_last_line_without_an_end_is_not_lost(tmp_path):
    path = tmp_path / "messages.jsonl"
    path.write_text(line("opened") + line("log", message="last").rstrip("\n"))
    reader = MessageFile(path)
    assert said(reader.read()) == ["opened"]
    assert said(reader.finish()) == ["last"]


def test_foreign_lines_are_skipped_with_one_warning(tmp_path, caplog):
    path = tmp_path / "messages.jsonl"
    path.write_bytes(b"Lmod: loading\n\xff\xfe\n[1]\n{}\n\n" + line("log", message="x").encode())
    assert said(MessageFile(path).read()) == ["x"]
    assert len(caplog.records) == 1
    assert "Lmod" in caplog.text


def test_another_file_under_the_name_is_another_attempt(tmp_path):
    path = tmp_path / "messages.jsonl"
    path.write_text(line("opened") + line("log", message="first") + line("closed"))
    reader = MessageFile(path)
    reader.read()
    assert reader.closed
    other = tmp_path / "other"
    other.write_text(line("opened") + line("log", message="second") + line("log", message="more"))
    other.replace(path)
    assert said(reader.read()) == ["opened", "second", "more"]
    assert reader.attempt == 1
    assert reader.closed is None


def test_a_shorter_file_is_another_attempt(tmp_path):
    path = tmp_path / "messages.jsonl"
    path.write_text(line("opened") + line("log", message="first"))
    reader = MessageFile(path)
    reader.read()
    path.write_text(line("opened"))
    assert said(reader.read()) == ["opened"]
    assert reader.attempt == 1


def test_a_second_opened_drops_what_came_before(tmp_path):
    path = tmp_path / "messages.jsonl"
    first = line("opened") + line("log", message="first") + line("closed")
    path.write_text(first + line("opened") + line("log", message="second"))
    reader = MessageFile(path)
    assert said(reader.read()) == ["opened", "second"]
    assert reader.attempt == 1
    assert said(reader.finish()) == []


def test_it_goes_on_from_an_offset(tmp_path):
    path = tmp_path / "messages.jsonl"
    start = line("opened") + line("log", message="first")
    path.write_text(start)
    first = MessageFile(path)
    first.read()
    with path.open("a") as file:
        file.write(line("log", message="second"))
    again = MessageFile(path, first.offset)
    assert said(again.read()) == ["second"]


def test_an_exception_is_told(tmp_path):
    path = tmp_path / "messages.jsonl"
    path.write_text(line("opened") + line("closed", exception={"message": "broke"}))
    reader = MessageFile(path)
    reader.read()
    assert reader.closed.exception == {"message": "broke"}


@given(st.lists(st.text(max_size=20), max_size=8), st.lists(st.integers(0, 600), max_size=6))
def test_however_it_is_cut_all_messages_come_in_order(tmp_path_factory, texts, cuts):
    path = tmp_path_factory.mktemp("m") / "messages.jsonl"
    whole = "".join(line("log", message=text) for text in texts).encode()
    reader = MessageFile(path)
    found = []
    for cut in [*sorted(cuts), len(whole)]:
        path.write_bytes(whole[:cut])
        found += reader.read()
    found += reader.finish()
    assert [m.params["message"] for m in found] == texts
