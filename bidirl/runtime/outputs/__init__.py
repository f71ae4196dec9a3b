"""What a run leaves behind: its directory, metrics, trace, W&B run, timeline and comparison table."""

from bidirl.runtime.outputs.compare import comparison_table, read_summary
from bidirl.runtime.outputs.files import FileRecorder
from bidirl.runtime.outputs.progress import ProgressRecorder
from bidirl.runtime.outputs.run_directory import make_run_directory
from bidirl.runtime.outputs.timeline import plot_timeline

__all__ = [
    "FileRecorder",
    "ProgressRecorder",
    "comparison_table",
    "make_run_directory",
    "plot_timeline",
    "read_summary",
]
