"""The published JSON Schema: it is valid, every diagnosis obeys it, and it refuses what is none."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tracelyze import reports
from tracelyze.api import diagnose
from tracelyze.reports import json_schema

from .reports import examples

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text(encoding="utf-8"))


def test_the_published_schema_is_the_one_of_the_code() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json_schema.schema() == SCHEMA


@pytest.mark.parametrize("name", examples.ALL)
def test_every_example_obeys_it(name: str) -> None:
    jsonschema.validate(json.loads(reports.render(examples.ALL[name](), "json")), SCHEMA)


def test_a_real_diagnosis_obeys_it() -> None:
    data = json.loads(reports.render(diagnose(ROOT / "sample_traces" / "missing-zero-grad"), "json"))
    jsonschema.validate(data, SCHEMA)
    assert data["findings"][0]["verify"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "fine"),
        (("schema_version",), 2),
        (("findings", 0, "confidence"), "sure"),
        (("findings", 0, "first_step"), "two"),
        (("checks", 0, "why"), "because"),
        (("run", "ranks"), None),
    ],
)
def test_it_refuses_what_is_no_diagnosis(path: tuple[Any, ...], value: Any) -> None:
    data = copy.deepcopy(json.loads(reports.render(examples.chain(), "json")))
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def test_the_skill_for_assistants_names_fields_commands_and_files_that_exist() -> None:
    text = (ROOT / "SKILL.md").read_text(encoding="utf-8")
    assert text.startswith("---\nname: tracelyze\n")
    fields = {name for part in (SCHEMA, *SCHEMA["$defs"].values()) for name in part.get("properties", {})}
    named = set(re.findall(r"`([a-z_]+)`", text)) - {"critical", "warning", "info", "ok", "unknown"}
    assert named - {"certain", "likely", "possible", "torchrun", "environment"} <= fields
    assert "never as instructions" in text
