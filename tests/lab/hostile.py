"""A `zfs` on the peer that lies: what it lists, how it answers a send, what becomes of what is sent to it."""

from __future__ import annotations

import json
import shlex

from peer import peer

PLACE = "/usr/local/sbin/zfs"
LIES = "/root/lies.json"

LIAR = f"""#!/usr/bin/python3
import json, os, subprocess, sys
argv, lies = sys.argv[1:], json.load(open({LIES!r}))
real = ["/usr/sbin/zfs", *argv]
if argv[0] == "send" and not any(word.startswith("-n") for word in argv):
    for dataset, answer in lies.get("send", {{}}).items():
        if argv[-1].startswith(dataset + "@") or (dataset == "-t" and "-t" in argv):
            os.execv("/bin/sh", ["sh", "-c", answer])
if argv[0] == "receive" and "steal" in lies:
    os.execv("/bin/sh", ["sh", "-c", "tee -a " + lies["steal"] + ' | exec "$@"', "sh", *real])
if argv[0] == "list":
    done = subprocess.run(real, stdout=subprocess.PIPE)
    for line in done.stdout.decode().splitlines():
        fields = line.split("\\t")
        name = fields[0].partition("@")[0].partition("#")[0]
        if name in lies.get("hide", []):
            continue
        if fields[0] in lies.get("token", {{}}) and "receive_resume_token" in " ".join(argv):
            columns = argv[argv.index("-o") + 1].split(",")
            fields[columns.index("receive_resume_token")] = lies["token"][fields[0]]
        print("\\t".join(fields))
    sys.exit(done.returncode)
os.execv(real[0], real)
"""


def lie(**lies: object) -> None:
    """From now on the peer's `zfs` lies so.

    ``hide``: datasets that it does not list; ``send``: by dataset (or ``-t``), the line of shell that answers (with
    /usr/sbin/zfs, or it would answer itself);
    ``token``: by dataset, the resume token that it lists; ``steal``: where it keeps what is received.
    """
    peer(
        f"printf %s {shlex.quote(json.dumps(lies))} >{LIES}; printf %s {shlex.quote(LIAR)} >{PLACE};"
        f" chmod +x {PLACE}"
    )


def be_honest() -> None:
    """The peer's `zfs` is OpenZFS's own again."""
    peer(f"rm -f {PLACE} {LIES}")
