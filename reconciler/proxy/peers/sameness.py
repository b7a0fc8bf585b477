"""Addresses that turned out to lead to one and the same agent (PURE)."""

from collections.abc import Collection

from reconciler.plan.peering import Address

Listing = dict[Address, tuple[Address, ...]]


class Sameness:
    """Groups of addresses; the first of each is the one that is used."""

    def __init__(self) -> None:
        self._groups: dict[Address, tuple[Address, ...]] = {}

    def join(self, address: Address, other: Address) -> None:
        """They are one agent's, and `address` is the one to use."""
        if address == other:
            return
        ours = self._groups.get(address, (address,))
        theirs = self._groups.get(other, (other,))
        self._set(tuple(dict.fromkeys((address, *ours, *theirs))))

    def part(self, address: Address) -> None:
        """It is an agent's of its own, or nobody's."""
        group = self._groups.pop(address, ())
        self._set(tuple(each for each in group if each != address))

    def keep(self, known: Collection[Address]) -> None:
        """Forget what is said of any other."""
        for address in [each for each in self._groups if each not in known]:
            self.part(address)

    def listing(self, known: Collection[Address]) -> Listing:
        """One address for each agent, sorted, with the others that it has."""
        used: dict[Address, list[Address]] = {}
        for address in sorted(known):
            group = self._groups.get(address, (address,))
            first = next(each for each in group if each in known)
            used.setdefault(first, [])
            if address != first:
                used[first].append(address)
        return {address: tuple(used[address]) for address in sorted(used)}

    def _set(self, group: tuple[Address, ...]) -> None:
        for each in group:
            if len(group) > 1:
                self._groups[each] = group
            else:
                self._groups.pop(each, None)
