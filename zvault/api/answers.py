"""The forms that answers of every subject have: an error, a run that was started, the lines of a long answer."""

from typing import TypedDict, final

from zvault.core.errors import ErrorDocument


class ErrorAnswer(TypedDict):
    """The answer to a request that failed, with status 400 or more."""

    error: ErrorDocument


@final
class StartedAnswer(TypedDict):
    """The run that was started, by its id: ``GET /v1/events?run=ID`` follows it."""

    run: str


class TextLine(TypedDict):
    """A line of a long answer while the work goes on; ``text`` is empty if there is nothing new."""

    text: str


class AnswerLine(TypedDict):
    """The last line of a long answer: the document that the route answers."""

    answer: object


LongAnswerLine = TextLine | AnswerLine | ErrorAnswer
