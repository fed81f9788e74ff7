"""How to reach an etcd, as frozen values. Imports no gRPC: the command line builds it before any store is needed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one etcd member listens for clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files. Without ``ca`` gRPC's own list of authorities counts; ``cert`` and ``key`` are ours."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class EtcdConfig:
    """How to reach an etcd. ``call_timeout_s`` is for one try; a call that may be repeated has three times as long."""

    endpoints: tuple[Endpoint, ...]
    tls: Tls | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    call_timeout_s: float = 2.0  # above one leader election, below a third of the lease's 15 s

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("etcd: no endpoint given")
        if self.tls is not None and (self.tls.cert is None) != (self.tls.key is None):
            raise ValueError("etcd: a client certificate needs both its file and its key's file")
