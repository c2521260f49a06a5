from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExchangeRequest(_message.Message):
    __slots__ = ("envelope",)
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    envelope: Envelope
    def __init__(self, envelope: _Optional[_Union[Envelope, _Mapping]] = ...) -> None: ...

class ExchangeResponse(_message.Message):
    __slots__ = ("envelope",)
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    envelope: Envelope
    def __init__(self, envelope: _Optional[_Union[Envelope, _Mapping]] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("hello", "reject", "vector", "flood", "ask", "abort", "done")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    FLOOD_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    reject: Reject
    vector: Vector
    flood: Flood
    ask: Ask
    abort: Abort
    done: Done
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., reject: _Optional[_Union[Reject, _Mapping]] = ..., vector: _Optional[_Union[Vector, _Mapping]] = ..., flood: _Optional[_Union[Flood, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version", "oldest_version", "network", "node", "incarnation", "response", "features", "settings", "fit", "active", "outer", "inner", "method", "release", "defaults", "finished", "continues", "closed")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class DefaultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    FIT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    OUTER_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    version: int
    oldest_version: int
    network: str
    node: str
    incarnation: int
    response: str
    features: _containers.RepeatedScalarFieldContainer[str]
    settings: _containers.ScalarMap[str, str]
    fit: int
    active: bool
    outer: int
    inner: int
    method: int
    release: str
    defaults: _containers.ScalarMap[str, str]
    finished: bool
    continues: int
    closed: bool
    def __init__(self, version: _Optional[int] = ..., oldest_version: _Optional[int] = ..., network: _Optional[str] = ..., node: _Optional[str] = ..., incarnation: _Optional[int] = ..., response: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., settings: _Optional[_Mapping[str, str]] = ..., fit: _Optional[int] = ..., active: _Optional[bool] = ..., outer: _Optional[int] = ..., inner: _Optional[int] = ..., method: _Optional[int] = ..., release: _Optional[str] = ..., defaults: _Optional[_Mapping[str, str]] = ..., finished: _Optional[bool] = ..., continues: _Optional[int] = ..., closed: _Optional[bool] = ...) -> None: ...

class Reject(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Vector(_message.Message):
    __slots__ = ("fit", "outer", "inner", "rows", "columns", "values", "present")
    FIT_FIELD_NUMBER: _ClassVar[int]
    OUTER_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    fit: int
    outer: int
    inner: int
    rows: int
    columns: int
    values: bytes
    present: bytes
    def __init__(self, fit: _Optional[int] = ..., outer: _Optional[int] = ..., inner: _Optional[int] = ..., rows: _Optional[int] = ..., columns: _Optional[int] = ..., values: _Optional[bytes] = ..., present: _Optional[bytes] = ...) -> None: ...

class Flood(_message.Message):
    __slots__ = ("fit", "number", "records")
    FIT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    fit: int
    number: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, fit: _Optional[int] = ..., number: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("origin", "signature", "introduction", "words")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    origin: str
    signature: bytes
    introduction: Introduction
    words: bytes
    def __init__(self, origin: _Optional[str] = ..., signature: _Optional[bytes] = ..., introduction: _Optional[_Union[Introduction, _Mapping]] = ..., words: _Optional[bytes] = ...) -> None: ...

class Introduction(_message.Message):
    __slots__ = ("neighbours", "mask_key", "certificate", "continues", "lost", "indispensable", "rows")
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    MASK_KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    INDISPENSABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    neighbours: _containers.RepeatedScalarFieldContainer[str]
    mask_key: bytes
    certificate: bytes
    continues: int
    lost: _containers.RepeatedScalarFieldContainer[str]
    indispensable: bool
    rows: int
    def __init__(self, neighbours: _Optional[_Iterable[str]] = ..., mask_key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., continues: _Optional[int] = ..., lost: _Optional[_Iterable[str]] = ..., indispensable: _Optional[bool] = ..., rows: _Optional[int] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("fit", "number", "missing", "vectors")
    FIT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    fit: int
    number: int
    missing: _containers.RepeatedScalarFieldContainer[str]
    vectors: bool
    def __init__(self, fit: _Optional[int] = ..., number: _Optional[int] = ..., missing: _Optional[_Iterable[str]] = ..., vectors: _Optional[bool] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("fit", "origin", "reason")
    FIT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    fit: int
    origin: str
    reason: str
    def __init__(self, fit: _Optional[int] = ..., origin: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("fit",)
    FIT_FIELD_NUMBER: _ClassVar[int]
    fit: int
    def __init__(self, fit: _Optional[int] = ...) -> None: ...
