"""etcd's messages, as bytes: the few of etcd's v3 API that the store needs, in and out of the store's own values.

The message classes are built at import from the table below, not generated: generated modules bind to one protobuf
line, descriptors serve 4.25 to 7.x. Field numbers are those of etcd's rpc.proto and kv.proto; fields never sent and
never read are left out (protobuf skips them). The untyped classes do not leave this file. Called by ``etcd*.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from .errors import PermanentError
from .store import Compare, Field, Get, KeyValue, Op, Put, Range, Txn, TxnResult, WatchEvent

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
GRANT = "/etcdserverpb.Lease/LeaseGrant"
REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
KEEPALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
WATCH = "/etcdserverpb.Watch/Watch"
AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
STATUS = "/etcdserverpb.Maintenance/Status"

# message: fields "name type number"; a type in capitals is a message of this table, "*" is repeated, "|" is in a oneof
_TABLE = {
    "ResponseHeader": "cluster_id uint64 1, revision int64 3",
    "KeyValue": "key bytes 1, create_revision int64 2, mod_revision int64 3, value bytes 5, lease int64 6",
    "Event": "type int32 1, kv KeyValue 2",
    "RangeRequest": "key bytes 1, range_end bytes 2",
    "RangeResponse": "header ResponseHeader 1, kvs *KeyValue 2",
    "PutRequest": "key bytes 1, value bytes 2, lease int64 3",
    "PutResponse": "header ResponseHeader 1",
    "DeleteRangeRequest": "key bytes 1, range_end bytes 2",
    "DeleteRangeResponse": "header ResponseHeader 1",
    "Compare": "result int32 1, target int32 2, key bytes 3,"
    " create_revision |int64 5, mod_revision |int64 6, lease |int64 8, range_end bytes 64",
    "RequestOp": "request_range |RangeRequest 1, request_put |PutRequest 2, request_delete_range |DeleteRangeRequest 3",
    "ResponseOp": "response_range |RangeResponse 1, response_put |PutResponse 2,"
    " response_delete_range |DeleteRangeResponse 3",
    "TxnRequest": "compare *Compare 1, success *RequestOp 2, failure *RequestOp 3",
    "TxnResponse": "header ResponseHeader 1, succeeded bool 2, responses *ResponseOp 3",
    "LeaseGrantRequest": "TTL int64 1, ID int64 2",
    "LeaseGrantResponse": "header ResponseHeader 1, ID int64 2, TTL int64 3, error string 4",
    "LeaseRevokeRequest": "ID int64 1",
    "LeaseKeepAliveRequest": "ID int64 1",
    "LeaseKeepAliveResponse": "header ResponseHeader 1, ID int64 2, TTL int64 3",
    "WatchCreateRequest": "key bytes 1, range_end bytes 2, start_revision int64 3",
    "WatchRequest": "create_request |WatchCreateRequest 1",
    "WatchResponse": "header ResponseHeader 1, watch_id int64 2, created bool 3, canceled bool 4,"
    " compact_revision int64 5, cancel_reason string 6, events *Event 11",
    "AuthenticateRequest": "name string 1, password string 2",
    "AuthenticateResponse": "header ResponseHeader 1, token string 2",
    "StatusResponse": "header ResponseHeader 1, version string 2, errors *string 8",
}
_PACKAGE = "remuster.etcd"  # names do not travel; our own keep clear of another client's in the same process


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="remuster/etcd.proto", package=_PACKAGE, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _TABLE.items():
        message = file.message_type.add(name=name)
        for line in fields.split(","):
            field_name, type_name, number = line.split()
            field = message.field.add(name=field_name, number=int(number), label=kinds.LABEL_OPTIONAL)
            if type_name[0] == "*":
                field.label = kinds.LABEL_REPEATED
            elif type_name[0] == "|":
                if not message.oneof_decl:
                    message.oneof_decl.add(name="union")
                field.oneof_index = 0
            type_name = type_name.lstrip("*|")
            if type_name in _TABLE:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{type_name}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{type_name.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _TABLE}


_M = _build()
_TARGETS = {Field.CREATE: 1, Field.MOD: 2, Field.LEASE: 4}
_DELETE = 1


@dataclass(frozen=True, slots=True)
class WatchReply:
    """One message of a watch. ``compact_revision`` is set when it was cancelled because that is the oldest kept."""

    created: bool
    canceled: bool
    compact_revision: int
    reason: str
    events: tuple[WatchEvent, ...]


class MemberStatus(NamedTuple):
    """What a member says of itself. ``cluster`` is the same for all members of one; ``errors`` are alarms and such."""

    version: str
    cluster: int
    errors: tuple[str, ...]


def range_request(key: str, end: str | None) -> bytes:
    """Ask for ``key``, or [key, end)."""
    return _bytes(_span("RangeRequest", key, end))


def range_reply(raw: bytes) -> Range:
    """Read the answer to a range request."""
    return _range(_parse("RangeResponse", raw))


def txn_request(txn: Txn) -> bytes:
    """Ask for ``txn``."""
    return _bytes(
        _M["TxnRequest"](
            compare=[_compare(guard) for guard in txn.guards],
            success=[_op(op) for op in txn.then],
            failure=[_op(op) for op in txn.otherwise],
        )
    )


def txn_reply(raw: bytes) -> TxnResult:
    """Read the answer to a transaction."""
    reply = _parse("TxnResponse", raw)
    ranges = tuple(_range(r.response_range) for r in reply.responses if r.HasField("response_range"))
    return TxnResult(reply.succeeded, reply.header.revision, ranges)


def grant_request(ttl_s: int, lease_id: int) -> bytes:
    """Ask for a lease under an id of our own."""
    return _bytes(_M["LeaseGrantRequest"](TTL=ttl_s, ID=lease_id))


def grant_reply(raw: bytes) -> int:
    """Return the TTL that was granted, in seconds."""
    return cast(int, _parse("LeaseGrantResponse", raw).TTL)


def revoke_request(lease_id: int) -> bytes:
    """Ask for the end of a lease."""
    return _bytes(_M["LeaseRevokeRequest"](ID=lease_id))


def keepalive_request(lease_id: int) -> bytes:
    """Ask for one renewal."""
    return _bytes(_M["LeaseKeepAliveRequest"](ID=lease_id))


def keepalive_reply(raw: bytes) -> int:
    """Return the renewed TTL in seconds; 0 or less when the lease is gone."""
    return cast(int, _parse("LeaseKeepAliveResponse", raw).TTL)


def watch_request(key: str, end: str | None, from_revision: int) -> bytes:
    """Ask for a watch. Not for fragments: a revision then arrives whole, in one message."""
    create = _span("WatchCreateRequest", key, end)
    create.start_revision = from_revision
    return _bytes(_M["WatchRequest"](create_request=create))


def watch_reply(raw: bytes) -> WatchReply:
    """Read one message of a watch."""
    reply = _parse("WatchResponse", raw)
    events = tuple(
        WatchEvent(_text(event.kv.key), event.kv.mod_revision, None if event.type == _DELETE else _kv(event.kv))
        for event in reply.events
    )
    return WatchReply(reply.created, reply.canceled, reply.compact_revision, reply.cancel_reason, events)


def authenticate_request(name: str, password: str) -> bytes:
    """Ask for a token."""
    return _bytes(_M["AuthenticateRequest"](name=name, password=password))


def authenticate_reply(raw: bytes) -> str:
    """Return the token."""
    token = cast(str, _parse("AuthenticateResponse", raw).token)
    if not token or not token.isascii() or not token.isprintable():  # it goes into a header
        raise PermanentError("the server answers a login with something that is no token")
    return token


def status_reply(raw: bytes) -> MemberStatus:
    """Read what a member says of itself; the request is empty."""
    reply = _parse("StatusResponse", raw)
    return MemberStatus(reply.version, reply.header.cluster_id, tuple(reply.errors))


def _bytes(message: Any) -> bytes:
    return cast(bytes, message.SerializeToString())


def _parse(name: str, raw: bytes) -> Any:
    try:
        return _M[name].FromString(raw)
    except DecodeError as error:
        raise PermanentError(
            "the answer is not in etcd's form: something else listens there, or is in between"
        ) from error


def _raw(key: str) -> bytes:
    """A key that is not UTF-8 (a stranger's) survives the way in and out; ours always are."""
    return key.encode("utf-8", "surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _span(name: str, key: str, end: str | None) -> Any:
    return _M[name](key=_raw(key), range_end=b"" if end is None else _raw(end))


def _kv(kv: Any) -> KeyValue:
    return KeyValue(_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.lease)


def _range(reply: Any) -> Range:
    return Range(tuple(_kv(kv) for kv in reply.kvs), reply.header.revision)


def _compare(guard: Compare) -> Any:
    return _M["Compare"](
        target=_TARGETS[guard.field],
        key=_raw(guard.key),
        range_end=b"" if guard.end is None else _raw(guard.end),
        **{guard.field.value: guard.value},
    )


def _op(op: Op) -> Any:
    if isinstance(op, Get):
        return _M["RequestOp"](request_range=_span("RangeRequest", op.key, op.end))
    if isinstance(op, Put):
        put = _M["PutRequest"](key=_raw(op.key), value=op.value, lease=op.lease)
        return _M["RequestOp"](request_put=put)
    return _M["RequestOp"](request_delete_range=_span("DeleteRangeRequest", op.key, op.end))
