"""Places in the user's program: its lines, what stands around them, and edits."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Location:
    """A line of the user's program. `source` is the text of the line as it ran."""

    file: str
    line: int
    function: str = ""
    source: str = ""

    @property
    def file_line(self) -> tuple[str, int]:
        """The line alone: two locations of the same line may differ in their function and text."""
        return self.file, self.line

    @property
    def file_function(self) -> tuple[str, str]:
        """The function that the line stands in."""
        return self.file, self.function

    def at(self, line: int, text: str) -> Location:
        """Another line of the same function: where a statement of this text begins."""
        return replace(self, line=line, source=text.strip().split("\n")[0].rstrip())


@dataclass(frozen=True)
class Excerpt:
    """Lines of the user's program around a location, as they ran: `first_line` is the number of the first of them."""

    first_line: int
    lines: list[str]


@dataclass(frozen=True)
class Diff:
    """An edit of the user's program that the rule knows to be right: a reader who applies it has a working script.

    From `line` of `file` on the `removed` lines stand in the program, and the `added` ones take their place. With
    nothing removed, the added lines go in front of `line`.
    """

    file: str
    line: int
    removed: list[str]
    added: list[str]
