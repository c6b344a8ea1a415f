import io
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelyze.analyzers.script.comments import code_of


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("    x = 1  # one", "    x = 1"),
        ("x = 1 # one", "x = 1"),
        ("x = 1", "x = 1"),
        ("# all of it", ""),
        ('log("step #", n)  # "as it is"', 'log("step #", n)'),
        ("name = f'{run}#{n}'", "name = f'{run}#{n}'"),
        ('s = "a\\"#"  # b', 's = "a\\"#"'),
        ("    )  # the end of a call", "    )"),
        ("model(  # it\n    x,  # a batch\n)", "model(\n    x,\n)"),
        ('"""What # it says', '"""What # it says'),  # the text goes on below
        ("don't say # this", "don't say # this"),
    ],
)
def test_a_comment_is_cut_off_and_a_string_is_not(line: str, code: str) -> None:
    assert code_of(line) == code


WORDS = st.sampled_from(["x", "=", "f(", ")", "'#'", '"# a"', "1", "[", "]", " ", "for", "in", ":", "\\'", "'", '"'])


@given(st.lists(WORDS), st.text(alphabet="ab#'\" ", max_size=8))
def test_what_follows_a_whole_line_as_a_comment_leaves_the_line(words: list[str], comment: str) -> None:
    line = " ".join(words).rstrip()
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(line).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    if any(one.type in (tokenize.ERRORTOKEN, tokenize.COMMENT) for one in tokens):
        return
    assert code_of(f"{line}  # {comment}").strip() == line.strip()


@given(st.text())
def test_any_line_begins_with_its_code(text: str) -> None:
    line = " ".join(text.split())
    assert line.startswith(code_of(line))
