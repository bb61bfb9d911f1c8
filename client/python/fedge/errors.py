"""Exceptions of this package."""


class Error(Exception):
    """Something about the job, the model or this device's files is wrong; the message says what to do."""


class TaskCancelled(Exception):
    """The task's result is no longer wanted. Task.batches raises it in a trainer, which should let it pass."""


class ClientExit(SystemExit):
    """Client.run ended early. `code` is fedge-client's exit code (docs/reference/exit-codes.md), `reason` says why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
