"""Real training steps over a real network: one process per node, true bytes, emulated GPU compute."""

from .awake import awake_processors
from .job import Job, RunLayer
from .launch import RunResult, run_job, run_jobs

__all__ = ["Job", "RunLayer", "RunResult", "awake_processors", "run_job", "run_jobs"]
