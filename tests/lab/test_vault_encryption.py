"""What lies below an encrypted dataset of an ordinary pool is encrypted, by each way that a vault receives: none of it
can be read on the disk. What was stored there in the clear is critical until it is made anew.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import world
from world import World, ctl, eventually, get, ok, sh, shell, snapshots, status

LAB = {"mem": "2G", "timeout": 1000}

KEY, OTHER = Path("/root/key"), Path("/root/other-key")
ENCRYPTED = ("zfs", "create", "-o", "encryption=on", "-o", "keyformat=passphrase", "-o", "compression=off")
LINES = 3000
PLAIN = "tank/plain"
THERE = f"usb/enc/of/{PLAIN}"


def write(path: str, words: str) -> None:
    """Lines that are easily found on a disk, in a file or on a volume."""
    text = "".join(f"{words}, line {number}: nobody may read this\n" for number in range(LINES))
    with Path(path).open("r+b" if path.startswith("/dev/") else "wb") as file:
        file.write(text.encode())


def readable(words: str) -> int:
    """How many of the lines can be read on the vault's disk."""
    sh("zpool", "sync", "usb")
    return int(sh("grep", "-ac", f"{words}, line", str(world.DISK / "usb.img"), check=False) or 0)


class Below(World):
    """Filesystems, a volume and a clone in the clear; the vault's pool is ordinary, with an encrypted dataset in it."""

    extra = ""

    def source(self) -> None:
        world.DISK.mkdir(exist_ok=True)
        for pool in ("tank", "usb"):
            sh("truncate", "-s", "400M", str(world.DISK / f"{pool}.img"))
            sh(
                *("zpool", "create", "-O", f"mountpoint=/{pool}", "-O", "compression=off"),
                *(pool, str(world.DISK / f"{pool}.img")),
            )
        KEY.write_text("correct horse battery\n")
        OTHER.write_text("another horse battery\n")
        sh(*ENCRYPTED, "-o", f"keylocation=file://{KEY}", "usb/enc")
        sh("zfs", "create", PLAIN)
        sh("zfs", "create", f"{PLAIN}/kid")
        sh("zfs", "create", "-V", "4M", f"{PLAIN}/vol")
        write(f"/{PLAIN}/diary", "diary")
        write(f"/{PLAIN}/kid/letters", "letters")
        eventually("the volume's device", Path(f"/dev/zvol/{PLAIN}/vol").exists)
        write(f"/dev/zvol/{PLAIN}/vol", "ledger")
        Path(f"/{PLAIN}/kid/small").write_text("a tiny file, line by line\n")

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"

[vault.usb]
pool = "usb"
up = "always"

[backup.plain]
source = "{PLAIN}"
vault = "usb"
into = "enc/of/{{dataset}}"
keep = {{ }}
retries = 0
{self.extra}
"""


@pytest.fixture
def below():
    it = Below()
    it.clean()
    it.source()
    it.configure()
    yield it
    it.clean()


def lies(name: str) -> str:
    return get(name, "encryptionroot")


def exposed() -> list[dict[str, Any]]:
    """What the backup's verdict says of what lies in the clear."""
    found = status()["backups"][0]["verdict"]["findings"]
    return [one for one in found if one["condition"] == "exposed"]


def unlock(key: bool) -> None:
    if key:
        sh("zfs", "load-key", "usb/enc")
    else:
        sh("zfs", "unmount", "-f", "usb/enc", check=False)
        sh("zfs", "unload-key", "-r", "usb/enc")


def test_whatever_is_received_below_an_encrypted_dataset_is_encrypted(below: Below) -> None:
    unlock(False)
    below.start()
    refused = ctl("run", "plain")
    assert refused.code == 1
    assert "zfs load-key usb/enc" in refused.out + refused.err
    assert sh("zfs", "list", "-Hro", "name", "usb").split() == ["usb", "usb/enc"]
    unlock(True)
    (first,) = snapshots(f"{PLAIN}/kid")
    ok("run", "plain")
    names = sh("zfs", "list", "-Hro", "name", "usb/enc").split()
    assert f"{THERE}/kid" in names
    assert f"{THERE}/vol" in names
    assert {lies(name) for name in names} == {"usb/enc"}
    # Small streams go through libzfs_core, and a clone is received as one.
    sh("zfs", "clone", f"{PLAIN}/kid@{first}", f"{PLAIN}/copy")
    write(f"/{PLAIN}/copy/more", "copied")
    write(f"/{PLAIN}/diary2", "second")
    ok("run", "plain")
    assert lies(f"{THERE}/copy") == "usb/enc"
    assert get(f"{THERE}/copy", "origin") == f"{THERE}/kid@{first}"
    write(f"/{PLAIN}/kid/letters2", "third")
    ok("run", "plain")
    assert status()["backups"][0]["verdict"]["level"] == "ok"
    for words in ("diary", "letters", "ledger", "copied", "second", "third"):
        assert readable(words) == 0, words
    shown = ok("plan", "plain").out
    assert "encrypted by the key of usb/enc" in shown
    # What is there needs the key as well.
    unlock(False)
    write(f"/{PLAIN}/diary3", "fourth")
    refused = ctl("run", "plain")
    assert refused.code == 1
    assert "zfs load-key usb/enc" in refused.out + refused.err
    unlock(True)
    ok("run", "plain")
    assert readable("fourth") == 0
    # It goes back as it came; and below an encrypted dataset it is encrypted by the key of that.
    sh(*ENCRYPTED, "-o", f"keylocation=file://{OTHER}", "tank/vaulted")
    ok("restore", "plain", PLAIN, "tank/back", "-r")
    ok("restore", "plain", PLAIN, "tank/vaulted/back", "-r")
    for name, root in (("tank/back", "-"), ("tank/vaulted/back", "tank/vaulted")):
        assert lies(name) == lies(f"{name}/kid") == lies(f"{name}/vol") == root
        assert Path(f"/{name}/diary3").read_text() == Path(f"/{PLAIN}/diary3").read_text()
    sh("zfs", "unmount", "-f", "tank/vaulted")
    sh("zfs", "unload-key", "tank/vaulted")
    refused = ctl("restore", "plain", f"{PLAIN}/kid", "tank/vaulted/kid")
    assert "zfs load-key tank/vaulted" in refused.out + refused.err


def test_what_lies_there_in_the_clear_is_critical_until_it_is_made_anew(below: Below) -> None:
    sh("zfs", "snapshot", "-r", f"{PLAIN}@first")
    sh("zfs", "create", "-p", "-u", "usb/enc/of/tank")
    for name, flags in ((PLAIN, "-p"), (f"{PLAIN}/kid", ""), (f"{PLAIN}/vol", "-p")):
        shell(f"zfs send {flags} {name}@first | zfs receive -u usb/enc/of/{name}")
    assert [lies(f"{THERE}{path}") for path in ("", "/kid", "/vol")] == ["-", "-", "-"]
    assert readable("diary") == LINES
    told = ctl("adopt", PLAIN, THERE).out
    assert "in the clear, below usb/enc, which is encrypted" in told
    below.extra = 'also = ["first"]'
    below.configure()
    sh("zfs", "create", f"{PLAIN}/new")
    write(f"/{PLAIN}/new/poems", "poems")
    below.start()
    # What is there goes on, and is critical; what is new is refused below what lies in the clear.
    assert ctl("run", "plain").code == 1
    assert readable("poems") == 0
    (found,) = exposed()
    assert (found["level"], THERE in found["why"]) == ("critical", True)
    assert ctl("status").code == 1
    before = world.main_pid()
    sh("systemctl", "restart", "zvaultd")
    world.restarted(before)
    assert exposed(), "it is on record"
    # Made anew, as encrypt-a-vault.md says.
    for name in reversed(sh("zfs", "list", "-Hrt", "filesystem,volume", "-o", "name", THERE).split()):
        sh("zfs", "rename", name, f"{name}-old_zvault-conflict-20260101T000000Z")
    ok("run", "plain")
    names = sh("zfs", "list", "-Hro", "name", THERE).split()
    assert f"{THERE}/new" in names
    assert {lies(name) for name in names} == {"usb/enc"}
    assert status()["backups"][0]["verdict"]["level"] == "ok"


def test_what_was_received_in_part_in_the_clear_is_received_anew(below: Below) -> None:
    write(f"/{PLAIN}/kid/long", "x" * 300)
    sh("zfs", "snapshot", "-r", f"{PLAIN}@zvault_2026-01-01T00:00:00Z")
    sh("zfs", "create", "-p", "-u", "usb/enc/of/tank/plain")
    sh("zfs", "destroy", "usb/enc/of/tank/plain")
    below.start()
    subprocess.run(
        f"zfs send -p {PLAIN}@zvault_2026-01-01T00:00:00Z | head -c 150000 | zfs receive -s -u {THERE}",
        shell=True,
        check=False,
    )
    assert get(THERE, "receive_resume_token") != "-"
    assert lies(THERE) == "-"
    ok("run", "plain")
    assert lies(THERE) == "usb/enc"
    # A first run that found its holders in place, with a placeholder where the source has a dataset.
    assert {lies(name) for name in sh("zfs", "list", "-Hro", "name", "usb/enc").split()} == {"usb/enc"}


def test_what_the_source_has_in_the_clear_below_what_goes_raw_lies_so_on_the_vault(below: Below) -> None:
    sh(*ENCRYPTED, "-o", f"keylocation=file://{KEY}", f"{PLAIN}/secret")
    sh("zfs", "create", "-o", "encryption=off", f"{PLAIN}/secret/open")
    write(f"/{PLAIN}/secret/private", "private")
    below.start()
    # Below somebody's encrypted dataset it can neither be stored in the clear nor get the copy's key.
    assert ctl("run", "plain").code == 1
    assert lies(f"{THERE}/secret") == f"{THERE}/secret"
    assert f"{THERE}/secret/open" not in sh("zfs", "list", "-Hro", "name", "usb").split()
    config = Path("/etc/zvault/zvault.toml")
    config.write_text(config.read_text().replace("enc/of", "of"))
    sh("systemctl", "reload", "zvaultd")
    # What inherits its key cannot be moved away from it: the run says so, and what to do.
    told = ctl("run", "plain")
    assert told.code == 1
    assert "it is encrypted by the key of usb/enc" in " ".join(told.err.split())
    assert f"zfs rename {THERE} {THERE}-old_zvault-conflict-" in " ".join(told.err.split())
    for name in reversed(sh("zfs", "list", "-Hrt", "filesystem,volume", "-o", "name", THERE).split()):
        sh("zfs", "rename", name, f"{name}-old_zvault-conflict-20260101T000000Z")
    ok("run", "plain")
    assert lies(f"usb/of/{PLAIN}/secret/open") == "-"
    planned = {one["dataset"]: one["encryption"] for one in ok("plan", "plain", "-j").json()["datasets"]}
    assert planned[f"{PLAIN}/secret/open"].startswith("in the clear, as on its source")
    assert planned[f"{PLAIN}/secret"].startswith("raw")
    assert planned[PLAIN] == "in the clear"
    assert readable("private") == 0
    assert status()["backups"][0]["verdict"]["level"] == "ok"


def test_what_is_brought_back_inherits_its_key_again(below: Below) -> None:
    """By fail-back.md: else the next change of the passphrase leaves the child locked with the old one."""
    sh(*ENCRYPTED, "-o", f"keylocation=file://{KEY}", "tank/secret")
    sh("zfs", "create", "tank/secret/kid")
    write("/tank/secret/kid/private", "private")
    config = Path("/etc/zvault/zvault.toml")
    there = below.config_text().replace(PLAIN, "tank/secret").replace("enc/of", "of")
    config.write_text(there)
    sh("systemctl", "start", "zvaultd")
    ok("run", "plain")
    old = snapshots("tank/secret/kid")[-1]
    Path("/tank/secret/kid/more").write_text("more\n")
    ok("run", "plain")
    sh("systemctl", "stop", "zvaultd")
    for name in ("tank/secret", "tank/secret/kid"):
        world.release_all(name)
        sh("zfs", "rollback", "-r", f"{name}@{old}")
    config.write_text(
        there.replace('[vault.usb]\npool = "usb"', '[vault.usb]\npool = "tank"')
        .replace('source = "tank/secret"', 'source = "usb/of/tank/secret"\nsnapshot = { make = false }')
        .replace("of/{dataset}", "secret/{path}")
    )
    sh("systemctl", "start", "zvaultd")
    warned = {one["dataset"]: one["encryption"] for one in ok("plan", "plain", "-j").json()["datasets"]}
    assert "inherits that of tank/secret now" in warned["usb/of/tank/secret/kid"]
    done = ok("run", "plain")
    assert lies("tank/secret/kid") == "tank/secret", done.out + done.err
    sh("zfs", "unmount", "-f", "tank/secret/kid", check=False)
    sh("zfs", "unmount", "-f", "tank/secret", check=False)
    sh("zfs", "change-key", "-o", f"keylocation=file://{OTHER}", "tank/secret")
    sh("zfs", "unload-key", "-r", "tank/secret")
    sh("zfs", "load-key", "tank/secret")
    assert get("tank/secret/kid", "keystatus") == "available"
    sh("zfs", "mount", "tank/secret/kid")
    assert Path(f"{get('tank/secret/kid', 'mountpoint')}/more").read_text() == "more\n"


def test_what_would_show_or_stop_a_backup_does_not_come_in(below: Below) -> None:
    kid = f"{PLAIN}/kid"
    chosen = {"snapdev": "visible", "snapshot_limit": "900", "filesystem_limit": "80", "volmode": "none"}
    sh("zfs", "set", *(f"{name}={value}" for name, value in chosen.items()), "atime=off", kid)
    sh("zfs", "create", "-o", "zoned=on", f"{PLAIN}/jail")
    below.start()
    ok("run", "plain")
    # What zvault's own list does not have, and the ZFS here can set, would be kept out too.
    assert get(f"{THERE}/kid", "snapdev") == "hidden"
    assert get(f"{THERE}/kid", "volmode") == "default"
    assert get(f"{THERE}/jail", "zoned") == "off"
    assert {get(f"{THERE}/kid", name) for name in ("snapshot_limit", "filesystem_limit")} <= {
        "none",
        str(2**64 - 1),
    }
    assert get(f"{THERE}/kid", "atime") == "off"
    ok("restore", "plain", kid, "tank/back")
    assert {name: get("tank/back", name) for name in chosen} == chosen


def test_what_is_sent_decrypted_is_encrypted_by_the_vaults_key_or_stays_where_it_is(below: Below) -> None:
    sh(*ENCRYPTED, "-o", f"keylocation=file://{OTHER}", "tank/secret")
    sh("zfs", "create", "tank/secret/kid")
    write("/tank/secret/kid/private", "private")
    config = Path("/etc/zvault/zvault.toml")
    inside = below.config_text().replace(PLAIN, "tank/secret") + 'send = { encrypted = "decrypted" }\n'
    config.write_text(inside.replace("enc/of", "of"))
    sh("systemctl", "start", "zvaultd")
    refused = ctl("run", "plain")
    assert refused.code == 1
    assert "would store it in the clear" in " ".join((refused.out + refused.err).split())
    assert sh("zfs", "list", "-Hro", "name", "usb").split() == ["usb", "usb/enc"]
    config.write_text(inside)
    sh("systemctl", "reload", "zvaultd")
    ok("run", "plain")
    there = "usb/enc/of/tank/secret"
    assert lies(there) == lies(f"{there}/kid") == "usb/enc"
    write("/tank/secret/kid/more", "later")
    ok("run", "plain")
    assert world.snapshot_hashes(f"{there}/kid@{snapshots(f'{there}/kid')[-1]}") == world.tree_hashes(
        Path("/tank/secret/kid")
    )
    assert readable("private") == readable("later") == 0
    assert status()["backups"][0]["verdict"]["level"] == "ok"
    # Without the source's key nothing of it can be sent; without the vault's either. A restore needs only the vault's.
    sh("zfs", "unmount", "-f", "tank/secret/kid")
    sh("zfs", "unmount", "-f", "tank/secret")
    sh("zfs", "unload-key", "-r", "tank/secret")
    refused = ctl("run", "plain")
    assert refused.code == 1
    assert "zfs load-key tank/secret" in " ".join((refused.out + refused.err).split())
    ok("restore", "plain", "tank/secret/kid", "tank/back")
    assert lies("tank/back") == "-"
    assert Path("/tank/back/more").read_text().startswith("later, line 0")
    # What is there decrypted cannot go on raw.
    sh("zfs", "load-key", "tank/secret")
    sh("zfs", "mount", "tank/secret")
    sh("zfs", "mount", "tank/secret/kid")
    config.write_text(below.config_text().replace(PLAIN, "tank/secret"))
    sh("systemctl", "reload", "zvaultd")
    write("/tank/secret/kid/raw", "raw")
    told = ctl("run", "plain")
    assert told.code == 1
    assert "was received without -w" in " ".join((told.out + told.err).split())


def test_a_replica_may_stay_mounted_and_shows_what_the_newest_run_brought(below: Below) -> None:
    """By previous-versions.md: nothing can be written there, and each run goes on."""
    below.start()
    ok("run", "plain")
    page = Path("/src/docs/how-to/previous-versions.md").read_text()
    script = page.partition("```sh /usr/local/sbin/mount-cold\n")[2].partition("```")[0]
    assert "cold/home" in script
    script = script.replace("cold/home", THERE)
    for _ in range(2):
        shell(script)
    assert Path("/srv/past/kid/small").read_text() == Path(f"/{PLAIN}/kid/small").read_text()
    with Path("/srv/past/kid/small").open() as held:
        write(f"/{PLAIN}/kid/more", "later")
        ok("run", "plain")
        assert Path("/srv/past/kid/more").read_text().startswith("later, line 0")
        assert shell(f"{{ {script}\n}} 2>&1") == "", "it unmounts what is mounted, but what is open cannot be"
        assert held.readline() == "a tiny file, line by line\n"
    assert sorted(one.name for one in Path("/srv/past/kid/.zfs/snapshot").iterdir()) == snapshots(
        f"{THERE}/kid"
    )
    with pytest.raises(OSError, match="Read-only"):
        Path("/srv/past/kid/small").write_text("changed")
    assert status()["backups"][0]["verdict"]["level"] == "ok"


USB_KEY = Path("/root/usb.key")


class Plugged(Below):
    """Two disks with an encrypted pool each; neither is plugged in at first, and both backups are due once a day."""

    def source(self) -> None:
        super().source()
        USB_KEY.write_text("5a" * 32 + "\n")
        USB_KEY.chmod(0o600)
        for pool in ("usb-a", "usb-b"):
            image = world.DISK / f"{pool}.img"
            sh("truncate", "-s", "200M", str(image))
            shell(
                f"zpool create -O encryption=aes-256-gcm -O keyformat=hex -O keylocation=prompt -O mountpoint=none"
                f" -O compression=off {pool} {image} <{USB_KEY} && zpool export {pool}"
            )

    def config_text(self) -> str:
        tables = "".join(
            f"""
[vault.{pool}]
pool = "{pool}"
removable = true
encryption = {{ key = "{USB_KEY}" }}
[backup.to-{pool}]
source = "{PLAIN}"
vault = "{pool}"
schedule = "daily"
"""
            for pool in ("usb-a", "usb-b")
        )
        return f'[daemon]\nmetrics = "{world.METRICS}"\nhost = "lab"\n{tables}'

    def plug(self, pool: str) -> str:
        return sh("losetup", "--find", "--show", str(world.DISK / f"{pool}.img")).strip()

    def clean(self) -> None:
        sh("losetup", "--detach-all", check=False)
        super().clean()
        sh("losetup", "--detach-all", check=False)


@pytest.fixture
def plugged():
    it = Plugged()
    it.clean()
    it.source()
    it.configure()
    yield it
    it.clean()


def results(backup: str) -> list[str]:
    """How the runs of a backup ended, the oldest first."""
    return [run["result"] for run in reversed(ok("history", backup, "-j").json()["runs"])]


def test_what_is_due_runs_when_its_disk_appears_and_a_disk_in_the_cupboard_is_no_failure(
    plugged: Plugged,
) -> None:
    plugged.start()
    for backup in ("to-usb-a", "to-usb-b"):
        eventually("what is due is skipped", lambda name=backup: results(name) == ["skipped"])
    assert snapshots(f"{PLAIN}/kid"), "the source has a history of that time"
    assert [one["error"] for one in status()["vaults"]] == [None, None]
    assert [one["away"] for one in status()["vaults"]] == [True, True]
    loop = plugged.plug("usb-a")
    eventually("it runs by itself", lambda: results("to-usb-a") == ["skipped", "ok"])
    eventually("it can be unplugged", lambda: "usb-a" not in world.pools())
    assert results("to-usb-b") == ["skipped"]
    image = world.DISK / "usb-a.img"
    assert sh("grep", "-ac", "diary, line", str(image), check=False).strip() == "0"
    # Unplugged, over a restart too, it is as well as it was; plugged in again, it has nothing to do today.
    sh("losetup", "-d", loop)
    eventually("it is away", lambda: status()["vaults"][0]["away"])
    before = world.main_pid()
    sh("systemctl", "restart", "zvaultd")
    world.restarted(before)
    (first, second) = status()["backups"]
    assert (first["verdict"]["level"], first["lag_seconds"] is not None) == ("ok", True), first["verdict"]
    assert second["verdict"]["state"] == "new"
    assert status()["vaults"][0]["verdict"]["level"] == "ok"
    refused = ctl("run", "to-usb-a")
    assert (refused.code, "the disk of vault 'usb-a' is not there" in refused.err) == (1, True), refused.err
    said = len(results("to-usb-a"))
    plugged.plug("usb-a")
    eventually("it is there", lambda: not status()["vaults"][0]["away"])
    plugged.plug("usb-b")
    eventually("the other disk's backup runs", lambda: results("to-usb-b")[-1] == "ok")
    assert len(results("to-usb-a")) == said, "it was not due"
    write(f"/{PLAIN}/diary2", "second")
    ok("run", "to-usb-a")
    assert world.pools().isdisjoint({"usb-a", "usb-b"})
    # By hand, as ZFS has it.
    shell(f"zpool import -N usb-a && zfs load-key -L file://{USB_KEY} usb-a")
    assert lies(f"usb-a/lab/{PLAIN}/kid") == "usb-a"
