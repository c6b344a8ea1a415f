"""Lines that give a model its mask or its labels are read off the functions that hold these names."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.lines.settings import given_masks


def collate(ids: Any, mask: Any) -> Any:
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": ids.clone(),
    }


def at_once(ids: Any, mask: Any) -> Any:
    return dict(input_ids=ids, attention_mask=mask, labels=ids)  # noqa: C408


def apart(ids: Any, mask: Any) -> Any:
    return dict(  # noqa: C408
        input_ids=ids,
        attention_mask=mask,
        labels=ids.clone(),  # as they are
    )


def loss(model: Any, batch: Any) -> Any:
    labels = batch["labels"]
    return model(batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss


def loss_of_several_lines(model: Any, batch: Any, labels: Any) -> Any:
    return model(
        input_ids=batch["input_ids"],
        labels=labels,
    ).loss


def to_text(row: Any) -> Any:
    return {"text": row["question"] + row["answer"]}


def of_text(row: Any) -> Any:
    return row["text"].split()


def below(function: Any, lines: list[int]) -> list[int]:
    return [line - function.__code__.co_firstlineno for line in lines]


def test_lines_that_give_masks_and_labels() -> None:
    assert below(collate, given_masks.lines(collate.__code__)) == [3]
    assert below(collate, given_masks.labels(collate.__code__)) == [4]
    assert below(at_once, given_masks.labels(at_once.__code__)) == [1]
    assert below(apart, given_masks.labels(apart.__code__)) == [4]
    assert given_masks.labels(loss.__code__) == [], "an argument of the model makes no labels"
    assert given_masks.labels(loss_of_several_lines.__code__) == [], "the same, on a line of its own"


def test_lines_that_give_a_text() -> None:
    assert below(to_text, given_masks.texts(to_text.__code__)) == [1]
    assert given_masks.texts(of_text.__code__) == [], "which takes one"
