"""The forms that answers of every subject have: an error, a run that was started, the lines of a long answer."""

from typing import NotRequired, TypedDict, final

from zvault.core.errors import ErrorDocument


class ErrorAnswer(TypedDict):
    """The answer to a request that failed, with status 400 or more."""

    error: ErrorDocument


@final
class StartedAnswer(TypedDict):
    """The run that was started, by its id: ``GET /v1/events?run=ID`` follows it.

    ``runs`` has the runs that were started by backup, where all vaults of one were asked for; ``busy`` the errors of
    those of which one is under way. ``run`` is the first of them.
    """

    run: str
    runs: NotRequired[dict[str, str]]
    busy: NotRequired[dict[str, ErrorDocument]]


class TextLine(TypedDict):
    """A line of a long answer while the work goes on; ``text`` is empty if there is nothing new."""

    text: str


class AnswerLine(TypedDict):
    """The last line of a long answer: the document that the route answers."""

    answer: object


LongAnswerLine = TextLine | AnswerLine | ErrorAnswer
