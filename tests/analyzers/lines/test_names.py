import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelyze.analyzers.script.names import given_in, names_in, places_in, read_in


@pytest.mark.parametrize(
    ("text", "read", "assigned", "places"),
    [
        ("y = f(x, k=z)", {"f", "x", "z"}, {"y"}, {"y", "f", "x", "z"}),
        ("self.loss = model.head(x)", {"self", "model", "x"}, set(), {"self", "self.loss", "model", "model.head", "x"}),
        ("total += loss", {"loss"}, {"total"}, {"total", "loss"}),
        ("a, (b, *c) = rows", {"rows"}, {"a", "b", "c"}, {"a", "b", "c", "rows"}),
        ("out[i] = x", {"out", "i", "x"}, set(), {"out", "i", "x"}),
        ("n: int = k", {"k", "int"}, {"n"}, {"n", "k", "int"}),
        ("s = [r for r in rows if (q := r)]", {"r", "rows"}, {"s", "r", "q"}, {"s", "r", "q", "rows"}),
    ],
)
def test_names_that_a_statement_reads_and_gives_a_value(text, read, assigned, places) -> None:
    tree = ast.parse(text)
    assert (read_in(tree), given_in(tree)) == (read, assigned)
    assert places_in(tree) == places


NAMES = st.sampled_from("abcde")
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(" + ".join),
        inner.map(lambda one: f"({one}).part"),
        st.tuples(NAMES, inner).map(lambda pair: f"{pair[0]}({pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]})[{pair[1]}]"),
    ),
    max_leaves=8,
)


@given(NAMES, EXPRESSIONS)
def test_an_assignment_reads_all_names_of_its_value_and_gives_its_target_one(target: str, value: str) -> None:
    tree = ast.parse(f"{target} = {value}")
    assert read_in(tree) == names_in(ast.parse(value))
    assert given_in(tree) == {target}
    assert names_in(tree) == read_in(tree) | given_in(tree)
    assert names_in(tree) <= places_in(tree)
