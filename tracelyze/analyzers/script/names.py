"""The names in a part of the script's code; those of attributes are none: `self.x` names `self`."""

from __future__ import annotations

import ast


def names_in(node: ast.AST) -> set[str]:
    """All names that stand in it."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def read_in(node: ast.AST) -> set[str]:
    """The names whose values it reads; those that `+=` changes are none."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def given_in(node: ast.AST) -> set[str]:
    """The names that it gives a value: of a comprehension, or by `:=`, too."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def places_in(node: ast.AST) -> set[str]:
    """The names in it and the attributes of these, as they are written: of `self.x` both `self` and `self.x`."""
    return {ast.unparse(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)}
