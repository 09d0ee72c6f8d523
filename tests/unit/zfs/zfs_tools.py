"""A zfs command whose answers are given by a test."""

from collections.abc import Callable, Container, Sequence

from zvault.core.errors import ToolFailed
from zvault.system.process.pipeline import HearStage, Pipeline
from zvault.system.process.runner import ProcessResult
from zvault.zfs.client import Zfs

Answer = tuple[int, str, str]


class Tools:
    """A Runner that starts nothing: ``answer(argv)`` gives status, stdout, stderr; ``own`` are zvault's properties."""

    own = ""

    def __init__(self, answer: Callable[[list[str]], Answer]) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> ProcessResult:
        if list(argv[:4]) == ["zfs", "get", "-Hp", "-r"]:
            return ProcessResult(tuple(argv), 0, self.own, "", 0.0)
        self.asked.append(list(argv))
        code, out, err = self.answer(list(argv))
        result = ProcessResult(tuple(argv), code, out, err, 0.0)
        if check and code:
            raise ToolFailed("failed", result.complaint())
        return result

    async def pipeline(
        self, stages: Sequence[Sequence[str]], hear: HearStage | None = None, *, nobody: Container[str] = ()
    ) -> Pipeline:
        raise AssertionError("no stream was asked for")


def zfs(answer: Callable[[list[str]], Answer]) -> tuple[Zfs, Tools]:
    tools = Tools(answer)
    return Zfs(tools), tools
