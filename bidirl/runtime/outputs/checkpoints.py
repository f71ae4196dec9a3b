"""Checkpoints on disk: JSON and safetensors, whole or not at all, and found again.

One directory per version, ``step-00000012``, holds ``state.json`` (the coordinator), ``groups.safetensors`` (tokens and
log-probs of open groups), what the cluster's learner wrote, and ``manifest.json`` with the SHA-256 of every other file.
It is written under another name, flushed to disk and renamed; a directory that does not match its manifest is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bidirl.core.cluster import Cluster
from bidirl.core.errors import ConfigError
from bidirl.core.groups import Group, Sample, VersionSpan
from bidirl.core.snapshot import CheckpointStore, RunSnapshot

KEPT = 2
"""Checkpoints kept: the last, and the one before in case the last is torn."""


class DirectoryCheckpoints(CheckpointStore):
    """Checkpoints of one run.

    Args:
        directory: where new ones go.
        every_steps: one after every so many steps; 0 writes none.
        resume_from: the checkpoint to begin with; ``None`` begins at version 0.
    """

    def __init__(self, directory: Path, every_steps: int, resume_from: Path | None = None) -> None:
        self.directory = directory
        self.every_steps = every_steps
        self.resume_from = resume_from

    def due(self, version: int) -> bool:
        """Every ``every_steps`` versions."""
        return self.every_steps > 0 and version % self.every_steps == 0

    async def save(self, snapshot: RunSnapshot, cluster: Cluster) -> None:
        """Write, flush, rename; then remove all but the newest ``KEPT``."""
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".writing-{snapshot.version:08d}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        await cluster.save_learner(temporary, snapshot.older_versions)
        write_snapshot(snapshot, temporary)
        hashes = {file.name: _sha256(file) for file in sorted(temporary.iterdir())}
        (temporary / "manifest.json").write_text(json.dumps({"version": snapshot.version, "sha256": hashes}))
        for path in (*temporary.iterdir(), temporary):
            _flush(path)
        target = self.directory / f"step-{snapshot.version:08d}"
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)
        _flush(self.directory)
        for old in _by_version(self.directory)[:-KEPT]:
            shutil.rmtree(old)

    async def restore(self, cluster: Cluster) -> RunSnapshot | None:
        """Read ``resume_from``, and give the learner its part."""
        if self.resume_from is None:
            return None
        snapshot = read_snapshot(self.resume_from, cluster)
        await cluster.load_learner(self.resume_from, snapshot.version, snapshot.older_versions)
        return snapshot


def latest_checkpoint(directory: Path) -> tuple[Path, list[str]]:
    """The newest whole checkpoint in ``directory``, and a line about each newer one that is torn.

    Raises:
        ConfigError: if there is none.
    """
    torn: list[str] = []
    for path in reversed(_by_version(directory)):
        fault = find_fault(path)
        if fault is None:
            return path, torn
        torn.append(f"{path} is torn and is skipped: {fault}")
    found = "; ".join(torn) or "no checkpoint is there (set checkpoint_every)"
    raise ConfigError(f"--resume: nothing to go on from in {directory}: {found}")


def find_fault(path: Path) -> str | None:
    """What is wrong with a checkpoint; ``None`` if it is whole."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        hashes = manifest["sha256"]
        for name, expected in hashes.items():
            if Path(name).name != name:
                return f"manifest.json names {name!r}, which is no file of it"
            if _sha256(path / name) != expected:
                return f"{name} does not have the SHA-256 of manifest.json"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return f"manifest.json is unreadable ({type(error).__name__})"
    missing = {"state.json", "groups.safetensors"} - hashes.keys()
    return f"{', '.join(sorted(missing))} is missing in manifest.json" if missing else None


def write_snapshot(snapshot: RunSnapshot, directory: Path) -> None:
    """``state.json`` and ``groups.safetensors``. Prompts are not kept: they follow from the group's identity."""
    arrays: dict[str, NDArray[Any]] = {}
    state = {
        **{name: getattr(snapshot, name) for name in ("version", "next_group_id", "num_consumed")},
        "older_versions": list(snapshot.older_versions),
        "resolved_versions": list(snapshot.resolved_versions),
        "dropped_ids": list(snapshot.dropped_ids),
        "dropped": dict(snapshot.dropped),
        "estimates": snapshot.estimates,
        "unfinished": [_group_row(group, arrays) for group in snapshot.unfinished],
        "finished": [_group_row(group, arrays) for group in snapshot.finished],
    }
    (directory / "state.json").write_text(json.dumps(state, default=_from_numpy), encoding="utf-8")
    save_file(arrays, directory / "groups.safetensors")


def read_snapshot(directory: Path, cluster: Cluster) -> RunSnapshot:
    """What :func:`write_snapshot` wrote; the prompts are the cluster's.

    Raises:
        ConfigError: if the files do not have that form.
    """
    try:
        return _read_snapshot(directory, cluster)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, SafetensorError) as error:
        raise ConfigError(f"{directory} is no checkpoint of a run ({type(error).__name__})") from None


def _read_snapshot(directory: Path, cluster: Cluster) -> RunSnapshot:
    state = json.loads((directory / "state.json").read_text(encoding="utf-8"))
    arrays = load_file(directory / "groups.safetensors")
    return RunSnapshot(
        version=state["version"],
        next_group_id=state["next_group_id"],
        older_versions=tuple(int(version) for version in state["older_versions"]),
        resolved_versions=tuple(state["resolved_versions"]),
        unfinished=tuple(_group(row, arrays, cluster) for row in state["unfinished"]),
        finished=tuple(_group(row, arrays, cluster) for row in state["finished"]),
        dropped_ids=tuple(state["dropped_ids"]),
        num_consumed=state["num_consumed"],
        dropped=state["dropped"],
        estimates=state["estimates"],
    )


def _group_row(group: Group, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    samples = []
    for index, sample in enumerate(group.samples):
        for name in ("token_ids", "logprobs"):
            if (values := getattr(sample, name)) is not None:
                arrays[f"{group.group_id}.{index}.{name}"] = np.ascontiguousarray(values)
        spans = [asdict(span) for span in sample.spans]
        samples.append({"spans": spans, "finish_reason": sample.finish_reason, "reward": sample.reward})
    kept = {name: getattr(group, name) for name in ("group_id", "started_version", "num_interruptions")}
    return {**kept, "samples": samples}


def _group(row: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], cluster: Cluster) -> Group:
    samples = tuple(
        Sample(
            tuple(VersionSpan(**span) for span in sample["spans"]),
            arrays.get(f"{row['group_id']}.{index}.token_ids"),
            arrays.get(f"{row['group_id']}.{index}.logprobs"),
            sample["finish_reason"],
            sample["reward"],
        )
        for index, sample in enumerate(row["samples"])
    )
    return Group(cluster.prompt(row["group_id"]), samples, row["started_version"], row["num_interruptions"])


def _from_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be written as JSON")


def _by_version(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("step-*") if path.name.removeprefix("step-").isdigit())


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
