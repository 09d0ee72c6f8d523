"""What was learned of a backup is told of the vault that it had then, and of no other."""

from typing import Any

from tests.unit.ops.ops_world import context
from zvault.config.schema import Config
from zvault.daemon.per_backup import ValuesByBackup


def test_a_backup_that_goes_another_way_is_not_known() -> None:
    where = context()
    learned: ValuesByBackup[int] = ValuesByBackup(where.env)
    learned["b"] = 5
    same = where.env.config

    def changed(vault: dict[str, Any] | None = None, **backup: Any) -> int | None:
        where.env.reconfigure(
            context(vault=vault, **backup).env.config.model_copy(update={"daemon": same.daemon})
        )
        where.env.host = "host"
        return learned.get("b")

    assert changed(keep={"source": {"last": 1}}, exclude=["tank/x"]) == 5
    assert changed(into="elsewhere/{dataset}") is None
    assert changed(source="tank/home") is None
    assert changed(vault={"pool": "ice"}) is None
    assert changed(vault={"pool": "cold", "host": "ssh://root@attic"}) is None
    assert (list(learned), len(learned)) == ([], 0)
    assert changed() == 5
    assert (list(learned), len(learned)) == (["b"], 1)


def test_what_was_learned_while_the_configuration_changed_is_dropped() -> None:
    where = context()
    learned: ValuesByBackup[int] = ValuesByBackup(where.env)
    before = learned.way("b")
    where.env.config = context(vault={"pool": "ice"}).env.config
    learned.put("b", 5, before)
    learned["nobody"] = 6
    assert dict(learned) == {}


def test_what_was_learned_goes_on_under_a_new_name_and_never_comes_back_from_before() -> None:
    """A backup that had become one with several vaults, and one again, was told as it had been before all that."""
    where = context()
    learned: ValuesByBackup[int] = ValuesByBackup(where.env)
    one, learned["b"] = where.env.config, 5
    several = one.model_copy(update={"backup": {"b@cold": one.backup["b"].model_copy()}})

    def rename(config: Config, before: str, name: str) -> dict[str, int]:
        where.env.reconfigure(config)
        where.env.host = "host"
        where.env.note_rename(before, name)
        return dict(learned)

    assert rename(several, "b", "b@cold") == {"b@cold": 5}
    learned["b@cold"] = 6
    assert rename(one, "b@cold", "b") == {"b": 6}
    del learned["b"]
    learned["b"] = 7
    where.env.reconfigure(several)
    del learned._found["b"]
    assert rename(one, "b@cold", "b") == {}
