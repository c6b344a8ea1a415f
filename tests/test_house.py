"""The rules of the house: who may import whom, how long a module may get, what a wheel holds, what is generated."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import grimp
import pytest

from tests.rule_files import RULE_FILES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tracelyze"
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = [
    path for folder in ("tracelyze", "tests", "scripts", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))
]

# What each part may import besides the standard library and itself. What only type checkers see is not imported.
WALLS = {
    "collectors": {
        "pyarrow", "tracelyze.schema", "tracelyze.redaction", "tracelyze.errors", "tracelyze.version",
        "psutil", "pynvml",  # where they are installed
    },
    "importing": {
        "pyarrow", "tracelyze.schema", "tracelyze.redaction", "tracelyze.errors", "tracelyze.version",
        "tracelyze.collectors.system.flight_recorder",
        "tracelyze.collectors.system.identity", "tracelyze.collectors.storage.stream",  # the collectors' storage
        "tracelyze.formatting", "tracelyze.reading",
        "aim", "swanlab",  # in programs of their own, that run where these are installed
    },
    "analyzers": {
        "numpy", "pandas", "pyarrow", "msgspec",
        "tracelyze.version", "tracelyze.schema", "tracelyze.comparison", "tracelyze.diagnosis", "tracelyze.errors",
        "tracelyze.formatting", "tracelyze.reading", "tracelyze.subprocesses", "tracelyze.suggestions",
    },
    "reports": {"tracelyze", "tracelyze.comparison", "tracelyze.diagnosis", "tracelyze.errors", "tracelyze.formatting"},
}  # fmt: skip
CONTRACTS = ("__init__", "schema", "comparison", "diagnosis", "redaction", "errors", "formatting")


def imports(path: Path) -> set[tuple[int, str]]:
    """Line and full name of everything that the module imports when it runs, inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "tracelyze":
            found |= {(node.lineno, f"tracelyze.{alias.name}") for alias in node.names if alias.name != "__version__"}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import by the full name, so that the walls can be seen"
            found.add((node.lineno, node.module or ""))
    return found


def breaches(path: Path, allowed: set[str], own: str | None) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name in sorted(imports(path))
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not (own and (name == own or name.startswith(f"{own}.")))
        and not (name in allowed or (not name.startswith("tracelyze") and name.partition(".")[0] in allowed))
    ]


@pytest.mark.parametrize("part", WALLS)
def test_walls_between_the_parts(part: str) -> None:
    paths = sorted((PACKAGE / part).rglob("*.py"))
    assert paths
    found = [breach for path in paths for breach in breaches(path, WALLS[part], f"tracelyze.{part}")]
    assert not found, f"tracelyze/{part} may import the standard library and {sorted(WALLS[part])} only"


def test_contracts_are_standard_library() -> None:
    # Standard library, or imported when one of its names is asked for.
    allowed = {
        "tracelyze.version",
        "tracelyze.diagnosis",
        "tracelyze.collectors.script",
        "tracelyze.api",
        "tracelyze.fleet.judging",
        "tracelyze.errors",
        "tracelyze.diagnosis.charts",
        "tracelyze.diagnosis.pictures",
        "tracelyze.diagnosis.places",
    }
    modules = [path for name in CONTRACTS for path in (PACKAGE / f"{name}.py", *(PACKAGE / name).glob("*.py"))]
    assert not [b for path in modules if path.exists() for b in breaches(path, allowed, "tracelyze.schema")]


def test_the_import_check_sees_what_it_must(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "import os, numpy.linalg\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n"
        "def f():\n    from tracelyze import reports, schema\n    from torch.nn import Module\n"
    )
    assert {name for _, name in imports(module)} == {
        "os",
        "typing",
        "numpy.linalg",
        "tracelyze.reports",
        "tracelyze.schema",
        "torch.nn",
    }


MOST_FILES = 15  # of a room


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """Those of the modules that a file imports, also inside functions and for type checkers alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
    return (found & modules) - {name_of(path)}


def circles(imports_of: dict[str, set[str]]) -> list[set[str]]:
    """The largest sets of more than one module in which each reaches each."""
    reached: dict[str, set[str]] = {}
    for start in imports_of:
        seen, waiting = set(), [start]
        while waiting:
            for name in imports_of[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        reached[start] = seen
    found = {frozenset(n for n in reached[name] if name in reached[n]) for name in imports_of if name in reached[name]}
    return [set(one) for one in found]


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {name_of(path) for path in MODULES}
    found = circles({name_of(path): imported_modules(path, modules) for path in MODULES})
    assert not [sorted(circle) for circle in found]


def test_the_search_for_circles_finds_them() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}) == [{"a", "b", "c"}]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_rooms_have_few_files() -> None:
    tests = [ROOT / "tests" / name for name in ("analyzers", "collectors")]
    programs = ROOT / "tests" / "collectors" / "programs"
    rooms = {path.parent for path in MODULES} | {path.parent for folder in tests for path in folder.rglob("*.py")}
    rooms -= {programs}
    counts = {str(room.relative_to(ROOT)): len(list(room.glob("*.py"))) for room in rooms}
    full = {room: count for room, count in counts.items() if count > MOST_FILES}
    assert not full, f"more than {MOST_FILES} files: split the room by subject, into folders of what belongs together"


def test_lines_of_the_guides_are_as_short_as_those_of_code() -> None:
    """Rows of tables aside, which cannot be broken."""
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        long = [number for number, line in enumerate(lines, 1) if len(line) > 120 and not line.startswith("|")]
        assert not long, f"{name}: more than 120 characters in lines {long}"


def test_what_one_rule_alone_uses_lies_in_its_room_and_nothing_else_does() -> None:
    """`rules/<family>/<rule>/` holds the rule and its parts; what several rules use lies in a room below them."""
    graph = grimp.build_graph("tracelyze", cache_dir=None)
    rooms = [".".join(path.parent.relative_to(ROOT).parts) for path in RULE_FILES if path.name == "rule.py"]
    for room in rooms:
        inside = {room, *graph.find_descendants(room)}
        users = {user for one in inside for user in graph.find_modules_that_directly_import(one)} - inside
        assert users <= {"tracelyze.analyzers.rules"}, f"{room}: others use it, so it belongs into a room below"
    shared = ["script", "evidence", "computed", "signatures"]
    modules = {one for name in shared for one in graph.find_descendants(f"tracelyze.analyzers.{name}")}
    users_of = {one: graph.find_modules_that_directly_import(one) for one in modules}
    alone = {
        one: next(iter(users))
        for one, users in users_of.items()
        if len({room_of(user) for user in users}) == 1 and ".rules." in next(iter(users))
    }
    assert not alone, "one rule alone uses these modules: they belong into its room"


def room_of(module: str) -> str:
    """A rule, with all that lies in its room; any other module by itself."""
    head, between, rest = module.partition(".analyzers.rules.")
    return head + between + ".".join(rest.split(".")[:2])


def test_the_map_of_the_analyzers_lists_them_as_the_import_contract_does() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = [one for one in contracts if one.get("containers") == ["tracelyze.analyzers"]]
    assert contract["exhaustive"]
    layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.split("| in `analyzers/` |")[1].split("\n\n")[0]
    rows = [re.findall(r"`(\w+)(?:/|\.py)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    assert rows == layers[::-1]


def test_what_can_follow_from_what_stands_in_one_table() -> None:
    """In tracelyze/analyzers/consequences, and nowhere else: `consequence_of` is for rules from outside."""
    assert [path for path in RULE_FILES if "consequence_of" in path.read_text(encoding="utf-8")] == []


def attributes(kind: ast.ClassDef) -> set[str]:
    """What its methods assign to self, and what it declares in its body: slots, fields, defaults."""
    nodes = list(ast.walk(kind))
    found = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    slots = [one for one in kind.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__slots__"]
    found |= {node.value for one in slots for node in ast.walk(one.value) if isinstance(node, ast.Constant)}
    if "Signal" not in [ast.unparse(base) for base in kind.bases]:  # else these are what a signal declares of itself
        declared = [one.target for one in kind.body if isinstance(one, ast.AnnAssign)]
        declared += [target for one in kind.body if isinstance(one, ast.Assign) for target in one.targets]
        found |= {ast.unparse(target) for target in declared} - {"__slots__"}
    return found


# A call is made at least once a step: its attributes have their defaults on the class, which costs nothing, and what
# says how it was made, watched and skipped is no object of its own, which would. Signal declares what all signals may.
WIDER = {"tracelyze/collectors/program/call.py: Call": 29, "tracelyze/collectors/signals/signal.py: Signal": 27}


def test_classes_of_the_collector_keep_to_fifteen_attributes() -> None:
    kinds = [
        (f"{path.relative_to(ROOT)}: {node.name}", attributes(node))
        for path in sorted((PACKAGE / "collectors").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert len(kinds) > 100
    assert {name: len(found) for name, found in kinds if len(found) > 15} == WIDER


def test_variables_of_functions_are_read_in_one_place() -> None:
    """Elsewhere Python before 3.13 would keep alive what the program deletes, or unset what it still uses."""
    reads = [
        str(path.relative_to(PACKAGE))
        for path in sorted((PACKAGE / "collectors").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "f_locals"
    ]
    assert reads == ["collectors/internals/local_variables.py"]


def test_modules_stay_small() -> None:
    lines = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert not {path: count for path, count in lines.items() if count > 400}
    rules = {path.relative_to(ROOT): lines[path.relative_to(ROOT)] - lines_of_imports(path) for path in RULE_FILES}
    assert len(rules) > 100
    assert not {path: count for path, count in rules.items() if count > 150}


def lines_of_imports(path: Path) -> int:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return sum(node.end_lineno - node.lineno + 1 for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def test_names_say_what_a_module_does() -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common", "manager", "base", "core"}
    assert not [path.relative_to(ROOT) for path in MODULES if path.stem in vague]


def test_nothing_is_left_to_do() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX)\b|except(?: Exception)?:\s*pass\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if unfinished.search(line)
    ]
    assert not found


def test_the_owners_choices_stay() -> None:
    """The owner fixed pandas, pyarrow and typer as what the command line and the analyzer are built on."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package in ("pandas", "pyarrow", "typer"):
        assert f'"{package}>=' in project, f"{package} is the project owner's choice: make it quick, do not replace it"


@pytest.mark.starts_programs
def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, tracelyze.schema, tracelyze.diagnosis, tracelyze.redaction\n"
        "import tracelyze.collectors.launching.launch\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & "
        "{'numpy', 'pandas', 'pyarrow', 'torch', 'typer', 'plotly', 'msgspec', 'rich'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.starts_programs
def test_diagnosing_needs_no_torch_and_no_plotly(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,loss\n1,2\n2,nan\n")
    program = (
        "import sys; sys.modules.update(torch=None, plotly=None)\n"
        "from pathlib import Path; from tracelyze import analyzers, reports\n"
        "from tracelyze.importing import recordings\n"
        "recordings.import_recording(Path('log.csv'), Path('run')); diagnosis = analyzers.diagnose('run')\n"
        "for name in ('r.html', 'r.md', 'r.json', 'r.sarif', 'r.txt'): reports.write(diagnosis, name)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "r.html").stat().st_size > 1000


def test_generated_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    make_docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_docs)
    pages = make_docs.pages()
    assert {f"rules/{path.name}" for path in (ROOT / "docs" / "rules").glob("*.md")} <= set(pages), "a page of no rule"
    for path in (ROOT / "docs" / "rules" / "examples").glob("*.json"):
        example = make_docs.example(path.stem)
        assert (ROOT / "tests" / "trainings" / example.training).exists(), f"{path}: python scripts/rule_examples.py"
        assert not example.figure or (path.parents[1] / "figures" / f"{path.stem}.svg").exists(), path
    for name, page in pages.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page, (
            f"docs/{name}: run python scripts/make_docs.py"
        )


@pytest.mark.starts_programs
def test_the_wheel_holds_the_whole_package(tmp_path: Path) -> None:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed: it is in the dependency group test")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tree = {str(p.relative_to(ROOT)) for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert {name for name in held if name.startswith("tracelyze/")} == tree
    assert "tracelyze/py.typed" in held
    assert sum(".dist-info/licenses/" in name for name in held) == 1 + len(
        list(PACKAGE.glob("reports/assets/vendor/*/LICENSE"))
    )


def test_the_contributors_guide_shows_a_rule_and_a_signal_of_the_package() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```\n<!-- end of file -->", guide, re.DOTALL)
    assert [path.split("/")[1:3] for path, _ in shown] == [["analyzers", "rules"], ["collectors", "signals"]]
    for path, text in shown:
        assert text == (ROOT / path).read_text(encoding="utf-8"), f"{path}: run python scripts/make_docs.py"
