"""The one error that people see: a sentence that names the input, the reason and the remedy, with a stable code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

GROUPS = {
    "T1": "The call",
    "T2": "Files",
    "T3": "Runs",
    "T4": "Profiler traces",
    "T5": "Recordings of other programs",
    "T6": "The configuration",
    "T7": "Storage elsewhere",
}


@dataclass(frozen=True)
class Explained:
    """What docs/errors.md says of a cause. `example` is a message as it is shown, without the code."""

    code: str
    meaning: str
    example: str
    remedy: str


@unique
class Cause(Enum):
    """Why an input or a call was refused. A code stays what it is; a new cause gets a new one, at the end of its group.

    GROUPS says what their first digit stands for.
    """

    NOTHING_TO_RUN = Explained(
        "T101",
        "`collect` was given no command.",
        "nothing to run: write the command after two dashes: tracelyze collect -- python train.py",
        "Write the command of the training after `--`.",
    )
    NO_SUCH_PROGRAM = Explained(
        "T102",
        "The command of `collect` names a program or a script that is not there.",
        "pyton: no such program; check the spelling, or that its environment is active",
        "Check the spelling and the working directory, and activate the environment that the program is installed in.",
    )
    WRONG_OPTION = Explained(
        "T103",
        "An option has a value that it does not take, or one that does not go with the input.",
        "--fail-on slow: use slower, slower:10%, memory:10%, new or new:warning",
        "Write the value as the message says; `--help` lists the options of a command.",
    )
    UNKNOWN_NAME = Explained(
        "T104",
        "No rule, threshold or signal has this name.",
        "--select: no such rule: 'memory-leek'; did you mean memory-leak?",
        "`tracelyze rules` lists the rules, `tracelyze rules ID` a rule's thresholds, `tracelyze signals` the signals.",
    )
    UNKNOWN_FORMAT = Explained(
        "T105",
        "The suffix of a report's name, or the name of a format, is none that reports are written in.",
        "cannot tell the format of report.pdf from the suffix '.pdf': use one of .html, .htm, .md, .json, .sarif",
        "Choose one of the suffixes that the message lists.",
    )
    MISSING_PACKAGE = Explained(
        "T106",
        "A package that only this input or option needs is not installed, or is too old.",
        "--ray needs Ray; install it with pip install 'tracelyze[ray]'",
        "Install what the message names, in the environment that tracelyze runs in.",
    )
    WRONG_CALL = Explained(
        "T107",
        "The command, an option or an argument is not known, or one is missing.",
        "tracelyze diagnose: no such option: --formt, did you mean --format? tracelyze diagnose --help shows the call",
        "Write the call as `--help` of the command shows it.",
    )
    NO_SUCH_PATH = Explained(
        "T201",
        "There is no file or folder of this name.",
        "runs/trian: no such folder; give the run directory that `tracelyze collect` printed",
        "Check the spelling and the working directory.",
    )
    UNREADABLE = Explained(
        "T202",
        "The operating system does not let the file or folder be read.",
        "trace.json: cannot be read (Permission denied); give the path of a trace file",
        "Check the permissions of the file and of the folders above it, and that the disk is there.",
    )
    UNWRITABLE = Explained(
        "T203",
        "A report or a run cannot be written where it should go.",
        "cannot write out/report.html: the folder out does not exist, make it first",
        "Make the folder, choose another place with `-o` or `--out`, or free space on the disk.",
    )
    NOT_EMPTY = Explained(
        "T204",
        "The folder for a new run holds files already. tracelyze overwrites nothing.",
        "runs/a is not empty: choose another folder with --out, or remove it",
        "Name a new folder, or remove the old one.",
    )
    NOT_A_FILE = Explained(
        "T205",
        "The path is a pipe, a device or a folder where a file is needed.",
        "trace.json: a named pipe, not a regular file; copy the run again from where it was recorded",
        "Save the data to a file first.",
    )
    NOT_TEXT = Explained(
        "T206",
        "The file is binary, or text in an encoding that is not read.",
        "trace.json: is UTF-16 text; convert it with `iconv -f UTF-16 -t UTF-8`",
        "Give a text file in UTF-8.",
    )
    EMPTY_FILE = Explained(
        "T207",
        "The file holds nothing.",
        "trace.json: the file is empty; export the trace again",
        "Write the file again; a full disk leaves empty files behind.",
    )
    TOO_LARGE = Explained(
        "T208",
        "The file is larger than what is read, so that no file can take all memory.",
        "trace.json: more than 8 GiB of JSON; profile fewer steps per file, or raise --max-gib",
        "Record less into one file, or raise the limit where the message names an option.",
    )
    IMPLAUSIBLE = Explained(
        "T209",
        "The file claims or unpacks to far more than its size allows, as files do that are made to exhaust memory.",
        "trace.json.gz: unpacks to more than 1100 times its size, which no profiler's trace does",
        "Do not trust the file. Copy it again from where it was recorded.",
    )
    NOT_A_RUN = Explained(
        "T301",
        "The path is there, but it is no run directory.",
        "runs: no run directory (it holds no run.json); record a run with `tracelyze collect -- python train.py`",
        "Give the folder that `tracelyze collect` printed; other recordings become runs by `tracelyze import`.",
    )
    NO_RUN_FOUND = Explained(
        "T302",
        "No run is in the folder or below it.",
        "runs: no run is here; record one with tracelyze collect -- python train.py, or name what to diagnose",
        "Record a run, or name the folder that holds some.",
    )
    DAMAGED_RUN = Explained(
        "T303",
        "A file of the run is half-written, damaged, or was not written by tracelyze.",
        "runs/a/rank00000/steps.parquet: not a readable Parquet file (no magic bytes)",
        "Copy the run again, or delete the file that the message names to read the others.",
    )
    NEWER_FORMAT = Explained(
        "T304",
        "The run was written by a later version of tracelyze.",
        "runs/a/run.json: written in format version 9, this tracelyze reads up to 4; upgrade tracelyze",
        "Upgrade tracelyze where you diagnose.",
    )
    TAKES_NO_TRACE = Explained(
        "T305",
        "The traces cannot be added to this run: it has no steps, is still recorded, has them already, or ran at "
        "another time.",
        "runs/a: still being recorded; import the traces when the program has ended",
        "Import the traces into a folder of their own.",
    )
    NOT_COMPARABLE = Explained(
        "T306",
        "The two inputs of `compare` are of different kinds.",
        "runs/a: a recorded run without profiler windows cannot be compared with a trace",
        "Compare two runs or two traces, or record with `--profile-every`.",
    )
    NOT_A_TRACE = Explained(
        "T401",
        "The file is no trace of PyTorch's profiler.",
        "log.json: has no key traceEvents, so it is not a Kineto trace",
        "Export one with torch.profiler's export_chrome_trace; a log becomes a run by `tracelyze import`.",
    )
    DAMAGED_TRACE = Explained(
        "T402",
        "The trace is cut short or damaged, and nothing that can be judged is left.",
        "trace.json: holds no events that can be read, so there is nothing to analyse; export it again",
        "Export the trace again, or import it again where it was imported.",
    )
    NO_TRACE_FOUND = Explained(
        "T403",
        "No trace was named, or the folder holds none.",
        "traces: no trace in this folder; it should hold the profiler's .json or .json.gz files",
        "Give trace files, or the folder that holds them.",
    )
    UNKNOWN_RECORDING = Explained(
        "T501",
        "The file or folder is of no kind that tracelyze reads.",
        "model.pt: a ZIP archive, as torch.save writes for weights; tracelyze reads a run directory; ...",
        "See the list of what is read in `tracelyze import --help`; give `--pattern` for a log with lines of its own.",
    )
    OTHER_CONTENT = Explained(
        "T502",
        "The file looks like a log of a known format, and lacks what such a log holds.",
        "log.csv: not a log that tracelyze reads: no header with step and loss in its first line",
        "Give the file that the message asks for.",
    )
    DAMAGED_LOG = Explained(
        "T503",
        "A part of the log cannot be read: it is cut short, or a value is not what its column holds.",
        "log.jsonl: line 7 is not JSON; give a log with one JSON object a line",
        "Repair or remove what the message names, or give another copy.",
    )
    NOTHING_LOGGED = Explained(
        "T504",
        "The log is of a known format and holds no training.",
        "events.out.tfevents.1: holds no scalars; give the event file of a training that logs its loss",
        "Give the log of a training that has made steps.",
    )
    NO_STEP_OR_LOSS = Explained(
        "T505",
        "No column of the log numbers the steps, or none is a loss.",
        "log.csv: has no loss; rename the column to 'loss' or 'val_loss' (it has: step, accuracy)",
        "Rename the columns as the message says.",
    )
    UNSAFE_PICKLE = Explained(
        "T506",
        "The pickle holds more than plain data. tracelyze never runs what is in a pickle.",
        "dump.pkl: a pickle that is damaged or holds more than plain data (it names os.system)",
        "Give the dump as torch wrote it.",
    )
    SEVERAL_TRAININGS = Explained(
        "T507",
        "One log holds several trainings.",
        "events.out.tfevents.2: starts over at step 1: another training; import one file at a time",
        "Import them one at a time.",
    )
    NO_SURROUNDINGS = Explained(
        "T508",
        "A file that was given with `--beside` is no text.",
        "core.4711: no text; give dmesg output, a SLURM log or a dump of py-spy",
        "Give the output of `dmesg` or `journalctl -k`, the output file of a SLURM job, or what `py-spy dump` printed.",
    )
    NO_SETTINGS = Explained(
        "T601",
        "The file that was given to `--config` holds no settings for tracelyze.",
        "pyproject.toml: holds no [tool.tracelyze] table; add one, or give another file to --config",
        "Add the table, or give another file.",
    )
    NOT_TOML = Explained(
        "T602",
        "The configuration file is not valid TOML.",
        "tracelyze.toml: not valid TOML (Expected '=' after a key in a key/value pair (at line 1, column 8))",
        "Repair the line that the message names.",
    )
    WRONG_SETTING = Explained(
        "T603",
        "A setting has a value of a wrong kind.",
        'pyproject.toml: ignore must be a list of rule ids, e.g. ignore = ["missing-zero-grad"]',
        "Write it as the message shows.",
    )
    NO_ACCESS = Explained(
        "T701",
        "A bucket or another storage cannot be opened, listed or read.",
        "s3://bucket/runs: cannot be listed (AccessDenied); check name and access",
        "Check the name, the credentials of the environment, and the network.",
    )

    @property
    def code(self) -> str:
        """`T201`."""
        return self.value.code

    @classmethod
    def of_reading(cls, error: OSError) -> Cause:
        """Why something could not be read."""
        return cls.NO_SUCH_PATH if isinstance(error, FileNotFoundError) else cls.UNREADABLE


class InputError(Exception):
    """The input or the call is wrong. The command line prints code and message in one line, and exits with 2."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(cause, message)
        self.cause = cause

    @property
    def code(self) -> str:
        """The stable code of the cause: docs/errors.md explains it."""
        return self.cause.code

    def __str__(self) -> str:
        return str(self.args[1])
