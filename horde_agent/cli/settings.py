"""What the commands other than `learn` take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from horde_agent.runs.config import LearnConfig


@dataclass(frozen=True)
class ReportConfig:
    """Regenerate a run's report; rebuild missing tables from its log.

    With two or more runs, write a page that compares them: comparison-N.html in the current folder.

    Attributes:
        run: The run's folder.
        others: Further runs to compare with the first.
        surprise: Learn from the log again, and report when predictions stop fitting, at this rate of false
            alarms: "1/week". The run need not have watched for them.
    """

    run: tyro.conf.Positional[Path]
    others: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="[PATH ...]", help_behavior_hint="(default: none)"),
    ] = ()
    surprise: Annotated[
        str | None, tyro.conf.arg(metavar="RATE", help_behavior_hint="(default: none)")
    ] = None


@dataclass(frozen=True)
class DoctorConfig:
    """Check every file of a run and repair those that can be repaired.

    Attributes:
        run: The run's folder.
    """

    run: tyro.conf.Positional[Path]


@dataclass(frozen=True)
class UpgradeConfig:
    """Write a run's older files in the formats of this version, all at once; nothing else changes.

    No command needs it: each reads older files as they are. An older version cannot read the result.

    Attributes:
        run: The run's folder.
    """

    run: tyro.conf.Positional[Path]


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Export a run's recording, or its curves for TensorBoard.

    Attributes:
        run: The run's folder.
        to: `parquet` (a file a day, for DuckDB, polars and pandas), `mcap` (for robots' viewers,
            such as Foxglove), `minari` or `lerobot` (a data set of the transitions learned from), or
            for scalars (NMSRE, MSPBE, cycle times, faults) `tensorboard`.
        out: Folder or file to write.
        predictions: With `parquet` and `mcap`: also write the predictions at each row, by the newest
            snapshot's weights.
        follow: With `tensorboard`: continue until the run ends.
    """

    run: tyro.conf.Positional[Path]
    to: Annotated[str, tyro.conf.arg(metavar="FORMAT")] = "parquet"
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="(default: RUN/export)")
    ] = None
    predictions: bool = False
    follow: bool = False


@dataclass(frozen=True)
class ColumnsConfig:
    """Print a columns.toml for a table, with every key: what its columns seem to be.

    Attributes:
        file: The table: a Parquet, Feather, CSV or npz file, or a folder of Parquet files; or a bag:
            an MCAP or .bag file, the folder of a ROS 2 bag, or a folder of bags.
    """

    file: tyro.conf.Positional[Path]


@dataclass(frozen=True)
class FeaturesConfig:
    """Print tilings for `horde learn --features FILE.toml`: the pairs of channels that a run lacks most.

    It learns from the run's record again and looks in which cells of each pair the predictions err.

    Attributes:
        run: The run's folder.
        pairs: Number of pairs, at most.
    """

    run: tyro.conf.Positional[Path]
    pairs: Annotated[int, tyro.conf.arg(metavar="N")] = 150


@dataclass(frozen=True)
class WarmConfig:
    """Compile all kernels in advance: `horde learn`, the robots and Hordes in Python then start within seconds.

    Attributes:
        algorithm: Further update rule, with its parameters, to compile.
    """

    algorithm: Annotated[str, tyro.conf.arg(metavar="NAME")] = LearnConfig.algorithm


@dataclass(frozen=True, kw_only=True)
class ResumeConfig:
    """Resume an interrupted run from its latest snapshot and recording.

    Exact: with --backend simulator, and for a data set, the result equals that of an uninterrupted
    run, bit for bit. Not exact: a real or an emulated robot and an environment of --env cannot be
    set back. Such a run learns from the rows recorded since the snapshot and continues after a gap,
    which the summary counts, with new random numbers.

    It imports the environment that the run's config.toml names (--env), but runs no command from
    there.

    Attributes:
        run: The run's folder.
        steps: Total number of steps of the run.
        add: TOML file of further questions, added at the step where the run stopped.
        remove: Shell pattern of the names of questions to remove at that step.
        learn_from_record: Train the further questions on the recording first.
        channels: Sensors that the body, or the further rows, have or lack now, `new:NAME,lost:NAME`. A new
            one is recorded, and questions of --add may name it; a lost one is missing. All weights stay.
        actions: Actions that they have or lack now, likewise. The behaviour chooses among those that
            it has; questions asked before stay about the actions of then.
        tilings: TOML file of further [[tiling]] tables, such as one over a new channel. All weights
            stay; those of the further features begin at 0.
        keep: Rows of the record that stay from now on, as of `horde learn`, or `all`.
        archive: With --keep, write older files to Parquet before.
        port: Port of the robot, if it has another one than before, or this is another robot of its kind.
        on_alarm: Command to run at alarms, as of `horde learn`; the one in config.toml is not run.
        shards: The number of shards of the run; it cannot be changed.
        ray: Address of the Ray cluster, if it differs from before.
        data: Further rows for a run on data: `-`, those of standard input.
        columns: File that describes them, if columns came or went (--channels): what stays is as before.
        predictions: Where to write the predictions at each row of standard input, as of `horde
            learn`.
        predict: Names of the predictions that are written, likewise.
        compare_frozen: Score the tests of the further rows also by the weights of now, so that the
            report shows what it is worth to go on learning.
    """

    run: tyro.conf.Positional[Path]
    steps: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as before)")
    ] = None
    add: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.toml", help_behavior_hint="(default: none)")
    ] = None
    remove: Annotated[
        str | None, tyro.conf.arg(metavar="PATTERN", help_behavior_hint="(default: none)")
    ] = None
    learn_from_record: bool = False
    channels: Annotated[
        str | None, tyro.conf.arg(metavar="CHANGES", help_behavior_hint="(default: as before)")
    ] = None
    actions: Annotated[
        str | None, tyro.conf.arg(metavar="CHANGES", help_behavior_hint="(default: as before)")
    ] = None
    tilings: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.toml", help_behavior_hint="(default: none)")
    ] = None
    keep: Annotated[
        str | None,
        tyro.conf.arg(metavar="30d|10GB|all", help_behavior_hint="(default: as before)"),
    ] = None
    archive: bool = False
    port: Annotated[
        str | None, tyro.conf.arg(metavar="PORT", help_behavior_hint="(default: as before)")
    ] = None
    on_alarm: Annotated[
        str | None, tyro.conf.arg(metavar="COMMAND", help_behavior_hint="(default: none)")
    ] = None
    shards: Annotated[
        str | None, tyro.conf.arg(metavar="N|auto", help_behavior_hint="(default: as before)")
    ] = None
    ray: Annotated[
        str | None, tyro.conf.arg(metavar="HOST:PORT", help_behavior_hint="(default: as before)")
    ] = None
    data: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")
    ] = None
    columns: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.toml", help_behavior_hint="(default: as before)")
    ] = None
    predictions: Annotated[
        str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")
    ] = None
    predict: Annotated[
        str | None, tyro.conf.arg(metavar="PATTERN", help_behavior_hint="(default: all)")
    ] = None
    compare_frozen: bool = False
