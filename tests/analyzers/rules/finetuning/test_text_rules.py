"""Rules about how rows of ids begin and end and which of their targets count: faults, and what looks the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tracelyze.analyzers.rules.finetuning.packing_without_boundaries import packed_rows
from tracelyze.analyzers.script.editing import unknown_names
from tracelyze.testing import SITES

EOS, BOS, PROMPT = "eos-never-target", "doubled-bos", "prompt-in-loss"
PACKED = "packing-without-boundaries"
RULES = (EOS, BOS, PROMPT, PACKED)
ROW = {
    "function": "cross_entropy", "site": 1, "training": True, "reduction": "mean", "input_shape": "256x90",
    "target_shape": "256", "value": 2.0, "ids_compared": 60.0, "ids_equal": 0.0, "ids_ahead": 0.0, "ids_next": 1.0,
    "end_id": 0.0, "end_rows": 0.9, "end_least": 0.0, "end_counts": 0.0, "stop_id": 2.0, "stop_same": 1.0,
    "stop_inside": 0.0, "stop_after": math.nan, "behind_id": 0.0, "behind_rows": 1.0, "behind_counts": 0.0,
    "targets_least": 5.0, "targets_most": 14.0, "begin_id": 1.0, "begin_twice": 0.0, "prefix": 1.0,
    "prefix_share": 0.0, "separator": -1.0, "separator_share": 0.0, "parts": 0.0, "crosses": math.nan,
    "answers": 1.0, "answers_cut": 0.0,
}  # fmt: skip
UNTAUGHT = {"behind_id": 2.0, "end_id": 2.0, "end_rows": 1.0, "end_least": 1.0, "stop_same": 0.2}
FULL_STOP = UNTAUGHT | {"stop_same": 1.0, "stop_id": 7.0, "stop_inside": 30.0, "stop_after": 0.3}
SEPARATED = {"separator": 7.0, "separator_share": 0.6}
JOINED = {"parts": 3.0, "crosses": 0.4}


def process(
    make: Any,
    count: int = 8,
    end_symbol: int | None = None,
    begin: int | None = None,
    sites: Sequence[dict[str, Any]] = (),
    **columns: Any,
) -> Any:
    """Rows of answers with an end symbol that counts, and padding with an id of its own; changed as given."""
    rows = [
        {**ROW, "step": index, **{k: v[index] if isinstance(v, list) else v for k, v in columns.items()}}
        for index in range(count)
    ]
    models = [{"model": 0, "name": "Causal", "end_symbol": end_symbol, "begin_symbol": begin}]
    return make.process(more={"loss_calls": rows}, models=models, sites=[*SITES, *sites])


def test_padding_with_an_id_of_its_own_is_not_what_masks_the_end(make) -> None:
    """The labels stop short of the end: neither a new padding token nor the attention mask is the remedy."""
    apart = UNTAUGHT | {"end_id": 0.0, "end_least": 0.0, "end_symbol": 2}
    finding = make.check(EOS, process(make, **apart))[2]
    assert "Padding has an id of its own, 0" in finding.summary
    assert "one position too early" in finding.fix
    assert finding.fix_code.startswith("labels = labels.masked_fill(input_ids == 0, -100)")
    shared = make.check(EOS, process(make, **UNTAUGHT))[2]
    assert "Usually the padding token is also the end-of-text token" in shared.summary
    assert "attention_mask" in shared.fix


@pytest.mark.parametrize(
    ("made", "copied", "code"),
    [
        (
            "labels = [IGNORE] * len(ids)",
            "labels[start:end] = ids[start:end]",
            "labels[start:end + 1] = ids[start:end + 1]",
        ),
        (
            "labels = torch.full_like(ids, -100)",
            "labels[i, at : stop - 1] = ids[i, at : stop - 1]",
            "labels[i, at : stop] = ids[i, at : stop]",
        ),
        ("labels = [-100] * len(ids)", "labels[len(asked):] = answer", ""),  # up to the end of what is given
        ("labels = [-100] * len(ids)", "labels[at:-1] = ids[at:-1]", ""),
        ("labels = ids.clone()", "labels[at:stop] = ids[at:stop]", "masked_fill(input_ids == 0, -100)"),
    ],
)
def test_spans_that_are_copied_into_labels_which_begin_as_ignored(make, made: str, copied: str, code: str) -> None:
    """Nothing is masked there: an example that masks the padding alone would leave the labels as they are."""
    lines = [f"    {made}", "    for start, end in spans(ids):", f"        {copied}"]
    site = {"site": 60, "role": "labels", "file": "a.py", "line": 63, "function": "collate", "source": made}
    site |= {"excerpt": "\n".join(lines), "excerpt_line": 63}
    apart = UNTAUGHT | {"end_id": 0.0, "end_least": 0.0, "end_symbol": 2}
    finding = make.check(EOS, process(make, **apart, sites=[site]))[2]
    assert code in (finding.fix_code or "")
    assert bool(finding.fix_code) == bool(code)
    named = "+ 1" in code or "stop]" in code
    assert finding.location.line == (65 if named else 63)
    assert ("what line 65 copies" in finding.summary) == named
    assert ("leaves the padding behind a text out" in finding.summary) == ("masked_fill" in code)


def test_a_template_whose_generation_block_ends_too_early(make) -> None:
    """It marks turns: that all answers have one length does not mean that the script wants it so."""
    alike = UNTAUGHT | {"end_id": 0.0, "end_least": 0.0, "end_symbol": 2, "targets_least": 7.0, "targets_most": 7.0}
    asked = {"site": 30, "role": "setting", "file": "a.py", "line": 83, "function": "main"}
    asked |= {"source": "assistant_only_loss=True, packing=False,"}
    lines = ['"{% generation %}"', "\"{{ message['content'] }}\"", '"{% endgeneration %}"', "\"{{ ' <|im_end|>' }}\""]
    block = {"site": 31, "role": "template-end", "file": "a.py", "line": 28, "function": "<module>", "source": lines[2]}
    block |= {"excerpt": "\n".join(lines), "excerpt_line": 26}
    status, _, finding = make.check(EOS, process(make, **alike, sites=[asked, block]))
    assert (status, finding.confidence, finding.location.line) == ("fired", "certain", 28)
    assert "the chat template says what counts" in finding.summary
    assert finding.fix_code.endswith(f"{lines[3]}\n{lines[2]}")
    elsewhere = make.check(EOS, process(make, **alike, sites=[asked]))[2]
    assert (elsewhere.location.line, "your end symbol" in elsewhere.fix_code) == (83, True)
    assert make.check(EOS, process(make, **alike))[0] == "passed", "answers of one length need no end"
    off = asked | {"source": "assistant_only_loss=False, packing=False,"}
    assert make.check(EOS, process(make, **alike, sites=[off, block]))[0] == "passed"
    taught = alike | {"stop_id": 2.0, "stop_same": 1.0, "behind_counts": 1.0}
    assert make.check(EOS, process(make, **taught, sites=[asked, block]))[0] == "passed", "the end is within the block"


@pytest.mark.parametrize(
    ("rule", "columns", "severity", "confidence"),
    [
        (EOS, UNTAUGHT, "warning", "likely"),
        (EOS, UNTAUGHT | {"end_symbol": 2}, "warning", "certain"),
        (EOS, UNTAUGHT | {"end_symbol": 2, "end_least": 9.0}, "warning", "certain"),  # filled up to one length
        (EOS, UNTAUGHT | {"stop_same": 1.0, "stop_id": [30.0 + n for n in range(8)]}, "warning", "likely"),  # one row
        (EOS, FULL_STOP, "warning", "likely"),
        (EOS, FULL_STOP | {"end_symbol": 2}, "warning", "likely"),
        (EOS, FULL_STOP | {"end_symbol": 2, "end_least": 9.0}, "warning", "likely"),
        (EOS, FULL_STOP | {"end_symbol": 2, "stop_inside": 8.0, "stop_after": 1.0}, "warning", "likely"),  # ". [/INST]"
        (EOS, FULL_STOP | {"end_id": 0.0, "end_least": 0.0}, "warning", "likely"),  # masked before the padding
        (
            EOS,
            FULL_STOP | {"stop_inside": 0.0, "stop_after": math.nan, "stop_same": 0.7},
            "info",
            "possible",
        ),  # perhaps
        (EOS, FULL_STOP | {"stop_inside": 0.0, "end_symbol": 2}, "warning", "likely"),
        (BOS, {"begin_twice": 1.0}, "warning", "likely"),
        (BOS, {"begin_twice": 1.0, "begin": 1}, "warning", "certain"),
        (PROMPT, {"prefix": 12.0, "prefix_share": 0.3}, "info", "likely"),
        (PROMPT, SEPARATED, "info", "possible"),  # plain text may hold a word once in each row
        (PACKED, JOINED, "info", "likely"),
    ],
)
def test_the_fault_is_found(make: Any, rule: str, columns: dict[str, Any], severity: str, confidence: str) -> None:
    status, reason, finding = make.check(rule, process(make, **columns))
    assert status == "fired", reason
    assert (finding.severity, finding.confidence, finding.location.line) == (severity, confidence, 41)
    assert finding.cost is None, "all but the end, or the beginning, of a text is learned"


RENDERED = 'return {"text": tok.apply_chat_template(row["turns"], tokenize=False)}'
PROMPTED = "text = tok.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)"
BY_ID = 'ids = [tok.bos_token_id] + tok(row["q"])["input_ids"] + answer'
TAKEN_OFF = 'return {"text": tok.apply_chat_template(row["turns"], tokenize=False).removeprefix(tok.bos_token)}'


@pytest.mark.parametrize(
    ("lines", "number", "example"),
    [
        ([RENDERED], 60, TAKEN_OFF),
        ([RENDERED, PROMPTED], 60, TAKEN_OFF),
        ([RENDERED, "ids = tok.apply_chat_template(turns, add_generation_prompt=True)"], 60, TAKEN_OFF),
        (['text = f"{self.tok.bos_token}{question}"', 'tok.bos_token = "<s>"'], 60, "add_special_tokens=False"),
        ([RENDERED, "other = tok.apply_chat_template(pairs, tokenize=False)"], 41, "add_special_tokens=False"),
        (["ids = tok.apply_chat_template(turns)"], 41, "add_special_tokens=False"),
        (
            [BY_ID, "model = Net(Config(bos_token_id=tok.bos_token_id))"],
            60,
            'ids = tok(row["q"])["input_ids"] + answer',
        ),
        (["ids = [tok.bos_token_id, *tok(text).input_ids]"], 60, "add_special_tokens=False"),
    ],
)
def test_the_line_that_writes_the_begin_symbol(make: Any, lines: list[str], number: int, example: str) -> None:
    text = {"role": "begin-text", "file": "a.py", "function": "render"}
    sites = [
        text | {"site": at, "line": at, "source": line, "excerpt": f"    {line}", "excerpt_line": at}
        for at, line in zip((60, 64), lines, strict=False)
    ]
    finding = make.check(BOS, process(make, begin_twice=1.0, sites=sites))[2]
    assert (finding.location.line, example in finding.fix_code) == (number, True)
    assert ("an id that the script puts in front" in finding.summary) == any("[tok.bos" in line for line in lines)


def test_the_call_that_tokenizes_a_rendered_text_is_edited_where_it_is_the_only_one(make: Any) -> None:
    rendered = "text = tok.apply_chat_template(turns, tokenize=False)"
    site = {"site": 60, "role": "begin-text", "file": "a.py", "line": 60, "function": "encode", "source": rendered}
    calls = 'ids = tok(text)["input_ids"]'
    for lines, edited in (([calls], True), ([calls, calls], False), (["ids = tok(other)"], False)):
        text = "\n".join(f"    {line}" for line in (rendered, *lines))
        made = process(make, begin_twice=1.0, sites=[site | {"excerpt": text, "excerpt_line": 60}])
        finding = make.check(BOS, made)[2]
        assert (finding.location.line, finding.fix.endswith("in line 61.")) == ((61, True) if edited else (60, False))
        assert ('ids = tok(text, add_special_tokens=False)["input_ids"]' in finding.fix_code) is edited


def test_where_a_begin_symbol_comes_from_is_said_only_if_its_line_is_known(make: Any) -> None:
    known = {"site": 60, "role": "begin-text", "file": "a.py", "line": 60, "function": "render", "source": RENDERED}
    assert "and by the tokenizer" in make.check(BOS, process(make, begin_twice=1.0, sites=[known]))[2].summary
    summary = make.check(BOS, process(make, begin_twice=1.0))[2].summary
    assert "of which one is often a template" in summary
    assert "by the tokenizer" not in summary


COLUMN = "start = torch.full((len(ids), 1), tok.bos_token_id)"


@pytest.mark.parametrize(
    ("lines", "example"),
    [
        ([COLUMN, "fed = torch.cat([start, ids[:, :-1]], dim=1)"], "fed, ids = ids[:, :-1], ids[:, 1:]  # inputs,"),
        (["fed = torch.cat([ids.new_full((8, 1), tok.bos_token_id), ids], 1)"], "fed = ids  # which begin with it"),
        ([COLUMN, "fed = torch.cat([start, ids[:, 1:]], dim=1)"], "add_special_tokens=False"),
        ([COLUMN], "add_special_tokens=False"),
    ],
)
def test_a_column_of_the_begin_symbol_in_front_of_rows(make: Any, lines: list[str], example: str) -> None:
    """Of a decoder, beside the one that a text is generated from: there the model has to begin with one."""
    excerpt = "\n".join(f"    {line}" for line in lines)
    place = {"file": "a.py", "function": "step", "excerpt_line": 60, "excerpt": excerpt}
    sites = [
        place | {"site": 60, "role": "begin-text", "line": 60, "source": lines[0]},
        place | {"site": 61, "role": "training-call", "line": 60, "source": lines[0]},
        {"site": 64, "role": "begin-text", "file": "a.py", "function": "write", "line": 90, "source": COLUMN},
    ]
    finding = make.check(BOS, process(make, begin_twice=1.0, sites=sites))[2]
    assert (finding.location.line, example in finding.fix_code) == (60, True)
    assert "Leave the id out here" in finding.fix
    elsewhere = [one for one in sites if one["role"] != "training-call"]
    assert make.check(BOS, process(make, begin_twice=1.0, sites=elsewhere))[2].location.line == 41


@pytest.mark.parametrize("line", ["tokenizer = load(name)", "labels = ids.clone()"])
def test_no_tokenizer_is_changed_where_there_is_none(make: Any, line: str) -> None:
    site = {"site": 30, "role": "labels", "file": "t.py", "line": 5, "function": "main", "source": line}
    code = make.check(EOS, process(make, sites=[site], **UNTAUGHT))[2].fix_code
    assert ("tokenizer.add" in code) == ("tokenizer" in line)
    assert "attention_mask" in code


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["y[len(ix):] = -100"], "y[len(ix) + 1:] = -100  # line 60"),
        (
            ["labels[:, n - 1 :] = -100", "loss = cross_entropy(x, y, ignore_index=-100)"],
            "labels[:, n - 1 + 1:] = -100",
        ),
        (["y[len(ix):] = -100", "y[:prompt] = -100"], "attention_mask"),  # which of them it is stays open
        (["y[:prompt] = -100"], "attention_mask"),
        (["y[len(ix):] = -100", "loader = DataLoader(data, collate_fn=DataCollator(tok))"], "attention_mask"),
        (["y[-padded:] = -100"], "attention_mask"),
        (["y[y == 2] = -100"], "attention_mask"),
    ],
)
def test_the_line_that_masks_to_the_end_of_a_row(make: Any, lines: list[str], code: str) -> None:
    text = {"role": "ignored", "file": "a.py", "function": "__getitem__"}
    sites = [
        text | {"site": at, "line": at, "source": line, "excerpt": f"    {line}", "excerpt_line": at}
        for at, line in zip((60, 64), lines, strict=False)
    ]
    sites[-1] |= {"role": "collate"} if "DataCollator" in lines[-1] else {}
    finding = make.check(EOS, process(make, sites=sites, **UNTAUGHT))[2]
    assert code in finding.fix_code
    sliced = "attention_mask" not in code
    assert (finding.location.line == 60, "one position too early" in finding.fix) == (sliced, sliced)


@pytest.mark.parametrize(
    ("lines", "bound"),
    [
        (["row[: find(ids, marker)] = -100"], "find(ids, marker)"),
        (["labels[:, :start] = -100"], "start"),
        (["labels[i, 0 : starts[i]] = -100"], "starts[i]"),
        (["labels = [-100] * counted + ids[counted:]"], "counted"),
        (["labels[:, :start] = -100", "labels[ids == pad_id] = -100"], "start"),
        (["labels[:, :start] = -100", "labels[:, :other] = -100"], "start"),
        (["labels = [-100] * (longest - len(ids)) + ids"], None),  # padding on the left
        (["labels[i, :pad] = -100"], None),
        (["labels[:, :1] = -100"], None),
        (["labels[:, -answer:] = -100"], None),
        (["labels = labels.masked_fill(mask == 0, -100)"], None),
    ],
)
def test_the_line_that_is_to_leave_the_prompt_out(make: Any, lines: list[str], bound: str | None) -> None:
    text = {"role": "ignored", "file": "a.py", "function": "__getitem__"}
    sites = [
        text | {"site": at, "line": at, "source": line, "excerpt": f"    {line}", "excerpt_line": at}
        for at, line in zip((60, 64), lines, strict=False)
    ]
    finding = make.check(PROMPT, process(make, prefix=12.0, prefix_share=0.3, sites=sites))[2]
    assert (finding.location.line == 60, "is to leave out" in finding.summary) == (bound is not None,) * 2
    assert bound is None or f"assert {bound} > 0" in finding.fix_code
    by_word = make.check(PROMPT, process(make, sites=sites, **SEPARATED))[2]
    assert "is to leave out" not in by_word.summary, "where the prompt ends is not known"


def test_prompts_of_a_batch_each_have_their_own_length(make: Any) -> None:
    labels = {"site": 7, "role": "labels", "file": "a.py", "line": 60, "function": "make", "source": "labels = ids + 0"}
    finding = make.check(PROMPT, process(make, prefix=12.0, prefix_share=0.3, sites=[labels]))[2]
    assert finding.location.line == 60
    assert "in zip(labels, prompt_lengths):" in finding.fix_code


def test_the_line_that_pads_with_the_end_of_a_text(make: Any) -> None:
    line = {"site": 7, "role": "padding", "file": "a.py", "line": 62, "function": "main"}
    line |= {"source": "tok.pad_token = tok.eos_token"}
    told = line | {"site": 8, "line": 70, "source": "model.config.pad_token_id = tok.eos_token_id"}

    def found(*sites: dict[str, Any]) -> Any:
        rows = list(process(make, **UNTAUGHT).tables["loss_calls"].records())
        call = {"site": 1, "role": "loss", "file": "a.py", "line": 74, "function": "main", "source": "trainer.train()"}
        return make.check(EOS, make.process(sites=[call, *sites], more={"loss_calls": rows}))[2]

    finding = found(line, told)
    assert finding.location.line == 62
    assert 'tok.add_special_tokens({"pad_token": "<pad>"})  # in place of line 62' in finding.fix_code
    renamed = found(line | {"source": "fast.pad_token = fast.eos_token"}, told).fix_code
    assert "fast.add_special_tokens(" in renamed, "another line may call it by another name"
    assert "Line 62 is the only place" in finding.fix
    assert "model.resize_token_embeddings(len(tokenizer))" in finding.fix_code
    text = "config = LlamaConfig(vocab_size=len(words), hidden_size=64,\n    pad_token_id=tok.pad_token_id)"
    made = told | {"role": "begin-text", "line": 70, "source": text.partition("\n")[0]}
    made |= {"excerpt_line": 70, "excerpt": text}
    by_configuration = found(line, made).fix_code
    assert "config = LlamaConfig(vocab_size=len(tok), hidden_size=64," in by_configuration
    assert "resize" not in by_configuration, "an id beyond the rows of the model is refused where it is made"
    roomy = made | {"source": text.replace("len(words)", "len(tok)").partition("\n")[0]}
    roomy |= {"excerpt": text.replace("len(words)", "len(tok)")}
    whole = found(line | {"excerpt_line": 62, "excerpt": line["source"]}, roomy)
    assert whole.diff.added == ['tok.add_special_tokens({"pad_token": "<pad>"})'], "it has a row for each id already"
    masks = line | {"site": 9, "role": "labels", "line": 66, "source": "labels[labels == tok.pad_token_id] = -100"}
    assert found(line, masks).location.line == 66
    own = line | {"source": 'tok.pad_token = "<pad>"'}
    assert found(own).location.line == 74
    assert "Line 62" not in found(own).fix


@pytest.mark.parametrize(
    ("rule", "columns"), [(EOS, UNTAUGHT), (BOS, {"begin_twice": 1.0}), (PROMPT, SEPARATED), (PACKED, JOINED)]
)
def test_calls_that_nobody_looked_into_are_not_counted(make: Any, rule: str, columns: dict[str, Any]) -> None:
    """Of 12 calls the ids of 5 were not compared: all of the 7 others are like this."""
    some = {"ids_next": [1.0] * 7 + [math.nan, None] * 2 + [math.nan]}
    _, _, finding = make.check(rule, process(make, count=12, **columns, **some))
    counted = {one.name: one.value for one in finding.evidence}
    assert (counted["calls looked at"], counted["of them like this"]) == (7, 7)
    assert finding.fix_code


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        *[(rule, {}) for rule in RULES],
        (
            EOS,
            {"end_rows": 0.1, "end_id": [float(n) for n in range(8)], "stop_same": 0.2, "behind_id": -1.0},
        ),  # a stream
        (EOS, {"end_id": 0.0, "behind_id": 9.0, "stop_inside": 4.0, "stop_after": 1.0}),  # a line break behind it
        (EOS, UNTAUGHT | {"stop_same": 1.0, "stop_id": 7.0, "stop_inside": 30.0, "stop_after": 1.0}),  # ends turns
        (EOS, FULL_STOP | {"stop_after": 1.0, "end_symbol": 2, "end_least": [1.0] * 7 + [4.0]}),  # turns, padding
        (EOS, FULL_STOP | {"stop_id": 2.0, "end_symbol": 2, "behind_id": 0.0, "end_id": 0.0, "end_least": 0.0}),
        (
            EOS,
            FULL_STOP | {"behind_id": 0.0, "end_id": 0.0, "end_least": 6.0},
        ),  # padding, for all we know
        (EOS, UNTAUGHT | {"end_counts": [0.0] * 7 + [1.0]}),  # packed rows hold it as a target
        (EOS, UNTAUGHT | {"stop_same": [0.4, 0.6] * 4}),  # one of several last states, none of which is passed through
        (EOS, UNTAUGHT | {"end_least": 0.0}),  # padding with an id of its own, and no end symbol: a recommender
        (EOS, UNTAUGHT | {"end_least": 6.0}),
        (EOS, FULL_STOP | {"stop_inside": 0.0, "stop_after": math.nan}),  # an end symbol, and padding to one length
        (EOS, FULL_STOP | {"stop_inside": 0.0, "end_least": 2.0, "stop_id": 1.0, "end_id": 0.0, "behind_id": 0.0}),
        (EOS, UNTAUGHT | {"targets_least": 1.0, "targets_most": 1.0, "end_symbol": 2}),  # answers of one token
        (EOS, UNTAUGHT | {"stop_same": 1.0, "stop_id": 7.0, "stop_inside": 1.0, "stop_after": 0.4}),  # may be either
        (EOS, FULL_STOP | {"stop_inside": 0.0, "end_symbol": 2, "end_least": 9.0}),  # an end of its own, and padding
        (BOS, {"begin_twice": 0.4}),  # texts that begin so
        (BOS, {"begin_twice": 1.0, "begin_id": [float(n) for n in range(8)]}),  # batches of one row
        (PROMPT, {"prefix": 2.0, "prefix_share": 0.5}),
        (PROMPT, {"prefix": 12.0, "prefix_share": 0.0}),  # a template that is masked
        (PROMPT, SEPARATED | {"separator": [float(n) for n in range(8)]}),  # by chance
        (PACKED, JOINED | {"parts": 1.0}),
        (PACKED, JOINED | {"crosses": 0.0}),  # a mask between the samples
        (PACKED, JOINED | {"parts": [3.0, 0.0] * 4}),  # pretraining: rows are cut anywhere
    ],
)
def test_the_look_alike_is_not(make: Any, rule: str, columns: dict[str, Any]) -> None:
    assert make.check(rule, process(make, **columns))[0] == "passed"


def test_rows_with_masked_prompts_that_are_cut_anywhere(make: Any) -> None:
    masked = make.check(PACKED, process(make, **JOINED | {"parts": 0.0, "ignored": 0.5}))
    assert masked[0] == "skipped", "several samples may share a row"
    assert make.check(PACKED, process(make, **JOINED | {"parts": 0.0, "ignored": 0.0}))[0] == "passed", "pretraining"


@pytest.mark.parametrize(
    ("source", "stop", "example"),
    [
        ("loss = model(**batch).loss", 1.0, "F.pad(batch"),
        ("loss = model(**batch).loss", 0.9, "DataCollatorWithFlattening"),  # no id ends all samples
        ("trainer.train()", 1.0, "DataCollatorWithFlattening"),
        ("out = model(**b)", 1.0, 'F.pad(b["input_ids"]'),
        (
            'out = model(input_ids=b["input_ids"], attention_mask=b["attention_mask"], labels=y)',
            1.0,
            'seen.sum(2) - 1  # they start anew with each sample\n# and in that call: position_ids=b["position_ids"]',
        ),
        ('out = model(b["input_ids"], attention_mask=mask)', 1.0, "DataCollatorWithFlattening"),
        ("out = model(ids, labels=labels)", 1.0, "DataCollatorWithFlattening"),
    ],
)
def test_a_loop_of_its_own_numbers_the_samples_by_their_end(make: Any, source: str, stop: float, example: str) -> None:
    places = [
        {"site": site, "role": "loss", "file": "train.py", "line": site, "function": "main", "source": text}
        for site, text in ((60, source), (61, "model = GPT2LMHeadModel(config)"))
    ]
    finding = make.check(PACKED, process(make, sites=places, **JOINED | {"site": 60, "stop_same": stop}))[2]
    assert example.replace("F.pad", "torch.nn.functional.pad") in finding.fix_code


def test_masked_prompts_in_rows_that_are_cut_anywhere_where_the_script_asks_for_packing(make: Any) -> None:
    def asked(source: str) -> list[dict[str, Any]]:
        return [{"site": 60, "role": "setting", "file": "train.py", "line": 60, "function": "main", "source": source}]

    joined = {"parts": 0.0, "ignored": 0.55, "answers": 5.0, "answers_cut": [0.25, 0.5] * 4, "crosses": 1.0}
    status, _, finding = make.check(PACKED, process(make, sites=asked("packing=True,"), **joined))
    assert (status, finding.severity, finding.confidence, finding.evidence[0].value) == ("fired", "info", "likely", 5.0)
    assert "some begin within an answer" in finding.summary
    for source, changed, wanted in (
        ("packing=True,", {"crosses": 0.0}, "passed"),  # a mask between the samples
        ("packing=True,", {"crosses": math.nan}, "skipped"),  # positions that start anew, say
        ("packing=True,", {"answers_cut": 0.0}, "skipped"),  # long conversations, cut at their end
        ("packing=True,", {"answers_cut": [0.0] * 7 + [0.5]}, "skipped"),  # a few of them split
        ("packing=True,", {"answers_cut": None, "answers": None}, "skipped"),  # recorded before these were
        ("packing=True,", {"answers": 1.0}, "passed"),  # answers that end in several ids
        ("packing=False,", {}, "skipped"),  # turns of conversations that are cut into pieces
        ("packing=True,", {"function": "the model's own loss", "parts": 3.0}, "fired"),
        ("packing=False,", {"function": "the model's own loss", "parts": 3.0}, "skipped"),  # turns, perhaps
    ):
        assert make.check(PACKED, process(make, sites=asked(source), **joined | changed))[0] == wanted, (
            source,
            changed,
        )


def test_masks_that_number_the_samples_of_a_row(make: Any) -> None:
    def numbered(most: float, dtype: str = "int64", **columns: Any) -> Any:
        field = {"step": 3, "field": "attention_mask", "trained": True, "dtype": dtype, "min": 0.0, "max": most}
        joined = {"parts": 0.0, "ignored": 0.55, "answers": 5.0, "crosses": 1.0}
        rows = [{**ROW, "step": step, **joined, **columns} for step in range(8)]
        return make.check(PACKED, make.process(more={"loss_calls": rows, "batches": [field]}))

    status, _, finding = numbered(7.0)
    assert (status, finding.severity, finding.confidence, finding.evidence[0].value) == (
        "fired",
        "warning",
        "likely",
        5.0,
    )
    assert "up to 7" in finding.summary
    assert numbered(7.0, parts=5.0)[2].severity == "warning", "end symbols and numbers say the same"
    assert numbered(1.0)[0] == "skipped", "turns of conversations, and padding that is hidden"
    assert numbered(7.0, crosses=0.0)[0] == "passed", "the model compares the numbers"
    assert numbered(7.0, crosses=math.nan)[0] == "skipped"
    assert numbered(2.0)[0] == "skipped", "prompts and answers have numbers, of which a row holds more"
    assert numbered(7.0, dtype="float32")[0] == "skipped"
    assert numbered(7.0, answers=None)[0] == "skipped"


def test_an_end_that_the_configuration_names_is_not_doubted(make: Any) -> None:
    finding = make.check(EOS, process(make, **FULL_STOP | {"stop_inside": 0.0, "end_symbol": 2}))[2]
    assert "may be what ends a text" not in finding.summary
    assert "eos_token_id" in finding.summary


@pytest.mark.parametrize("rule", RULES)
def test_what_cannot_be_told_is_skipped(make: Any, rule: str) -> None:
    columns = UNTAUGHT | {"begin_twice": 1.0} | SEPARATED | JOINED
    for changed in ({"ids_next": 0.1}, {"ids_next": math.nan}, {"training": False}, {"count": 2}):
        status, reason, _ = make.check(rule, process(make, **columns | changed))
        assert (status, bool(reason)) == ("skipped", True)
    assert make.check(rule, make.process())[0] == "skipped"


def test_attention_that_cannot_be_read(make: Any) -> None:
    assert make.check(PACKED, process(make, parts=3.0))[0] == "skipped"


@pytest.mark.parametrize(
    ("text", "function", "line"),
    [
        ("rows = []\nfor at in range(0, n, size):\n    rows.append(ids[at : at + size])", "__init__", 12),
        ("return [t[i:i+block] for i in range(0, len(t), block)]", "group", 10),
        (
            "for at in range(0, n, size):\n    x = ids[at : at + size]\n    y = ids[at + 1 : at + 1 + size]",
            "main",
            None,
        ),
        ("a = ids[at : at + size]\nb = ids[at : at + size]", "__init__", None),
    ],
)
def test_the_line_that_cuts_packed_rows(make, text: str, function: str, line: int | None) -> None:
    place = {"file": "t.py", "line": 10, "function": function, "source": text.split("\n", maxsplit=1)[0]}
    sites = [
        {"site": 1, "role": "labels", "excerpt": text, "excerpt_line": 10} | place,
        {"site": 2, "role": "backward", "file": "t.py", "line": 40, "function": "main", "source": "loss.backward()"},
    ]
    found = packed_rows.cut_out(make.process(sites=sites))
    assert (found.line if found else None) == line


TO_TEXT = 'return {"text": TEMPLATE.format(**row)}'
SFT = "args = SFTConfig(output_dir=folder, max_length=96)"


@pytest.mark.parametrize(
    ("lines", "others", "named"),
    [
        ([TO_TEXT], [SFT], True),
        (['return {"text": TEMPLATE.format(**row), "id": row["id"]}'], [SFT], False),
        ([TO_TEXT, 'held.append({"text": question})'], [SFT], False),  # which of them?
        ([TO_TEXT], [SFT, "trainer = SFTTrainer(model, args, formatting_func=joined)"], False),
        ([TO_TEXT], ["trainer = Trainer(model, args)"], False),  # which knows no such columns
    ],
)
def test_the_text_that_holds_prompt_and_answer(make, lines: list[str], others: list[str], named: bool) -> None:
    """TRL's SFTTrainer learns a completion alone where the prompt is a column of its own."""
    sites = [
        {"site": 10 + at, "role": role, "file": "a.py", "line": 20 * (at + 1), "function": f"f{at}", "source": text}
        | {"excerpt_line": 20 * (at + 1), "excerpt": f"    {text}"}
        for at, (role, text) in enumerate([("text-given", one) for one in lines] + [("setting", one) for one in others])
    ]
    finding = make.check(PROMPT, process(make, prefix=12.0, prefix_share=0.3, sites=sites))[2]
    assert ('return {"prompt": prompt, "completion": answer}' in finding.fix_code) == named
    assert ("the text of line 20" in finding.fix) == named
    if named:
        assert (finding.location.line, finding.location.function) == (20, "f0")


def test_the_prompt_in_labels_that_a_dictionary_copies(make) -> None:
    """The empty list that a collator fills is not what makes the labels."""
    copied, filled = 'rows.append({"input_ids": ids, "labels": list(ids)})', "ids, mask, labels = [], [], []"
    sites = [
        {"site": 10 + line, "role": role, "file": "a.py", "line": line, "function": f"f{line}", "source": text}
        | {"excerpt_line": line, "excerpt": text}
        for line, role, text in [(42, "labels-given", copied), (57, "labels", filled)]
    ]
    finding = make.check(PROMPT, process(make, prefix=12.0, prefix_share=0.3, sites=sites))[2]
    assert finding.location.line == 42
    assert finding.fix_code.startswith(
        f"{unknown_names.NOTE}prompt_length\nlabels = [-100] * prompt_length + list(ids[prompt_length:])"
    )
