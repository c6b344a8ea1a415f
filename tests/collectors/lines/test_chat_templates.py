"""Lines at which a chat template of the script ends what counts as a target."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import CodeType

from tracelyze.collectors.program.lines.settings import templates

SCRIPT = """\
TEMPLATE = (
    "{% generation %}{{ message }}"
    "{%- endgeneration -%}"
    "<|im_end|>"
)

def made():
    return '''{% generation %}
{{ message }}
{% endgeneration %}'''

def other():  # {% endgeneration %}
    return "{% endif %}"
"""


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    linecache.checkcache()
    module = compile(SCRIPT, str(path), "exec")
    functions = [one for one in module.co_consts if isinstance(one, CodeType)]
    assert 3 in templates.ends(module)
    assert [templates.ends(one) for one in functions][1] == [], "a comment is none"
    assert templates.ends(functions[0]) in ([], [10]), "a string of several lines has one line in some versions"
