"""A cache of keys and values of which some layers need the last tokens only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """`layer_bytes`: of one token in one layer, at 16 bits; all layers are alike.

    `full_layers` look back at all, `windowed_layers` at the last `window_tokens`.
    """

    layer_bytes: int
    full_layers: int
    windowed_layers: int
    window_tokens: int

    @property
    def full_bytes(self) -> int:
        """Of one token, in the layers that look back at all."""
        return self.full_layers * self.layer_bytes

    @property
    def windowed_bytes(self) -> int:
        """Of one token, in the layers that do not."""
        return self.windowed_layers * self.layer_bytes
