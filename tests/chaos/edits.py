"""Steps that edit the manifest. Each says what it did; None: there was nothing to do it to."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.chaos.wishes import BAD, GOOD, Wish
from tests.chaos.world import World

BASE = "base.yaml"
"""Is never edited: its models keep their processes through everything that is not meant for them,
and no file is ever the last one."""
FILES = ("one.yaml", "two.yaml", "three.yaml")
_NAMES = tuple(f"m{number}" for number in range(12))
_MOST = 5
"""Models beside those of the base."""
_INVALID = (
    "apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nspec: {models: [{name: x, sauce: y}]}\n",
    "apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nspec: {models: [}\n",
    "kind: ModelManifest\nkind: ModelManifest\n",
    "\x00\x01\x02",
    "# nothing but a comment\n",
)


def begin(world: World) -> None:
    small, large = "gguf/chaos_small", "gguf/chaos_large"
    desired = world.desired
    desired.write(
        BASE, [Wish(name="anchor", prefix=small), Wish(name="base", prefix=large, mode="tree")]
    )
    desired.write(
        FILES[0], [Wish(name="m0", prefix=small), Wish(name="m1", prefix=small, mode="deaf")]
    )
    desired.write(FILES[1], [Wish(name="m2", prefix=large, mode="slow")])
    desired.write(FILES[2], [Wish(name="m3", prefix="gguf/chaos_single", enabled=False)])


def change_flags(world: World, rng: Random) -> str | None:
    return _edit_one(world, rng, "flags", lambda wish: replace(wish, context=_context(rng)))


def change_mode(world: World, rng: Random) -> str | None:
    return _edit_one(world, rng, "mode", lambda wish: replace(wish, mode=rng.choice(GOOD)))


def make_bad(world: World, rng: Random) -> str | None:
    return _edit_one(world, rng, "bad mode", lambda wish: replace(wish, mode=rng.choice(BAD)))


def change_digest(world: World, rng: Random) -> str | None:
    def other(wish: Wish) -> Wish:
        return replace(wish, digest=rng.choice([None, *world.hub.digests[wish.prefix]]))

    return _edit_one(world, rng, "digest", other)


def change_source(world: World, rng: Random) -> str | None:
    prefix = rng.choice(sorted(world.hub.digests))
    return _edit_one(world, rng, "source", lambda wish: replace(wish, prefix=prefix, digest=None))


def toggle(world: World, rng: Random) -> str | None:
    return _edit_one(world, rng, "enabled", lambda wish: replace(wish, enabled=not wish.enabled))


def change_routing(world: World, rng: Random) -> str | None:
    """What restarts nothing (R4)."""
    number = rng.randrange(3)

    def other(wish: Wish) -> Wish:
        aliases = tuple(f"{wish.name}-alias-{each}" for each in range(number))
        return replace(wish, aliases=aliases, priority=rng.randrange(-1, 3))

    return _edit_one(world, rng, "aliases and priority", other)


def rename(world: World, rng: Random) -> str | None:
    name = _free_name(world, rng)
    return _edit_one(world, rng, "name", lambda wish: replace(wish, name=name, aliases=()))


def make_all_good(world: World, rng: Random) -> str | None:
    file = _pick(world, rng)
    if file is None:
        return None
    good = [
        wish if wish.loads else replace(wish, mode=rng.choice(GOOD))
        for wish in world.desired.files[file]
    ]
    _write(world, file, good)
    return f"all of {file} is good: {_told(good)}"


def add(world: World, rng: Random) -> str | None:
    file = _pick(world, rng)
    if file is None or len(world.desired.wishes) >= _MOST + 2:
        return None
    mode = rng.choice(GOOD if rng.random() < 0.8 else BAD)
    wish = Wish(
        name=_free_name(world, rng),
        prefix=rng.choice(sorted(world.hub.digests)),
        mode=mode,
        context=_context(rng),
    )
    _write(world, file, [*world.desired.files[file], wish])
    return f"{file} gets {_told([wish])}"


def remove(world: World, rng: Random) -> str | None:
    file = _pick(world, rng, holds_models=True)
    if file is None:
        return None
    wishes = list(world.desired.files[file])
    gone = wishes.pop(rng.randrange(len(wishes)))
    _write(world, file, wishes)
    return f"{file} loses {gone.name}"


def change_several(world: World, rng: Random) -> str | None:
    said = [make(world, rng) for make in (change_flags, add, change_mode, remove, toggle)]
    return "; ".join(filter(None, said)) or None


def hurry(world: World, rng: Random) -> str | None:
    """One model, changed again and again, faster than anything can be carried out."""
    return change_flags(world, rng) and change_mode(world, rng) and change_digest(world, rng)


def write_torn(world: World, rng: Random) -> str | None:
    file = _pick(world, rng, holds_models=True)
    if file is None:
        return None
    wishes = [replace(wish, context=_context(rng)) for wish in world.desired.files[file]]
    _touch_changed(world, file, wishes)
    world.desired.write_torn(file, wishes, cut=rng.random())
    return f"{file} is written in two halves: {_told(wishes)}"


def spoil(world: World, rng: Random) -> str | None:
    file = _pick_to_spoil(world, rng)
    if file is None:
        return None
    number = rng.randrange(len(_INVALID) + 2)
    if number == len(_INVALID):
        world.desired.spoil(file, "")
        return f"{file} is emptied"
    if number > len(_INVALID) and world.desired.files[file]:
        world.desired.cut(file, rng.random())
        return f"{file} is cut off"
    world.desired.spoil(file, _INVALID[number % len(_INVALID)])
    return f"{file} is made invalid"


def clash(world: World, rng: Random) -> str | None:
    file = _pick_to_spoil(world, rng)
    if file is None:
        return None
    (other, *_) = world.desired.files[BASE]
    world.desired.clash(file, replace(other, context=64))
    return f"{file} claims {other.name}, too"


def delete_file(world: World, rng: Random) -> str | None:
    file = _pick(world, rng)
    if file is None:
        return None
    _touch_changed(world, file, [])
    world.desired.repair()
    world.desired.remove(file)
    return f"{file} is deleted"


def create_file(world: World, rng: Random) -> str | None:
    if world.desired.away or not (missing := sorted(set(FILES) - world.desired.files.keys())):
        return None
    wish = Wish(name=_free_name(world, rng), prefix=rng.choice(sorted(world.hub.digests)))
    world.touch(wish.name)
    world.desired.repair()
    world.desired.write(missing[0], [wish])
    return f"{missing[0]} comes with {_told([wish])}"


def _edit_one(world: World, rng: Random, what: str, change: Callable[[Wish], Wish]) -> str | None:
    file = _pick(world, rng, holds_models=True)
    if file is None:
        return None
    wishes = list(world.desired.files[file])
    at = rng.randrange(len(wishes))
    wishes[at] = change(wishes[at])
    _write(world, file, wishes)
    return f"{what} in {file}: {_told([wishes[at]])}"


def _write(world: World, file: str, wishes: list[Wish]) -> None:
    _touch_changed(world, file, wishes)
    world.desired.repair()
    world.desired.write(file, wishes)


def _touch_changed(world: World, file: str, wishes: list[Wish]) -> None:
    """Before it is written: from then on all may happen to them."""
    before = {wish.instance for wish in world.desired.files.get(file, ())}
    after = {wish.instance for wish in wishes}
    world.touch(*{str(name) for name, *_ in before ^ after})
    stay = {wish.name for wish in wishes if wish.enabled}
    world.served -= {str(name) for name, *_ in before} - stay


def _pick(world: World, rng: Random, *, holds_models: bool = False) -> str | None:
    files = [
        name
        for name in FILES
        if name in world.desired.files and (world.desired.files[name] or not holds_models)
    ]
    return rng.choice(files) if files and not world.desired.away else None


def _pick_to_spoil(world: World, rng: Random) -> str | None:
    """One that the agent is known to have taken up as it stands."""
    file = _pick(world, rng)
    if file is None or world.desired.spoilt or world.disk.was_full or not world.answers:
        return None
    world.wait_up()
    world.wait_taken_up()
    return file


def _free_name(world: World, rng: Random) -> str:
    return rng.choice([name for name in _NAMES if name not in world.desired.wishes])


def _context(rng: Random) -> int:
    return rng.choice([128, 256, 512, 1024])


def _told(wishes: list[Wish]) -> str:
    return ", ".join(
        f"{wish.name} ({wish.mode}, {wish.prefix}@{(wish.digest or 'newest')[:8]}, {wish.context}"
        f"{'' if wish.enabled else ', disabled'})"
        for wish in wishes
    )
