# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions that say what happened and what to do next."""
from typing import Optional


class ReclaimError(Exception):
    """Base of all errors of this package.

    `message` says what happened, `hint` what to do next (may be empty), `status` is the HTTP status if a coordinator
    answered, else None.
    """

    def __init__(self, message: str, hint: str = "", status: Optional[int] = None) -> None:
        super().__init__(f"{message}; next: {hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.status = status


class InvalidError(ReclaimError):
    """The request is wrong and stays so: a field, a file, a folder, a function that cannot be sent."""


class NotFoundError(ReclaimError):
    """No such job, node, image, file."""


class DeniedError(ReclaimError):
    """Not permitted, or the one who answers is not this site's coordinator."""


class NotLoggedInError(DeniedError):
    """Neither the login file nor the environment says where the coordinator is and who asks."""


class ConflictError(ReclaimError):
    """The thing is in another state than the request takes for granted."""


class ExhaustedError(ReclaimError):
    """A limit, a quota or a disk is full, or an answer is larger than this package takes."""


class UnavailableError(ReclaimError):
    """The coordinator cannot be reached. What was asked was repeated before this is raised."""


class TimedOutError(ReclaimError):
    """No answer in time, or a job that has not ended in the time that a caller waits."""


class CorruptError(ReclaimError):
    """Bytes that are not what they should be: a damaged download, an answer that is no JSON."""


class UnsupportedError(ReclaimError):
    """This coordinator, or this Python, does not know how to do that."""


class JobFailedError(ReclaimError):
    """The job has ended and has not succeeded. `job` is the Job, with `state`, `exit_code` and `reason`."""

    def __init__(self, job: object, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.job = job


class RemoteError(ReclaimError):
    """A function raised an exception where it ran.

    `type_name` is the exception's class, `remote_traceback` the traceback as it was printed there. The exception
    itself does not come home: it would have to be unpickled from a machine that belongs to somebody else.
    """

    def __init__(self, type_name: str, message: str, remote_traceback: str) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.args = (f"{self.message}\n\nThe traceback where it ran:\n{remote_traceback}",)
        self.type_name = type_name
        self.remote_traceback = remote_traceback
