"""Tables of what a loss is given, made of and compared with, at which rates parts follow, and what is compiled."""

from __future__ import annotations

from typing import Final

from tracelyze.schema.declaration import Column, Table
from tracelyze.schema.training import AUTOCAST

LOSS_CALLS: Final = Table(
    "loss_calls",
    "Calls of torch's loss functions that were looked at: the first of each function, then one in many.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before the call"),
        Column(
            "function",
            "string",
            "",
            "function of torch.nn.functional; written out: the script computes the loss; the hand-written loss: "
            "it does so for classes of a sequence; the written-out log loss: of a sigmoid or softmax whose scores come "
            "out of another one; the written-out difference: of what two trained models put out; the model's own loss: "
            "labels were given to a model that computes it without such a function",
        ),
        Column("site", "int32", "", "line of the script that calls it (table sites)"),
        Column("loader", "int16", "", "DataLoader whose batch was in hand (table loaders)"),
        Column("training", "bool", "", "autograd was recording and the input depends on something trainable"),
        Column("reduction", "string", "", "mean, sum or none"),
        Column("input_shape", "string", "", "sizes of the input, as in 32x10"),
        Column("target_shape", "string", "", "sizes of the target"),
        Column("target_integer", "bool", "", "the target holds integers (class indices)"),
        Column("meet_in", "string", "", "written out: the operation in which input and target meet: Sub, Mul"),
        Column("made_by", "string", "", "autograd operation that made the input, views and casts aside: Softmax, ..."),
        Column("made_from", "string", "", "what made the scores of that sigmoid or softmax, if it is another one"),
        Column("made_dim", "int8", "", "dimension that a softmax ran over, if it is still the same in the input"),
        Column("made_whole", "bool", "", "the input holds all values that the operation made"),
        Column("lowest", "float64", "", "smallest value of the input (first samples and positions)"),
        Column("highest", "float64", "", "largest value of them"),
        Column("sum_error", "float64", "", "largest distance of a sum over the classes from 1: 0 for probabilities"),
        Column("log_sum_error", "float64", "", "largest absolute logsumexp over the classes: 0 for log-probabilities"),
        Column("target_lowest", "float64", "", "smallest class or label in the batch, of one label per sample"),
        Column("target_highest", "float64", "", "largest of them"),
        Column("value", "float64", "", "the loss, where it is one number"),
        Column("weight_of_one", "float64", "times", "losses of two classes: how much class 1 counts against class 0"),
        Column("ignored", "float64", "share", "class targets that are ignore_index and do not count"),
        Column("ignore_index", "float64", "", "class target that does not count, where it was told"),
        Column("varies", "float64", "", "deviation of the prediction (of classes: their shares) from sample to sample"),
        Column("target_varies", "float64", "", "the same of the target; with it, what a constant prediction misses"),
        Column("ids_compared", "float64", "", "targets set beside embedded ids, where the next id is another"),
        Column("ids_equal", "float64", "share", "of those, targets that are the id embedded at their own position"),
        Column("ids_ahead", "float64", "share", "of those, targets that are the id embedded two positions later"),
        Column(
            "sees_later", "float64", "", "largest weight of a position on later ones; 0: it sees none, nan: unknown"
        ),
        Column("next_targets", "float64", "", "targets that are the id embedded at the next position; 0: not all are"),
        Column("sees_next", "float64", "share", "of these, seen by attention, or read backwards, there; nan: unknown"),
        Column("pad_share", "float64", "share", "positions that fill up ends of rows, with a target that counts"),
        Column("pad_rows", "float64", "share", "of the rows that end in two positions that fill them up, or more"),
        Column("pad_target", "float64", "", "target at the positions of pad_share"),
        Column("autocast", "int8", "", "autocast dtype in force at the call", AUTOCAST),
        Column("pad_same", "float64", "share", "of these positions that have this target"),
        Column("pad_elsewhere", "float64", "", "targets that are this one and count, at all other positions"),
        Column("pad_behind", "float64", "", "id that stands once in each padded row, right before padding; -1: none"),
        Column("pad_begins", "float64", "", "targets of pad_elsewhere that stand at this id"),
        Column("ids_next", "float64", "share", "targets that are the next id, where that is another one"),
        Column("end_id", "float64", "", "id that most rows of ids end in"),
        Column("end_rows", "float64", "share", "rows that end in it"),
        Column(
            "end_least",
            "float64",
            "",
            "positions of it that every row ends in, at least; 1 if it is the last target of rows that do not",
        ),
        Column("end_counts", "float64", "", "targets that are this id and count"),
        Column("stop_id", "float64", "", "last target that counts, the commonest among the rows"),
        Column("stop_same", "float64", "share", "rows that have it"),
        Column("stop_inside", "float64", "", "places in the first rows where it stands and is not the last target"),
        Column("stop_after", "float64", "share", "of these places, those that the commonest id among them follows"),
        Column(
            "behind_id", "float64", "", "id behind the last target in which most rows end, but for padding; -1: none"
        ),
        Column("behind_rows", "float64", "share", "rows that end so, of those that go on behind their last target"),
        Column("behind_counts", "float64", "", "targets that are this id and count"),
        Column("targets_least", "float64", "", "targets that count, in the row with the fewest of them"),
        Column("targets_most", "float64", "", "the same, in the row with the most of them"),
        Column("begin_id", "float64", "", "id that most rows begin with, after what fills them up on the left"),
        Column("begin_twice", "float64", "share", "rows that begin with it twice; 0 where it stands elsewhere, too"),
        Column("prefix", "float64", "", "positions at their start at which all rows hold the same ids"),
        Column("prefix_share", "float64", "share", "of the targets that count, those within these positions"),
        Column("separator", "float64", "", "first id that stands once in each of the first rows, within it; -1: none"),
        Column("separator_share", "float64", "share", "of their targets that count, those before it"),
        Column("parts", "float64", "", "samples in a row, by an id that ends or begins all; 0: no row ends in one"),
        Column("column_rows", "float64", "samples", "targets set beside the numbers that the model was given"),
        Column("columns", "float64", "", "how many numbers it was given for each sample"),
        Column("column", "float64", "", "place of the one that is most like the target"),
        Column("column_same", "float64", "", "its correlation with the target (classes: least of their own); 1: same"),
        Column("column_other", "float64", "", "largest correlation of another one with the target"),
        Column("answer", "int64", "", "class that the scores answer for the first sample"),
        Column("answer_same", "float64", "share", "samples for which they answer this class"),
        Column("kept_rows", "int64", "samples", "labels in the tensor that the targets are a slice of"),
        Column("kept_looked", "int64", "samples", "of those, labels that were looked at, evenly over all"),
        Column("kept_blocks", "int64", "", "of those, blocks of one label: 1 more than labels unlike the one before"),
        Column("kept_values", "int64", "", "of those, different labels"),
        Column("kept_rising", "int64", "", "of those, labels above the one before, less those below it"),
        Column("target_trained", "int32", "tensors", "trained ones behind the target alone, where both depend on such"),
        Column("input_model", "int16", "", "model that those behind the input alone belong to (table models)"),
        Column("target_model", "int16", "", "model that those behind the target alone belong to"),
        Column("target_part", "string", "", "part of a model that they belong to, where that is not called by itself"),
        Column("target_in_train", "bool", "", "that model or part was in train mode"),
        Column("crosses", "float64", "", "largest weight of attention on another sample of the row; nan: unknown"),
        Column("answers", "float64", "", "samples in a row, by masked prompts behind answers that end in one id"),
        Column("answers_cut", "float64", "share", "rows whose first target counts: they begin within an answer"),
    ),
)

LOSS_GRAPHS: Final = Table(
    "loss_graphs",
    "Losses whose graph was looked at as their backward began: often at first, then now and then.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("site", "int32", "", "line of the script that called backward (table sites)"),
        Column("weights", "float64", "", "constants that log-probabilities of actions, or ratios, are multiplied by"),
        Column("weights_zero", "float64", "share", "of them, those that are exactly zero"),
        Column("weights_negative", "float64", "share", "of them, those below zero"),
        Column("weights_largest", "float64", "", "the largest of their absolute values"),
        Column("weights_repeated", "float64", "share", "samples whose weight is that of the sample before"),
        Column("softmaxes", "float64", "", "softmaxes behind the loss that were read (in the first samples)"),
        Column("masked_rows", "float64", "share", "rows of attention that a mask behind the softmax took weight from"),
        Column("products", "float64", "", "softmaxes of scores that were followed to their product with the values"),
        Column("products_wrong", "float64", "", "those that run over another dimension than this product sums over"),
        Column("softmax_axis", "float64", "", "dimension that such a softmax runs over, from the end: -1 is the last"),
        Column("summed_axis", "float64", "", "dimension of it that the product sums over"),
        Column(
            "picks", "float64", "", "log-softmaxes that the script picks one value per sample from (gather, indices)"
        ),
        Column("picks_wrong", "float64", "", "those that run over another dimension than is picked along"),
        Column("picks_softmax", "float64", "", "dimension that such a log-softmax runs over, from the end"),
        Column("picks_axis", "float64", "", "dimension of it that is picked along: the classes"),
        Column("products_work", "float64", "", "multiplications in matrix products behind the loss, under autocast"),
        Column("products_wide", "float64", "", "of them, those whose result has more than 16 bits"),
        Column("masked_regularly", "float64", "", "1: the mask is one of the order or of whole positions; 0: another"),
        Column("hiding_rows", "float64", "", "rows of ids of which all attention hides several (in the first samples)"),
        Column("one_id_rows", "float64", "share", "those in which all that it may look at is one id, the same in all"),
        Column("one_id", "float64", "", "that id"),
    ),
)

COUNTED_TARGETS: Final = Table(
    "counted_targets",
    "Losses of steps that accumulate gradients, one after the other, at some steps: all of a step, or none.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("targets", "float64", "", "targets that count in its cross-entropy: neither masked nor ignored"),
        Column("weight", "float64", "", "what the mean over them is multiplied by in the loss"),
    ),
)

REFERENCES: Final = Table(
    "references",
    "Pairs of models that were called on one input within a step, one of them without autograd, at some steps.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("model", "int16", "", "the one that was called with autograd (table models)"),
        Column("reference", "int16", "", "the one that was called without"),
        Column("same", "bool", "", "they are one module"),
        Column("shared", "float64", "share", "trainable tensors looked at that are in the storage of the other's"),
        Column("equal", "float64", "share", "of them, those whose values are those of the other's"),
        Column("adapters_off", "bool", "", "adapters were disabled in the call without autograd (peft)"),
        Column("site", "int32", "", "line of the script that leads to that call (table sites)"),
    ),
)

GROUP_RATES: Final = Table(
    "group_rates",
    "Rates of parameter groups after some steps of an optimizer, where they differed when it was made.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("optimizer", "int16", "", "the optimizer (table optimizers)"),
        Column("steps", "int64", "", "its steps"),
        Column("made", "string", "", "rates that its groups were made with, as JSON"),
        Column("now", "string", "", "rates that they have now"),
        Column("scheduler", "string", "", "class of the scheduler that has stepped"),
        Column("site", "int32", "", "line of the script that makes it step (table sites)"),
        Column("rates_at", "int32", "", "line that defines the rates of a scheduler of the script's own (table sites)"),
    ),
)

UPDATES = Table(
    "updates",
    "Updates of optimizers that divide by an average of squared gradients (Adam), from some elements of large tensors.",
    (
        Column("time", "float64", "s", "end of the step, on the process's monotonic clock"),
        Column("step", "int64", "", "number of this step of this optimizer"),
        Column("optimizer", "int16", "", "the optimizer (table optimizers)"),
        Column("sample", "int32", "", "which elements these are: rows with the same number compare"),
        Column("size", "float64", "", "root of the mean square of m / (sqrt(v) + eps): the update over the rate"),
        Column("gradient", "float64", "", "root of the mean square of their gradients, as the step used them"),
        Column("second", "float64", "", "root of the mean of v, their averages of squared gradients"),
        Column("lost", "float64", "share", "elements whose v is zero although their m is not"),
        Column("own_step", "float64", "", "steps that the optimizer's own state counts, by which it corrects m and v"),
    ),
)

NEW_ROWS: Final = Table(
    "new_rows",
    "Rows by which an embedding was made larger than it was before, after some steps: are they used, did they change?",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("parameter", "string", "", "name of the weight in the model"),
        Column("before", "int64", "", "rows that it had"),
        Column("rows", "int64", "", "rows that it has"),
        Column("trainable", "bool", "", "it requires a gradient"),
        Column(
            "looked_up",
            "bool",
            "",
            "the forward looks its rows up and adds nothing that is trained; false beside a copy or below an adapter, "
            "null where no forward was watched",
        ),
        Column("used", "float64", "", "new rows whose ids were met in inputs so far, without those that fill up rows"),
        Column("unchanged", "float64", "", "of them, those that are as they were in the first sample, bit for bit"),
    ),
)

TIMESTEPS: Final = Table(
    "timesteps",
    "Timesteps that a denoising model was given, one for each sample, at some steps.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("argument", "string", "", "name of the argument of forward, or of the script's variable"),
        Column(
            "source",
            "string",
            "",
            "where the range is known from: schedule, schedule beside the model, embedding, or number",
        ),
        Column("range", "int64", "", "how many timesteps there are"),
        Column("values", "int64", "", "values that were looked at so far"),
        Column("distinct", "float64", "", "of them, different ones"),
        Column("low", "float64", "", "smallest value of this sample"),
        Column("high", "float64", "", "its largest"),
        Column("lowest", "float64", "", "smallest value of all samples so far"),
        Column("highest", "float64", "", "their largest"),
    ),
)

COMPILATIONS: Final = Table(
    "compilations",
    "Functions that torch.compile has compiled, and lines at which it broke a graph, as torch._dynamo notes them.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done when it was read: a second later"),
        Column(
            "kind", "string", "", "graph: a function was compiled; break: a line could not be; given-up: a whole one"
        ),
        Column("function", "string", "", "the function of the program; of what runs after a break, the whole one"),
        Column("resumed", "bool", "", "it is the part of that function that runs after a break"),
        Column("site", "int32", "", "the line: of the break, of the condition that failed, else where it begins"),
        Column("reason", "string", "", "of a break: what torch says; of a graph: the condition that failed before"),
        Column("operators", "int32", "", "in the graph"),
        Column("seconds", "float64", "s", "that compiling took"),
        Column("frame", "int32", "", "number that torch gives the function"),
        Column("again", "int32", "", "how often it had been compiled before"),
    ),
)
