"""What boto3's errors mean for the block store: which may pass, which want a person, which are answers.

The codes are those of Amazon's "Error responses" reference and of Ceph's src/rgw/rgw_common.cc.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

from zvault.core.printable import quote_foreign
from zvault.object_store.interface import (
    ObjectMissing,
    PreconditionFailed,
    StoreDenied,
    StoreError,
    StoreUnreachable,
    Unsupported,
)

S3RequestKind = Literal["read", "put", "put-if", "list", "delete"]

BUSY_STATUS = frozenset({408, 429, 500, 502, 503, 504})
BUSY = frozenset(
    {
        "InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout", "Throttling", "ThrottlingException",
        "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded", "OperationAborted",
        # What arrived is not what was sent.
        "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch",
    }
)  # fmt: skip
"""Codes after which the same request may go well."""

EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
SKEWED = "RequestTimeTooSkewed"


class KeysExpired(StoreDenied):
    """Keys that ran out, or a clock that is wrong: passes when new keys are there, or the clock is set."""

    retryable = True


class RangeBeyondEnd(StoreError):
    """The part that was asked for begins behind the end of the object."""


@contextlib.contextmanager
def translate_s3_errors(what: str, kind: S3RequestKind) -> Iterator[None]:
    """Raise boto3's and its libraries' errors as the StoreErrors of interface.py. ``what`` failed then."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.httpsession import URLLib3SSLError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        raise make_answer_error(what, kind, error.response) from error
    except BotoCoreError as error:
        raise _of_boto(what, error) from error
    except (ResponseParserError, URLLib3SSLError, OSError) as error:
        raise make_unreachable_error(what, str(error) or type(error).__name__) from error


def make_unreachable_error(what: str, why: str) -> StoreUnreachable:
    """An answer that cannot be used, or none."""
    return StoreUnreachable(what, quote_foreign(why), "see that the store is up and the network reaches it")


def make_answer_error(what: str, kind: S3RequestKind, answer: dict[str, Any]) -> StoreError:
    """The error that an answer tells of; also one key's of a DeleteObjects, which has no status of its own."""
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code, message = (quote_foreign(str(answer["Error"].get(name) or "")) for name in ("Code", "Message"))
    why = f"the store answers {status or ''} {code}".rstrip() + (f": {message}" if message else "")
    if status == 404 and code != "NoSuchBucket" and kind == "read":
        return ObjectMissing(what, "there is no such object", "")
    if status == 416:
        return RangeBeyondEnd(what, why, "")
    # A condition on the ETag of an object that is gone is answered 404.
    if kind == "put-if" and (status == 412 or (status == 404 and code != "NoSuchBucket")):
        return PreconditionFailed(what, "somebody else put it first", "")
    return _no_answer(what, kind, status, code, why)


def _no_answer(what: str, kind: S3RequestKind, status: int, code: str, why: str) -> StoreError:
    # 409 says that another put is under way (perhaps our own, whose answer was lost) and does not say who wins.
    if status in BUSY_STATUS or code in BUSY or (kind == "put-if" and status == 409):
        return make_unreachable_error(what, why)
    if code in EXPIRED:
        return KeysExpired(what, why, "see that new keys are fetched, or put them where they are looked for")
    if code == SKEWED:
        return KeysExpired(what, why, "set this host's clock")
    if status == 501:
        return Unsupported(
            what, why, "use a store that can do this; 'zvaultctl blockstore probe' tells all it can do"
        )
    return StoreDenied(what, why, _next(status, code))


def _next(status: int, code: str) -> str:
    if code == "NoSuchBucket":
        return "make the bucket, or correct its name"
    if status in (301, 307, 400):
        return "see that endpoint, region and style are right"
    if status == 507 or code == "QuotaExceeded":
        return "make room, or have the quota raised"
    return "see that bucket, keys and permissions are right"


def _of_boto(what: str, error: Exception) -> StoreError:
    from botocore import exceptions as boto

    why = quote_foreign(str(error))
    if isinstance(error, boto.SSLError) and (refused := _of_tls(what, why)) is not None:
        return refused
    if isinstance(error, boto.EndpointConnectionError):
        where = "see that the store is up, that the endpoint is right, and style=path where it knows no other"
        return StoreUnreachable(what, why, where)
    lost = (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError, boto.ChecksumError)
    if isinstance(error, lost):
        return make_unreachable_error(what, why)
    fetching = (boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.MetadataRetrievalError)
    if isinstance(error, fetching):
        return KeysExpired(what, why, "see why new keys cannot be fetched")
    if isinstance(error, (boto.NoCredentialsError, boto.PartialCredentialsError)):
        return StoreDenied(what, why, "give it keys: a systemd credential, a file, or boto3's own places")
    return StoreDenied(what, why, "correct the settings of the store")


def _of_tls(what: str, why: str) -> StoreDenied | None:
    """What of TLS wants a person; None for what may pass."""
    if "CERTIFICATE_VERIFY_FAILED" in why:
        trust = "have the store's certificate trusted: AWS_CA_BUNDLE names a file with its authority"
        return StoreDenied(what, why, trust)
    if "WRONG_VERSION_NUMBER" in why:
        return Unsupported(
            what, why, "the endpoint speaks no TLS on this port: write http://, or its other port"
        )
    return None
