# SPDX-License-Identifier: Apache-2.0
"""ReclaimNet from Python: submit jobs and follow them, say inside a job what is saved, run a function elsewhere.

See docs/python.md. Nothing but the standard library is needed.
"""
from .arrays import Array
from .client import Client, Job, job_spec, nodes, submit
from .errors import (ConflictError, CorruptError, DeniedError, ExhaustedError, InvalidError, JobFailedError,
                     NotFoundError, NotLoggedInError, ReclaimError, RemoteError, TimedOutError, UnavailableError,
                     UnsupportedError)
from .injob import (Notice, checkpoint_dir, checkpoint_saved, in_job, is_resumed, notice, saving, should_save)
from .functions import Call, RemoteFunction, remote

__version__ = "0.1.0"
__all__ = [
    "Array", "Call", "Client", "ConflictError", "CorruptError", "DeniedError", "ExhaustedError", "InvalidError", "Job",
    "JobFailedError", "NotFoundError", "NotLoggedInError", "Notice", "ReclaimError", "RemoteError", "RemoteFunction",
    "TimedOutError", "UnavailableError", "UnsupportedError", "checkpoint_dir", "checkpoint_saved", "in_job",
    "is_resumed", "job_spec", "nodes", "notice", "remote", "saving", "should_save", "submit"]
