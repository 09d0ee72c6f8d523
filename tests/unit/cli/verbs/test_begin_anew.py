"""zvaultctl vault begin-anew: shows what it will forget, and orders only what was shown."""

import pytest

POOLS = [
    {"guid": "c01d", "told_by": "zvault on this host noted it, named 'cold'"},
    {"guid": None, "told_by": "x"},
]


def history(**fields):
    return {
        "history": {"vault": "cold", "pool": "cold", "create": True, "pools": POOLS, "unknown": []} | fields
    }


@pytest.fixture
def lost(daemon):
    daemon.documents["GET /v1/vaults/cold/earlier-pools"] = history()
    daemon.documents["POST /v1/vaults/cold/begin-anew"] = history()
    return daemon


def orders(daemon):
    return [body for asked, _, body in daemon.asked if asked.startswith("POST")]


@pytest.mark.parametrize(("arguments", "code"), [(["-n"], 0), ([], 2), (["-n", "--yes"], 0)])
def test_it_is_shown_and_nothing_is_forgotten_unasked(lost, ctl, arguments, code):
    said = ctl("vault", "begin-anew", "cold", *arguments)
    assert said.code == code
    assert "pool c01d: zvault on this host noted it, named 'cold'" in said.out
    assert "pool of a GUID that is not known: x" in said.out
    assert orders(lost) == []
    assert ("nothing was forgotten" in said.err) is (code == 2)


def test_the_order_names_what_was_shown(lost, ctl):
    said = ctl("vault", "begin-anew", "cold", "--yes")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "vault cold begins anew: the next run makes its pool"
    assert orders(lost) == [{"pools": POOLS}]


def test_without_create_one_is_told_what_makes_it(lost, ctl):
    lost.documents["POST /v1/vaults/cold/begin-anew"] = history(create=False)
    assert "'zvaultctl vault create cold' makes its pool" in ctl("vault", "begin-anew", "cold", "--yes").out


def test_a_vault_that_is_new_has_nothing_to_forget(lost, ctl):
    lost.documents["GET /v1/vaults/cold/earlier-pools"] = history(pools=[])
    said = ctl("vault", "begin-anew", "cold", "--yes")
    assert (said.code, orders(lost)) == (0, [])
    assert "it is new" in said.out


def test_what_could_not_be_looked_at_is_named_and_such_a_vault_is_not_called_new(lost, ctl):
    why = "tank/bad cannot be listed (I/O error)"
    lost.documents["GET /v1/vaults/cold/earlier-pools"] = history(unknown=[why])
    assert f"not known whether there is another: {why}" in ctl("vault", "begin-anew", "cold", "-n").out
    lost.documents["GET /v1/vaults/cold/earlier-pools"] = history(pools=[], unknown=[why])
    said = ctl("vault", "begin-anew", "cold", "--yes")
    assert (said.code, orders(lost)) == (0, [])
    assert why in said.out
    assert "it is new" not in said.out


def test_as_a_document(lost, ctl):
    assert '"forgotten": true' in ctl("vault", "begin-anew", "cold", "--yes", "-j").out
    assert '"forgotten": false' in ctl("vault", "begin-anew", "cold", "-n", "-j").out
