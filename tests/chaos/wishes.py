"""What a manifest of the chaos asks of one model, and whether it can be had."""

from dataclasses import dataclass

MISSING_PREFIX = "gguf/chaos_missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How the stand-in behaves. `ready`: what the manifest gives it to load; None: as usual."""

    flags: str = ""
    loads: bool = True
    ready: str | None = None


MODES = {
    "plain": Mode(),
    "slow": Mode(flags="--ready-after 1"),
    "tree": Mode(flags="--shared-memory --spawn-children 2 --child setsid --child double-fork"),
    "deaf": Mode(
        flags="--shared-memory --ignore-sigterm --child ignore-term --child setsid-ignore-term"
    ),
    "shares": Mode(flags="--shared-memory"),
    "exits": Mode(flags="--exit-after 0", loads=False),
    "traps": Mode(flags="--trap", loads=False),
    "hangs": Mode(flags="--shared-memory --hang-on-load --child setsid", loads=False, ready="4s"),
    "never": Mode(flags="--ready-after 3600 --child double-fork", loads=False, ready="4s"),
    "missing": Mode(loads=False),
}
GOOD = tuple(name for name, mode in MODES.items() if mode.loads)
BAD = tuple(name for name, mode in MODES.items() if not mode.loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One entry of a manifest. `digest`: the pin; None: whatever the hub holds."""

    name: str
    prefix: str
    digest: str | None = None
    context: int = 512
    mode: str = "plain"
    enabled: bool = True
    aliases: tuple[str, ...] = ()
    priority: int = 0

    @property
    def loads(self) -> bool:
        return MODES[self.mode].loads

    @property
    def instance(self) -> tuple[object, ...]:
        """What a restart hangs on (R4), and whether there is to be a process at all."""
        return (self.name, self.prefix, self.digest, self.context, self.mode, self.enabled)

    @property
    def flags(self) -> str:
        return MODES[self.mode].flags

    @property
    def text(self) -> str:
        """In flow style, so that a cut within it is never valid."""
        ready = MODES[self.mode].ready
        fields = {
            "name": self.name,
            "source": MISSING_PREFIX if self.mode == "missing" else self.prefix,
            "backend": "llama-server-cpu",
            "digest": f'"{self.digest}"' if self.digest else None,
            "enabled": None if self.enabled else "false",
            "aliases": f"[{', '.join(self.aliases)}]" if self.aliases else None,
            "priority": str(self.priority) if self.priority else None,
            "extra_args": f"{{ctx_size: {self.context}}}",
            "env": f'{{STAND_IN: "{self.flags}"}}',
            "timeouts": "{drain: 1s, stop: 1s, kill: 10s"
            + (f", ready: {ready}" if ready else "")
            + "}",
        }
        entries = ", ".join(f"{key}: {value}" for key, value in fields.items() if value is not None)
        return f"{{{entries}}}"
