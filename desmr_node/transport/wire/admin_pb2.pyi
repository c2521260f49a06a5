from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class StartRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StartResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("shutdown", "reason")
    SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    shutdown: bool
    reason: str
    def __init__(self, shutdown: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class StopResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("until_end",)
    UNTIL_END_FIELD_NUMBER: _ClassVar[int]
    until_end: bool
    def __init__(self, until_end: _Optional[bool] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class ResultRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResultResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("network", "node", "version", "phase", "message", "fit", "stage", "outer", "outer_limit", "inner", "inner_limit", "history", "peers", "waiting_for", "members", "elapsed_seconds", "round_milliseconds", "memory_bytes", "lost", "continues", "paused")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    OUTER_FIELD_NUMBER: _ClassVar[int]
    OUTER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    INNER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ROUND_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    network: str
    node: str
    version: str
    phase: str
    message: str
    fit: int
    stage: str
    outer: int
    outer_limit: int
    inner: int
    inner_limit: int
    history: _containers.RepeatedCompositeFieldContainer[OuterRound]
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    members: int
    elapsed_seconds: float
    round_milliseconds: float
    memory_bytes: int
    lost: _containers.RepeatedScalarFieldContainer[str]
    continues: int
    paused: str
    def __init__(self, network: _Optional[str] = ..., node: _Optional[str] = ..., version: _Optional[str] = ..., phase: _Optional[str] = ..., message: _Optional[str] = ..., fit: _Optional[int] = ..., stage: _Optional[str] = ..., outer: _Optional[int] = ..., outer_limit: _Optional[int] = ..., inner: _Optional[int] = ..., inner_limit: _Optional[int] = ..., history: _Optional[_Iterable[_Union[OuterRound, _Mapping]]] = ..., peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., waiting_for: _Optional[_Iterable[str]] = ..., members: _Optional[int] = ..., elapsed_seconds: _Optional[float] = ..., round_milliseconds: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., lost: _Optional[_Iterable[str]] = ..., continues: _Optional[int] = ..., paused: _Optional[str] = ...) -> None: ...

class OuterRound(_message.Message):
    __slots__ = ("outer", "admm_rounds", "candidates", "objective", "nonzeros", "moved", "spread", "changed", "accepted")
    OUTER_FIELD_NUMBER: _ClassVar[int]
    ADMM_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    NONZEROS_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    outer: int
    admm_rounds: int
    candidates: int
    objective: float
    nonzeros: int
    moved: float
    spread: float
    changed: float
    accepted: bool
    def __init__(self, outer: _Optional[int] = ..., admm_rounds: _Optional[int] = ..., candidates: _Optional[int] = ..., objective: _Optional[float] = ..., nonzeros: _Optional[int] = ..., moved: _Optional[float] = ..., spread: _Optional[float] = ..., changed: _Optional[float] = ..., accepted: _Optional[bool] = ..., **kwargs) -> None: ...

class Peer(_message.Message):
    __slots__ = ("node", "state", "reason", "bytes_sent", "bytes_received", "messages_sent", "messages_received", "release", "wire_version", "suspicion")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_SENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SUSPICION_FIELD_NUMBER: _ClassVar[int]
    node: str
    state: str
    reason: str
    bytes_sent: int
    bytes_received: int
    messages_sent: int
    messages_received: int
    release: str
    wire_version: int
    suspicion: str
    def __init__(self, node: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., bytes_sent: _Optional[int] = ..., bytes_received: _Optional[int] = ..., messages_sent: _Optional[int] = ..., messages_received: _Optional[int] = ..., release: _Optional[str] = ..., wire_version: _Optional[int] = ..., suspicion: _Optional[str] = ...) -> None: ...
