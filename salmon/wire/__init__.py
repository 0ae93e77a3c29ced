"""Define what is stored in Redis: the name of every key, the bytes of every value, and who may write which.

Stored values are never reinterpreted. A new field goes to the end and has a default when it is absent, a field is
never renamed, and a key whose meaning changes gets a new name. The files in tests/golden were written by earlier
versions and must decode for ever.
"""

from salmon.wire.jobs import (
    ANNOUNCED,
    KEPT_SECONDS,
    REQUEST_STATES,
    WAITS_SECONDS,
    JobStatus,
    Request,
    RequestState,
    encode_job_status,
)
from salmon.wire.keys import (
    ACCOUNTS,
    BACKEND,
    BACKEND_WRITES,
    EVENTS_KEPT,
    EXPERIMENTS,
    FRONTEND_WRITES,
    REQUESTS,
    Keys,
    access_list,
    request,
)
from salmon.wire.values import (
    AnswerReader,
    Heartbeat,
    StoredVerdicts,
    decode_answer,
    decode_array,
    decode_json,
    decode_query,
    decode_served,
    encode_answer,
    encode_array,
    encode_json,
    encode_query,
    encode_served,
)

__all__ = [
    "ACCOUNTS",
    "ANNOUNCED",
    "BACKEND",
    "BACKEND_WRITES",
    "EVENTS_KEPT",
    "EXPERIMENTS",
    "FRONTEND_WRITES",
    "KEPT_SECONDS",
    "REQUESTS",
    "REQUEST_STATES",
    "WAITS_SECONDS",
    "AnswerReader",
    "Heartbeat",
    "JobStatus",
    "Keys",
    "Request",
    "RequestState",
    "StoredVerdicts",
    "access_list",
    "decode_answer",
    "decode_array",
    "decode_json",
    "decode_query",
    "decode_served",
    "encode_answer",
    "encode_array",
    "encode_job_status",
    "encode_json",
    "encode_query",
    "encode_served",
    "request",
]
