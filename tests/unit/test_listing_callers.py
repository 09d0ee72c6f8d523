"""Whoever lists takes a stand on a listing that is cut short, and on one that fails.

'zfs list' ends at the first dataset that it cannot open, with status 0: taken for all there is, what comes behind it is
gone, and where that raises for all, one damaged dataset stops every other. So each caller of such a listing has a row.
"""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from tests.unit.ops.ops_world import context, with_source
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.address import parse_source
from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.names import DatasetName
from zvault.ops import adopt
from zvault.ops.context import Context
from zvault.ops.diagnosis import config_check, fit
from zvault.ops.replication import listing
from zvault.ops.restore import source_path
from zvault.ops.retention import holds
from zvault.ops.state import partial_tree
from zvault.ops.vaults import earlier_pools, name_damage
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.zfs import properties, record_sizes, rename_clone_rollback
from zvault.zfs.client import Zfs
from zvault.zfs.lzc import Lzc
from zvault.zfs.repair import damage_names, half_received

ZVAULT = Path(__file__).parents[2] / "zvault"

NAMES = "names beside the rest what cannot be listed"
REFUSES = "is asked for one thing, and refuses it while what that needs is not known"
UNKNOWN = "counts as not known what a whole listing would tell"
PASSES = "hands on what the listing says or raises"

STANDS = {
    "ops/adopt.py:_look": NAMES,
    "ops/diagnosis/config_check.py:_source": NAMES,
    "ops/diagnosis/fit.py:_read_sizes": NAMES,
    "ops/healing/heal.py:_gather": NAMES,
    "ops/healing/copy_holders.py:_in_another": NAMES,
    "ops/healing/scrub.py:_ended": NAMES,
    "ops/vaults/name_damage.py:_located": NAMES,
    "ops/vaults/name_damage.py:_read_log": NAMES,
    "ops/vaults/name_damage.py:name_damage": NAMES,
    "ops/replication/listing.py:_list_beside": NAMES,
    "ops/replication/listing.py:_vault_tree": NAMES,
    "ops/replication/listing.py:_with_asides": NAMES,
    "ops/replication/listing.py:_with_moved": UNKNOWN,
    "ops/replication/transfer.py:_is_gone": REFUSES,
    "ops/restore/find_files.py:_versions": REFUSES,
    "ops/restore/find_files.py:make_find_document": NAMES,
    "ops/restore/open_both_sides.py:_source": REFUSES,
    "ops/restore/open_both_sides.py:_vault": REFUSES,
    "ops/restore/path_past.py:_unchanged": REFUSES,
    "ops/restore/plan_restore.py:find_root": REFUSES,
    "ops/restore/plan_restore.py:plan_restore": REFUSES,
    "ops/restore/source_path.py:_mounts": NAMES,
    "ops/restore/swap_datasets.py:_keep_from_mounting": REFUSES,
    "ops/restore/swap_datasets.py:_newest_aside": REFUSES,
    "ops/restore/swap_datasets.py:_release": REFUSES,
    "ops/retention/holds.py:_ends": UNKNOWN,
    "ops/retention/holds.py:_on_vault": UNKNOWN,
    "ops/retention/holds.py:_vaults": UNKNOWN,
    "ops/retention/holds.py:find_keepsakes": NAMES,
    "ops/run.py:_look": NAMES,
    "ops/run.py:_try": NAMES,
    "ops/run_snapshot.py:_note_refused": UNKNOWN,
    "ops/run_snapshot.py:listed": NAMES,
    "ops/snapshot_run.py:_make": NAMES,
    "ops/state/partial_tree.py:find_one_dataset": REFUSES,
    "ops/state/partial_tree.py:list_around_damage": NAMES,
    "ops/state/partial_tree.py:list_existing_around_damage": NAMES,
    "ops/state/partial_tree.py:list_names_around_damage": NAMES,
    "ops/state/snapshot_obstacles.py:find_snapshot_obstacles": NAMES,
    "ops/state/source_tree.py:list_source": NAMES,
    "ops/state/source_tree.py:read_property_choices": NAMES,
    "ops/vaults/earlier_pools.py:_carried": NAMES,
    "ops/vaults/examine_pool.py:_half_received": UNKNOWN,
    "ops/vaults/put_back.py:_add_newest": UNKNOWN,
    "zfs/client.py:tree": PASSES,
    "zfs/client.py:tree_or_none": PASSES,
    "zfs/client.py:tree_around_damage": PASSES,
    "zfs/client.py:names_around_damage": PASSES,
    "zfs/repair/damage_name_guard.py:_refuse_half": UNKNOWN,
}
"""By caller, what it makes of a listing that is not whole."""

AWAITED = {
    "tree",
    "tree_or_none",
    "names",
    "snapshot_facts",
    "held_below",
    "tree_around_damage",
    "names_around_damage",
}
FUNCTIONS = {
    "find_one_dataset",
    "list_around_damage",
    "list_datasets_beside",
    "list_existing_around_damage",
    "list_half_received",
    "list_named_damage",
    "list_names_around_damage",
    "read_block_sizes",
    "read_object_ids",
    "read_user_property",
    "read_written",
}
"""What lists a tree, or all of a dataset's snapshots."""


def functions(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """All of a function but the functions in it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own_nodes(node)


def called(node: ast.AST) -> str:
    if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
        func = node.value.func
        return func.attr if isinstance(func, ast.Attribute) and func.attr in AWAITED else ""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name if name in FUNCTIONS or name in {"held_below", "held_in"} else ""
    return ""


def test_every_caller_of_a_listing_takes_a_stand() -> None:
    found = {
        f"{module.relative_to(ZVAULT)}:{function.name}"
        for module in sorted(ZVAULT.rglob("*.py"))
        for function in functions(module)
        if any(map(called, own_nodes(function)))
    }
    assert found - STANDS.keys() == set(), (
        "a new caller: say in STANDS what it makes of a part, and test that"
    )
    assert STANDS.keys() - found == set(), "it lists no more"


UNCLEAR = {"depth", "options", "how", "columns"}
"""Names of what may hold a depth."""


def lists_below(node: ast.AST) -> bool:
    """Whether this is a 'zfs list' or 'zfs get' of more than what is named in it, as a list or as a call's words."""
    parts = node.elts if isinstance(node, ast.List) else node.args if isinstance(node, ast.Call) else []
    words = [one.value if isinstance(one, ast.Constant) else ast.unparse(one).lstrip("*") for one in parts]
    if "zfs" not in words[:-1] or words[words.index("zfs") + 1] not in {"list", "get"}:
        return False
    constant = {one.value for one in parts if isinstance(one, ast.Constant)}
    return bool({"-r", "-d1"} & constant or UNCLEAR & set(words))


NOT_WHOLE = {
    "_of_each": "each dataset that the answer lacks is asked by itself",
    "_settings": "its options choose sources, and it lists nothing below what it names",
    "_table": "the same",
}
"""By function, why it need not know whether zfs told all."""


def test_whatever_lists_below_a_dataset_notices_where_zfs_ends_early() -> None:
    """damage_names.py and record_sizes.py took what came before the damage for all there is."""
    wrong, used = [], set[str]()
    for module in sorted((ZVAULT).rglob("*.py")):
        for function in functions(module):
            if not any(map(lists_below, ast.walk(function))):
                continue
            calls = {getattr(one.func, "id", "") for one in ast.walk(function) if isinstance(one, ast.Call)}
            text = ast.unparse(function.returns) if function.returns is not None else ""
            if function.name in NOT_WHOLE:
                used.add(function.name)
            elif "list_whole" not in calls and text != "list[str]":  # whoever runs an argv made elsewhere
                wrong.append(f"{module.relative_to(ZVAULT)}:{function.name}")
    assert wrong == []
    assert used == NOT_WHOLE.keys()


# What they say, of a pool that is listed whole, to a part, and not at all

Mode = Literal["whole", "part", "failed"]
MODES: tuple[Mode, ...] = ("whole", "part", "failed")
TREE = ("", "/a", "/bad", "/z")
TREE_NAMES = [f"tank{one}" for one in TREE]
SAID = "Input/output error"


def root_of(name: str) -> str:
    return "cold/x" if name.startswith("cold") else "tank"


class Tools:
    """A zfs command, of two pools that have the datasets of TREE; in a part of them ``bad`` cannot be opened."""

    address = None

    def __init__(self, mode: Mode) -> None:
        self.mode = mode

    async def run(self, argv: Sequence[str], *, check: bool = True, **_: object) -> ProcessResult:
        code, out, err = self.answer(list(argv))
        if check and code:
            raise ToolFailed("failed", err)
        return ProcessResult(tuple(argv), code, out, err, 0.0)

    def answer(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[0] != "zfs" or argv[1] not in {"list", "get"}:
            return 0, "", ""
        if self.mode == "failed":
            return 1, "", "cannot open '/dev/zfs': permission denied\n"
        at = argv.index("-o")
        columns, asked = argv[at + 1].split(","), argv[at + 2 :]
        keys, asked = (asked[0].split(","), asked[1:]) if argv[1] == "get" else ([""], asked)
        depth = next((word for word in argv if word in {"-r", "-d0", "-d1"}), "-d0")
        kinds = argv[argv.index("-t") + 1] if "-t" in argv else "filesystem,volume"
        names, said, code = [one.partition("@")[0] for one in asked], "", 0
        if depth == "-r" or (depth == "-d1" and "filesystem" in kinds):
            top = root_of(names[0])
            names = [top + one for one in TREE if (top + one).startswith(names[0])]
            if self.mode == "part":
                names, said = names[: len(names) // 2], "cannot iterate filesystems: I/O error\n"
        elif self.mode == "part" and (damaged := f"{root_of(names[0])}/bad") in names:
            names.remove(damaged)
            code, said = 1, "cannot open 'bad': I/O error\n"
        if self.mode == "part" and "written" in argv:
            said = "cannot iterate filesystems: I/O error\n"
        if "local" in argv:
            return code, "", said
        rows = names if "filesystem" in kinds or kinds == "all" else []
        rows = [*rows, *(f"{one}@s" for one in names if "snapshot" in kinds or kinds == "all")]
        lines = [[self.value(row, key, one) for one in columns] for row in rows for key in keys]
        return code, "".join("\t".join(line) + "\n" for line in lines), said

    def value(self, name: str, key: str, column: str) -> str:
        if column in {"value", "property", "source"}:
            return key if column == "property" else "-" if column == "source" else self.value(name, "", key)
        number = str(1 + sum(map(ord, name.removeprefix(root_of(name)))))
        numbers = {"guid", "objsetid", "createtxg", "creation", "used", "written", "userrefs", "recordsize"}
        words = {"name": name, "type": "filesystem", "compressratio": "1.00", "encryption": "off"}
        words |= {"compression": "off", "mountpoint": f"/{name}", "inconsistent": "0"}
        return number if column in numbers else words.get(column, "-")


def summarize(found: object) -> str:
    """Which of a, bad and z a caller knows of, in their order; with a question mark, that one cannot be listed."""
    text = str(found)
    parts = [one for one in ("a", "bad", "z") if f"tank/{one}" in text]
    if not parts:
        return (
            "cannot be asked" if "permission denied" in text else "None" if text.startswith("(None") else ""
        )
    return " ".join("bad?" if one == "bad" and SAID in text else one for one in parts)


def world(zfs: Zfs) -> Context:
    """A backup of tank into the vault cold, which is down."""
    where = with_source(context(), zfs)
    pools: Any = SimpleNamespace(state=_nothing, sync=_nothing, read_feature=_nothing)
    where.clients.zpool = pools
    where.clients.close = _nothing  # type: ignore[method-assign]
    return where


async def _nothing(*_: object) -> None:
    return None


async def _facts(zfs: Zfs) -> object:
    return await zfs.snapshot_facts(["tank"], below=True)


async def _sizes(zfs: Zfs) -> object:
    return await record_sizes.read_block_sizes(zfs.host, "tank")


async def _ids(zfs: Zfs) -> object:
    return await damage_names.read_object_ids(zfs.host, "tank")


async def _half(zfs: Zfs) -> object:
    return [*TREE_NAMES, *await half_received.list_half_received(zfs.host, "tank")]


async def _beside(zfs: Zfs) -> object:
    return await rename_clone_rollback.list_datasets_beside(zfs.host, DatasetName("tank/a"), "")


async def _property(zfs: Zfs) -> object:
    return await properties.read_user_property(zfs.host, "tank", "x:y", ["tank/a", "tank/z"])


async def _written(zfs: Zfs) -> object:
    return await properties.read_written(zfs.host, "tank/a") and "tank/a"


async def _damage(zfs: Zfs) -> object:
    """Whose a name is that may be read in two ways: of tank/a that has a file 'z:/f', or of a dataset behind it."""
    found = await damage_names.list_named_damage(zfs.host, "tank", ["tank/a:/z:/f"])
    return [one.dataset for one in found]


async def _around(zfs: Zfs) -> object:
    return await partial_tree.list_around_damage(zfs, "tank")


async def _existing(zfs: Zfs) -> object:
    return await partial_tree.list_existing_around_damage(zfs, "tank")


async def _names(zfs: Zfs) -> object:
    return await partial_tree.list_names_around_damage(zfs, "tank")


async def _well(zfs: Zfs) -> object:
    return await partial_tree.find_one_dataset(zfs, DatasetName("tank/a"))


async def _bad(zfs: Zfs) -> object:
    return await partial_tree.find_one_dataset(zfs, DatasetName("tank/bad"))


async def _aside(zfs: Zfs) -> object:
    return await listing._list_beside(zfs, DatasetName("tank/a"), "")


async def _path(zfs: Zfs) -> object:
    where = world(zfs)
    return await source_path._mounts(where, where.env.config.backup["b"])


async def _adopt(zfs: Zfs) -> object:
    request, where = adopt.AdoptRequest("b", parse_source("tank"), parse_source("cold/x")), world(zfs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "of", lambda *_: where)
        found, _, unlisted = await adopt._look(Config(), Paths(), HostRunner(), request)
    return [found.followed, found.unknown, unlisted]


async def _check(zfs: Zfs) -> object:
    return await config_check.list_config_warnings(world(zfs))


async def _begin(zfs: Zfs) -> object:
    where = world(zfs)
    return [
        str(one) for one in (await earlier_pools.read_pool_history(where, where.env.vault("cold"))).doubts
    ]


async def _holds(zfs: Zfs) -> object:
    _, unknown = await holds.find_keepsakes(world(zfs), {})  # type: ignore[arg-type]
    return unknown


async def _log(zfs: Zfs) -> object:
    async def entries(names: object) -> object:
        return names

    log: Any = SimpleNamespace(entries=entries)
    return await name_damage._read_log(log, zfs, "tank")


SAYS: dict[str, tuple[Callable[[Zfs], Awaitable[object]], str, str, str]] = {
    "tree": (lambda z: z.tree("tank"), "a bad z", "PartialListing", "ToolFailed"),
    "tree_or_none": (lambda z: z.tree_or_none("tank"), "a bad z", "PartialListing", "ToolFailed"),
    "names": (lambda z: z.names("tank"), "a bad z", "PartialListing", "ToolFailed"),
    "snapshot_facts": (_facts, "a bad z", "PartialListing", "ToolFailed"),
    "held_below": (lambda z: z.held_below("tank"), "a bad z", "PartialListing", "ToolFailed"),
    "block sizes": (_sizes, "a bad z", "PartialListing", "ToolFailed"),
    "object ids": (_ids, "a bad z", "PartialListing", "ToolFailed"),
    "half received": (_half, "a bad z", "PartialListing", "ToolFailed"),
    "datasets beside": (_beside, "a", "PartialListing", "ToolFailed"),
    "a property": (_property, "a z", "a z", "ToolFailed"),
    "what was written": (_written, "a", "ToolFailed", "ToolFailed"),
    "named damage": (_damage, "a", "", ""),
    "around damage": (_around, "a bad z", "a bad? z", "ToolFailed"),
    "existing around damage": (_existing, "a bad z", "a bad? z", "ToolFailed"),
    "names around damage": (_names, "a bad z", "a bad? z", "ToolFailed"),
    "a dataset that is well": (_well, "a", "a", "ToolFailed"),
    "a dataset that is damaged": (_bad, "bad", "ToolFailed", "ToolFailed"),
    "a place set aside": (_aside, "a", "a", "ToolFailed"),
    "a path": (_path, "a bad z", "a bad z", "ToolFailed"),
    "adopt": (_adopt, "a bad z", "a bad? z", "ToolFailed"),
    "fit": (lambda z: fit._read_sizes(z, "tank"), "a bad z", "a bad? z", "ToolFailed"),
    "check-config": (_check, "", "bad?", "cannot be asked"),
    "begin-anew": (_begin, "", "bad?", "cannot be asked"),
    "holds": (_holds, "", "bad?", "cannot be asked"),
    "the error log": (_log, "a bad z", "a bad? z", "None"),
}
"""By name: who asks, and what it says of a part and of a failure. ``bad?``: it says that this one cannot be listed."""


@pytest.fixture
def client(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> Zfs:
    async def list_names(_: object, root: str) -> tuple[list[str], dict[str, str]]:
        return [root, f"{root}/a", f"{root}/z"], {f"{root}/bad": SAID}

    monkeypatch.setattr(Lzc, "list_names", list_names)
    made = Zfs(Tools(mode))  # type: ignore[arg-type]
    monkeypatch.setattr(holds, "_uncached", lambda *_: made)
    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("who", SAYS)
async def test_what_is_said_of_a_listing(who: str, mode: Mode, client: Zfs) -> None:
    ask, *said = SAYS[who]
    try:
        told = summarize(await ask(client))
    except ZvaultError as error:
        told = type(error).__name__
    assert told == said[MODES.index(mode)]
