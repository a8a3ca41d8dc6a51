"""Export what a run learned from as a Minari or LeRobot data set."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from rich.console import Console

from horde_agent.life.student import predict_along
from horde_agent.record import read_in_parts
from horde_agent.runs.config import BadInput
from horde_agent.runs.data.episodes import Predict, episodes_of
from horde_agent.runs.data.lerobot import write_lerobot
from horde_agent.runs.data.minari import write_minari
from horde_agent.runs.jobs.session import checked_config, recorded_facts, restored_run
from horde_agent.runs.keeping.folder import RunFolder

DATA_SETS = ("minari", "lerobot")
_LARGEST_BYTES = 1_000_000_000  # of predictions


def export_data_set(path: Path, to: str, out: Path | None, console: Console) -> Path:
    """Write the transitions that a run learned from as a data set and return its folder.

    A Minari data set has the predictions of the newest snapshot's weights in `infos`, up to 1 GB of them. It is named
    horde/RUN-v0, and lies below the folder, for MINARI_DATASETS_PATH.

    Args:
        path: The run's folder.
        to: "minari" or "lerobot".
        out: Folder; in `export` of the run's folder when None.
        console: For messages.

    Raises:
        BadInput: If the recording or a package is missing, the data set exists, or nothing was learned.
    """
    folder, name = RunFolder(path), re.sub(r"[^\w-]", "-", path.resolve().name)
    config = checked_config(folder)
    header, n_rows, _ = recorded_facts(folder)
    header = {key: header[key] for key in header if key not in ("dtype", "offset", "first", "crc", "format", "version")}
    header.setdefault("b_known", config.backend != "replay")
    place = out or folder.exported / to
    parts = read_in_parts(folder.life)
    if to == "lerobot":
        write_lerobot(place, name, header, episodes_of(parts))
        return place
    predict: Predict | None = None
    with tempfile.TemporaryDirectory() as elsewhere:
        try:
            run = restored_run(folder, Path(elsewhere), config, header, console)
            if run is not None and n_rows * run.horde.n_demons * 4 <= _LARGEST_BYTES:
                horde, interface = run.horde, run.interface
                predict = lambda stream: predict_along(stream, horde, interface)  # noqa: E731
        except BadInput as error:
            console.print(str(error), highlight=False, soft_wrap=True)
        if predict is None:
            console.print("predictions are left out: there is no snapshot, or they would exceed 1 GB")
        write_minari(place, f"horde/{name}-v0", header, episodes_of(parts, predict))
    return place
