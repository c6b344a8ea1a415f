"""JSON, SARIF, text, and the writing of files."""

from __future__ import annotations

import json
import math
import re
import stat
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tracelyze import reports
from tracelyze.diagnosis import Evidence, Excerpt, Location
from tracelyze.errors import InputError
from tracelyze.reports import escaping, markdown, sarif, text
from tracelyze.reports.html.findings.tracebacks import cards
from tracelyze.reports.wording import tracebacks
from tracelyze.reports.wording.plain_tracebacks import folded

from . import examples


def load(name: str, form: str) -> dict[str, object]:
    return dict(json.loads(reports.render(examples.ALL[name](), form)))


def test_json_is_the_contract() -> None:
    data = json.loads(reports.render(examples.chain(), "json"))
    assert list(data)[:6] == ["schema_version", "tracelyze_version", "run", "verdict", "verdict_reason", "findings"]
    assert set(data["run"]) >= {"path", "command", "started_at", "duration_s", "steps", "ranks", "exit"}
    contract = {
        "rule",
        "severity",
        "confidence",
        "title",
        "summary",
        "first_step",
        "last_step",
        "ranks",
        "evidence",
        "cost",
        "location",
        "fix",
        "caused_by",
    }
    assert all(set(finding) >= contract for finding in data["findings"])
    evidence = {"name", "value", "unit", "threshold", "source", "role", "of", "measure", "fires_at"}
    assert all(set(one) == evidence for one in data["findings"][0]["evidence"])
    assert all(set(check) >= {"rule", "status", "why", "reason"} for check in data["checks"])


def test_evidence_says_on_which_side_of_its_threshold_a_rule_fires() -> None:
    cases = {(0.4, 0.3): ">=", (1e-9, 1e-6): "", (math.nan, 1.0): "", ("fp16", "bf16"): "", (None, 1.0): ""}
    assert {case: Evidence("x", case[0], "", case[1]).fires_at for case in cases} == cases
    assert Evidence("x", 1e-9, "", 1e-6, role="most").fires_at == "<="


def test_json_holds_the_diagnosis_unchanged_where_json_can() -> None:
    diagnosis = examples.warning()
    assert json.loads(reports.render(diagnosis, "json")) == diagnosis.to_dict()


def test_json_names_numbers_that_are_evidence_and_leaves_gaps_in_charts() -> None:
    findings = json.loads(reports.render(examples.chain(), "json"))["findings"]
    assert findings[1]["evidence"][0]["value"] == "Infinity"
    assert findings[3]["evidence"][0]["value"] == "NaN"
    assert findings[3]["charts"][0]["lines"][0]["y"][-1] is None
    below = replace(examples.chain().findings[0], evidence=[Evidence("x", -math.inf, "", math.nan)])
    data = json.loads(reports.render(replace(examples.chain(), findings=[below]), "json"))
    assert (data["findings"][0]["evidence"][0]["value"], data["findings"][0]["evidence"][0]["threshold"]) == (
        "-Infinity",
        "NaN",
    )


def test_json_has_a_line_a_value() -> None:
    lines = reports.render(examples.chain(), "json").splitlines()
    assert '  "verdict": "critical",' in lines
    assert any(line.strip().startswith('"x": [1.0, 2.0, 3.0') for line in lines)


def test_sarif_structure() -> None:
    log = json.loads(reports.render(examples.chain(), "sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules) == 40
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
    assert [result["ruleId"] for result in run["results"]] == [finding.rule for finding in examples.chain().findings]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        assert result["message"]["text"]
        assert result["partialFingerprints"]["tracelyze/v1"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
        assert place["physicalLocation"]["region"]["startLine"] == 41  # the cause's line, for the consequences too
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1  # what does not apply is no notification


@pytest.mark.parametrize("name", examples.ALL)
def test_sarif_of_every_example_has_valid_addresses(name: str) -> None:
    log = json.loads(reports.render(examples.ALL[name](), "sarif"))
    for result in log["runs"][0]["results"]:
        for place in result.get("locations", []):
            uri = place["physicalLocation"]["artifactLocation"]["uri"]
            assert uri.isascii()
            assert not set(uri) & set(' <>"{}|\\^`')
            assert urlsplit(uri).scheme in ("", "file")


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("src/my train.py", "src/my%20train.py"),
        ("/home/me/train.py", "file:///home/me/train.py"),
        ("C:\\code\\train.py", "file:///C:/code/train.py"),
    ],
)
def test_sarif_addresses_of_files(file: str, uri: str) -> None:
    diagnosis = examples.warning()
    finding = replace(diagnosis.findings[0], location=Location(file, 3))
    log = json.loads(reports.render(replace(diagnosis, findings=[finding]), "sarif"))
    assert log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_sarif_points_at_the_script_where_no_line_is_known() -> None:
    diagnosis = examples.warning()
    for location in (None, Location("<string>", 1)):
        finding = replace(diagnosis.findings[0], location=location)
        log = json.loads(reports.render(replace(diagnosis, findings=[finding]), "sarif"))
        (place,) = log["runs"][0]["results"][0]["locations"]
        assert place["physicalLocation"] == {"artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"}}


def test_fingerprints_follow_the_fault_not_the_numbers() -> None:
    finding = examples.chain().findings[0]
    assert finding.location is not None
    moved = replace(finding, first_step=77, evidence=[], location=replace(finding.location, line=99))
    other = replace(finding, location=replace(finding.location, source="total.backward()"))
    assert sarif.fingerprint(moved) == sarif.fingerprint(finding)
    assert sarif.fingerprint(other) != sarif.fingerprint(finding)
    assert sarif.fingerprint(replace(finding, rule="x")) != sarif.fingerprint(finding)


@pytest.mark.parametrize("width", [40, 88, 200])
@pytest.mark.parametrize("name", ["chain", "warning", "healthy", "empty", "many"])
def test_text_keeps_its_width(name: str, width: int) -> None:
    lines = text.render(examples.ALL[name](), width=width).splitlines()
    assert max(len(line) for line in lines if not re.match(r" {4}\S", line)) <= width, "but for code to copy"


def test_text_is_plain_unless_colour_is_asked_for() -> None:
    assert "\x1b" not in text.render(examples.chain())
    assert "\x1b[1;31m" in text.render(examples.chain(), color=True)


@pytest.mark.parametrize(
    ("environment", "terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_when_to_colour(environment: dict[str, str], terminal: bool, wanted: bool) -> None:
    assert text.color_wanted(environment, terminal) is wanted


def test_markdown_of_a_huge_diagnosis_fits_a_comment() -> None:
    findings = [
        replace(one, summary="word " * 2000, rule=f"rule-{n}") for n, one in enumerate(examples.many().findings * 4)
    ]
    comment = reports.render(replace(examples.many(), findings=findings), "markdown")
    assert len(comment.encode()) < 60_000
    assert "the HTML report holds them" in comment


@pytest.mark.parametrize(("suffix", "form"), reports.FORMATS.items())
def test_write_takes_the_format_from_the_suffix(tmp_path: Path, suffix: str, form: str) -> None:
    written = reports.write(examples.chain(), tmp_path / f"ticket{suffix}")
    assert written.read_text(encoding="utf-8") == reports.render(examples.chain(), form)
    assert reports.format_of("x.SARIF.json") == "sarif"


def test_write_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "ticket.txt"
    target.write_text("old")
    reports.write(examples.chain(), str(target))
    assert list(tmp_path.iterdir()) == [target]
    assert "Root cause" in target.read_text(encoding="utf-8")
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_write_that_fails_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "ticket.txt"
    target.write_text("old")

    def full(self: Path, _: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        reports.write(examples.chain(), target)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ticket.pdf", "'.pdf'"),
        ("ticket", "without a suffix"),
        ("nowhere/ticket.html", "does not exist"),
        ("folder.html", "it is a folder"),
        ("file.txt/ticket.html", "not a folder|Not a directory"),
    ],
)
def test_errors_are_one_line_that_names_file_reason_and_remedy(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file.txt").touch()
    with pytest.raises(InputError, match=said) as caught:
        reports.write(examples.empty(), tmp_path / name)
    assert "\n" not in str(caught.value)
    assert Path(name).name in str(caught.value)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file.txt", "folder.html"]


def test_unknown_format_is_an_input_error() -> None:
    with pytest.raises(InputError, match="html, markdown, json, sarif, junit, text"):
        reports.render(examples.empty(), "pdf")


@pytest.mark.parametrize("name", examples.ALL)
def test_a_comment_has_25_lines_before_its_fold(name: str) -> None:
    comment = reports.render(examples.ALL[name](), "markdown")
    brief, fold, _ = comment.partition("<details>")
    assert fold or not examples.ALL[name]().checks
    assert brief.count("\n") <= markdown.LINES
    assert comment.count("<details>") == comment.count("</details>") <= 1
    full = reports.render(examples.ALL[name](), "markdown", full=True)
    assert "<details>" not in full
    assert full.startswith(brief.rstrip("\n"))


def test_code_is_never_cut() -> None:
    long = "\n".join(f"    line_{number} = {'x' * 300}" for number in range(40))
    finding = replace(examples.chain().findings[0], fix_code=long, diff=None)
    diagnosis = replace(examples.chain(), findings=[finding])
    for form in ("markdown", "html"):
        report = reports.render(diagnosis, form)
        assert all(f"line_{number} = {'x' * 300}" in report for number in range(40))


def test_a_traceback_keeps_its_end_and_its_own_frames() -> None:
    own = '  File "train.py", line 26, in encode\n    return table[word]\n'
    library = '  File "/venv/lib/python3.11/site-packages/torch/x.py", line 1, in f\n    y()\n'
    text = f"Traceback (most recent call last):\n{own}{library * 50}KeyError: 'tok100'"
    evidence = [*examples.chain().findings[0].evidence, Evidence("traceback", text)]
    finding = replace(examples.chain().findings[0], evidence=evidence)
    diagnosis = replace(examples.chain(), findings=[finding])
    for form in ("markdown", "text"):
        report = reports.render(diagnosis, form)
        assert "    return table[word]" in report
        assert "(50 frames of libraries)" in report
        assert "KeyError: 'tok100'" in report
    lines = folded(text.replace("KeyError: 'tok100'", "KeyError: " + "\n".join(map(str, range(99)))), 20)
    assert lines[-1] == "98"
    assert any("lines left out" in line for line in lines)


def test_sarif_tells_consequences_as_notes_beside_their_cause() -> None:
    diagnosis = replace(examples.chain(), docs_url="https://docs.example/tracelyze/")
    (run,) = json.loads(reports.render(diagnosis, "sarif"))["runs"]
    root, *others = run["results"]
    assert root["level"] == "error"
    assert {result["level"] for result in others} == {"note"}
    for result in others:
        (related,) = result["relatedLocations"]
        assert related["message"]["text"].startswith("Caused by ")
        assert "repair that first" in result["message"]["text"]
    titles = {check.rule: check.title for check in diagnosis.checks}
    for rule in run["tool"]["driver"]["rules"]:
        assert rule["shortDescription"]["text"] == titles[rule["id"]]
        assert rule["helpUri"] == f"https://docs.example/tracelyze/rules/{rule['id']}"
    plain = json.loads(reports.render(examples.chain(), "sarif"))["runs"][0]["tool"]["driver"]["rules"]
    assert not any("helpUri" in rule for rule in plain)


@pytest.mark.parametrize("form", ["html", "markdown", "text", "junit"])
def test_the_line_to_change_stands_beside_the_line_where_the_harm_was_seen(form: str) -> None:
    finding = examples.chain().findings[0]
    apart = replace(finding, location=Location("model.py", 12, "build", "Adam(x)"), seen_at=finding.location)
    shown = reports.render(replace(examples.chain(), findings=[apart]), form)
    assert "Change at" in shown
    assert "model.py:12" in shown
    assert "Seen at" in shown
    assert "train.py:41" in shown
    assert "Change at" not in reports.render(examples.chain(), form)


def test_sarif_relates_the_line_where_the_harm_was_seen() -> None:
    finding = examples.chain().findings[0]
    apart = replace(finding, location=Location("model.py", 12), seen_at=finding.location)
    log = json.loads(reports.render(replace(examples.chain(), findings=[apart]), "sarif"))
    (result,) = log["runs"][0]["results"]
    (place,), (seen,) = result["locations"], result["relatedLocations"]
    assert place["physicalLocation"]["region"]["startLine"] == 12
    assert seen["physicalLocation"]["region"]["startLine"] == 41
    assert (seen["id"], seen["message"]["text"]) == (1, "The harm was seen here.")


@pytest.mark.parametrize("name", examples.ALL)
def test_junit_has_a_case_for_every_check(name: str) -> None:
    diagnosis = examples.ALL[name]()
    suites = ElementTree.fromstring(reports.render(diagnosis, "junit").encode())
    cases = suites.findall("testsuite/testcase")
    names = [case.get("name") for case in cases if case.get("name") != "verdict"]
    assert names == [escaping.one_line(check.rule) for check in diagnosis.checks]
    count = {tag: len(suites.findall(f"testsuite/testcase/{tag}")) for tag in ("failure", "error", "skipped")}
    suite = suites.find("testsuite")
    assert suite is not None
    assert suite.get("failures") == str(count["failure"])
    assert (suite.get("errors"), suite.get("skipped")) == (str(count["error"]), str(count["skipped"]))
    assert (count["error"] == 1) == (diagnosis.verdict == "unknown")
    grave = {finding.rule for finding in diagnosis.findings if finding.severity != "info"}
    assert count["failure"] == sum(check.rule in grave for check in diagnosis.checks)


@pytest.mark.parametrize(("last", "said"), [(None, ""), (7, ""), (9, " (steps 7 to 9)")])
def test_the_terminal_names_a_step_once(last: int | None, said: str) -> None:
    diagnosis = examples.warning()
    finding = replace(diagnosis.findings[0], first_step=7, last_step=last, first_second=None, first_at=None, ranks=[])
    lines = text.render(replace(diagnosis, findings=[finding])).splitlines()
    assert next(line.split("Since")[1].strip() for line in lines if line.startswith("  Since")) == f"step 7{said}"


def test_a_long_line_of_code_goes_on_below_its_own_code() -> None:
    finding = examples.chain().findings[0]
    line = "    loss = criterion(model(images, lengths, masks), targets.reshape(-1), weights.reshape(-1), reduction)"
    excerpt = Excerpt(30, ["for batch in loader:", line, "    loss.backward()"])
    location = Location("train.py", 31, "train", line.strip())
    shown = replace(examples.chain(), findings=[replace(finding, location=location, excerpt=excerpt, diff=None)])
    lines = reports.render(shown, "text").splitlines()
    at = next(number for number, one in enumerate(lines) if "> " in one and "loss = criterion" in one)
    code = lines[at].index("loss")
    assert lines[at + 1].index(lines[at + 1].strip()[0]) == code + 4
    assert max(len(one) for one in lines[at : at + 2]) <= 80


IN_WORKER = """Traceback (most recent call last):
  File "/home/x/train.py", line 12, in main
    for x, y in loader:
                ^^^^^^
  File "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 700, in __next__
    data = self._next_data()
KeyError: Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/x/rows.py", line 8, in __getitem__
    return row["x"], row["y"]
                     ~~~^^^^^
KeyError: 'y'
"""


def test_the_traceback_of_a_loading_worker_is_one_of_its_own() -> None:
    """Not a part of the message: its library frames are folded, and the line of the dataset stands out."""
    outer, inner = tracebacks.parse(IN_WORKER)
    assert outer.error == ["KeyError: Caught KeyError in DataLoader worker process 0."]
    assert [frame.own for frame in inner.frames] == [False, True]
    assert inner.error == ["KeyError: 'y'"]
    page = cards(IN_WORKER, "")
    assert 'class="frame own"><span>/home/x/rows.py, line 8' in page.replace("\n", "")
    assert "fetcher.fetch" in page.split("<details>")[2], "folded"
    assert "^^^" not in page, "a marker points nowhere once its line is wrapped"
