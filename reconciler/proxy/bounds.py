"""How much clients may take up of an agent (PURE)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of the inference paths. Sizes in bytes; `run` has flags for those that sites differ in.

    `body_bytes`: of one body; more is 413. The default is a dozen large images.
    `together_bytes`: of all bodies at one time; more is 503. What a node spares beside its engines.
    `form_bytes`: of one form; more is 413. The default is some hours of speech.
    `forms_bytes`: of all forms at one time, on disk; more is 503.
    `queue_length`: who may wait for a model with `max_in_flight`; more is 429.
    `queue_seconds`: for a turn; longer is 503.
    `heartbeat_seconds`: in a stream without a byte.

    Both times are less than the 60 s after which usual load balancers give up.
    """

    body_bytes: int = 64 << 20
    together_bytes: int = 512 << 20
    form_bytes: int = 512 << 20
    forms_bytes: int = 4 << 30
    queue_length: int = 100
    queue_seconds: float = 30.0
    heartbeat_seconds: float = 15.0
