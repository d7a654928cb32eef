"""What counts of what a job says, and what does not."""

import json

import job_functions as functions
import pytest
from job_requests import Scripted, job_request, leave_exit, status

from examlops_dagster.errors import AssetBuildError
from examlops_dagster.orchestrators.reported import Reported, exception_text
from examlops_dagster.schedulers.folder import JobFolder
from examlops_dagster.schedulers.messages import Message


def line(method, **params):
    return json.dumps({"__dagster_pipes_version": "0.1", "method": method, "params": params}) + "\n"


def materialization(**params):
    return Message("report_asset_materialization", params)


def test_metadata_keeps_the_type_that_the_program_named():
    reported = Reported("numbers")
    url = {"raw_value": "https://example.org", "type": "url"}
    metadata = {"loss": {"raw_value": 0.5, "type": "__infer__"}, "page": url}
    reported.hear(materialization(asset_key="numbers", metadata=metadata, data_version="v1"))
    assert reported.metadata == {"loss": 0.5, "page": url}
    assert reported.data_version == "v1"
    reported.clear()
    assert (reported.metadata, reported.data_version) == ({}, None)


def test_what_is_said_of_another_asset_is_told_and_left(caplog):
    reported = Reported("numbers", ["its", "others"])
    reported.hear(materialization(asset_key="nobodys", data_version="no"))
    assert "nobodys, which is not its own" in caplog.text
    caplog.clear()
    reported.hear(materialization(asset_key="others", data_version="no"))
    assert caplog.text == ""
    assert reported.data_version is None


def leave_messages(text):
    """Play a job that says something; the first one is on a node that fails."""

    def play(submission):
        folder = JobFolder(submission.folder)
        folder.messages.write_text(text.pop(0))
        if not text:
            leave_exit(submission)

    return play


def said(version, **metadata):
    body = line("report_asset_materialization", metadata=metadata, data_version=version)
    return line("opened") + body


def test_an_attempt_on_a_lost_node_says_nothing_in_the_end(mock):
    first = said("first", only_first=1)
    second = said(None, second=2) + line("closed")
    scripted = Scripted(status("RUNNING"), status("NODE_FAIL"), status("COMPLETED"))
    scripted.on_submit = leave_messages([first, second])
    heard = []
    request = job_request(functions.versions, heard=lambda method, params: heard.append(method))
    orchestrator = mock.another(scripted)
    result = orchestrator.run(request)
    assert result.metadata == {"second": 2}
    assert result.data_version is None
    assert len(scripted.submissions) == 2
    assert heard[-4:] == ["restarted", "opened", "report_asset_materialization", "closed"]


def test_a_job_that_was_started_again_counts_once(mock):
    text = said("first", only_first=1) + line("closed") + said("second", second=2) + line("closed")
    scripted = Scripted(status("COMPLETED"))
    scripted.on_submit = leave_messages([text])
    result = mock.another(scripted).run(job_request(functions.versions))
    assert (result.metadata, result.data_version) == ({"second": 2}, "second")


def test_the_exception_of_a_job_has_its_class_its_stack_and_its_cause(mock):
    with pytest.raises(AssetBuildError):
        mock.run(functions.fails_for_a_cause)
    method, params = mock.heard[-1]
    assert method == "closed"
    exception = params["exception"]
    assert exception["name"] == "OSError"
    assert exception["message"] == "OSError: this is why\n"
    assert "fails_for_a_cause" in "".join(exception["stack"])
    assert exception["cause"]["name"] == "KeyError"
    text = exception_text(exception)
    assert text.startswith("Traceback (most recent call last):")
    assert "KeyError: 'the cause'\n\nThe above exception was the direct cause" in text
    assert text.endswith("OSError: this is why")


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        (None, ""),
        ({"message": "no luck", "name": "my.Error", "stack": None}, "my.Error: no luck"),
        ({"name": "Error"}, "Error"),
        ({"message": "Error: why", "name": "my.Error"}, "Error: why"),
        ({"message": "b", "context": {"message": "a"}}, "a\n\nDuring handling of the above "
         "exception, another exception occurred:\n\nb"),
    ],
)  # fmt: skip
def test_an_exception_of_any_language_is_put_in_words(exception, text):
    assert exception_text(exception) == text
