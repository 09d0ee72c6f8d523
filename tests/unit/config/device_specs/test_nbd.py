from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zvault.config.device_specs.nbd import NbdkitServer, TcpServer, UnixServer, parse_nbd


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("nbdkit:file /a.img", NbdkitServer("file", (), ("/a.img",))),
        ("nbdkit:file file=/a.img cache=none", NbdkitServer("file", (), ("file=/a.img", "cache=none"))),
        ("nbdkit:memory 1G", NbdkitServer("memory", (), ("1G",))),
        (
            "nbdkit:file '/with space.img' filter=delay wdelay=35ms filter=rate rate=80M",
            NbdkitServer("file", ("delay", "rate"), ("/with space.img", "wdelay=35ms", "rate=80M")),
        ),
        (
            "nbdkit:S3 bucket=b secret-key=+/etc/s3",
            NbdkitServer("S3", (), ("bucket=b", "secret-key=+/etc/s3")),
        ),
        ("unix:/run/nbd.sock", UnixServer("/run/nbd.sock")),
        ("unix:/run/nbd.sock?export=a%20b", UnixServer("/run/nbd.sock", "a b")),
        ("tcp:nas", TcpServer("nas", 10809, "")),
        ("tcp:nas:1234/vol/one", TcpServer("nas", 1234, "vol/one")),
        ("tcp:[2001:db8::1]:10810/x", TcpServer("2001:db8::1", 10810, "x")),
        ("tcp:[::1]", TcpServer("::1")),
    ],
)
def test_parses_and_writes_what_it_parsed(text: str, spec: object) -> None:
    assert parse_nbd(text) == spec
    assert parse_nbd(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "none of zvault:BUCKET/KEY"),
        ("/dev/nbd0", "a file or disk of this host"),
        ("iscsi:nas", "none of zvault:BUCKET/KEY"),
        ("nbdkit file /x", 'did you mean "nbdkit:…"'),
        ("/dev/sdb", "a pool on disks of the host needs no"),
        ("nbd://nas:10810/cold", 'write "tcp:nas:10810/cold"'),
        ("s3://backups/cold", '"zvault:backups/KEY size=1T endpoint=https://…"'),
        ("https://s3.example.org/backups", '"zvault:BUCKET/KEY size=1T endpoint=https://…"'),
        ("unx:/a", 'did you mean "unix:…"'),
        ("nbdkit:", "names no plugin"),
        ("nbdkit:  ", "names no plugin"),
        ("nbdkit:/usr/lib/x.so", "no nbdkit plugin"),
        ("nbdkit:file --run=sh", "no parameter"),
        ("nbdkit:file -r", "no parameter"),
        ("nbdkit:file ''", "no parameter"),
        ("nbdkit:file a.img", "absolute path"),
        ("nbdkit:file file=a.img", "absolute path"),
        ("nbdkit:file '/x", "split into words"),
        ("nbdkit:file /x filter=", "names no nbdkit filter"),
        ("nbdkit:file /x filter=--run", "names no nbdkit filter"),
        ("nbdkit:file '/a\nb'", "control character"),
        ("nbdkit:S3 secret-key=hush bucket=b", "secret-key=+/path"),
        ("nbdkit:curl https://x password=-", "password=+/path"),
        ("nbdkit:S3 secret_key=hush bucket=b", "secret_key=+/path"),
        ("nbdkit:S3 Session_Token=hush bucket=b", "Session_Token=+/path"),
        ("nbdkit:curl https://me:hush@example.org/disk", "password in its URL"),
        ("nbdkit:curl url=https://me:hush@example.org/disk", "url=… has a password in its URL"),
        ("nbdkit:curl https://x 'header=Authorization: Bearer hush'", "header=…"),
        ("s3backer:b size=1T blockSize=128k baseURL=http://me:hush@x/", "baseURL=… has a password"),
        ("unix:run/nbd.sock", "absolute path"),
        ("unix:/run/nbd.sock?name=x", "?export=NAME"),
        ("unix:/run/nbd.sock?", "?export=NAME"),
        ("unix:/" + "a" * 107, "107 bytes"),
        ("tcp:", "is not host[:port]"),
        ("tcp:-h", "is not host[:port]"),
        ("tcp:2001:db8::1", "IPv6 address stands in brackets"),
        ("tcp:nas:0", "between 1 and 65535"),
        ("tcp:nas:70000", "between 1 and 65535"),
        ("tcp:nas:ten", "is not host[:port]"),
        ("tcp:nas/-x", "begins with"),
        ("tcp:nas/a%0Ab", "control character"),
    ],
)
def test_refuses_and_says_why(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_nbd(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "nbdkit:S3 secret-key=hush",
        "nbdkit:secret-key=hush S3",
        "nbdkit:S3 --secret-key=hush",
        "nbdkit:S3 secret_key=hush",
        "nbdkit:curl https://me:hush@example.org/disk",
        "nbdkit:curl url=https://me:hush@example.org/disk",
        "nbdkit:curl https://x 'header=Authorization: Bearer hush'",
        "s3backer:b size=1T blockSize=128k baseURL=http://me:hush@x/",
        "zvault:b/k secret_key=hush",
        "zvault:b/k endpoint=https://me:hush@x",
    ],
)
def test_a_secret_is_not_repeated_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_nbd(text)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "nbdkit:curl https://me@example.org/disk",
        "nbdkit:curl https://example.org/a:b@c",
        "nbdkit:ssh me@host:/disk.img",
        "nbdkit:nbd uri=nbd://[::1]:10809/x@y",
        "nbdkit:curl https://x 'header=X-Forwarded-For: me'",
        "nbdkit:S3 secret_key=+/etc/s3 bucket=b",
        "nbdkit:curl https://x password=+/etc/pw",
    ],
)
def test_what_holds_no_secret_is_taken(text: str) -> None:
    assert parse_nbd(str(parse_nbd(text))) == parse_nbd(text)


@settings(deadline=None)
@given(st.text() | st.text(alphabet="nbdkit:uxcp/?=[]%' \"\\-f0"))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for prefix in ("", "nbdkit:", "nbdkit:file ", "unix:", "unix:/", "tcp:", "tcp:h/"):
        try:
            spec = parse_nbd(prefix + text)
        except ValueError:
            continue
        assert parse_nbd(str(spec)) == spec
        words = [spec.plugin, *spec.params] if isinstance(spec, NbdkitServer) else [spec.export]
        assert not any(word.startswith("-") for word in words)


def test_identity_is_the_bytes_not_the_way_there() -> None:
    one = parse_nbd("nbdkit:file /a/../b.img filter=delay")
    assert one.identity == parse_nbd("nbdkit:file cache=none file=/b.img").identity
    assert parse_nbd("tcp:NAS/x").identity == parse_nbd("tcp:nas:10809/x").identity
    assert parse_nbd("tcp:nas/x").identity != parse_nbd("tcp:nas/y").identity


def test_the_backing_file() -> None:
    def backing(text: str) -> str | None:
        spec = parse_nbd(text)
        assert isinstance(spec, NbdkitServer)
        return spec.backing_file

    assert backing("nbdkit:file cache=none /a=b.img") == "/a=b.img"
    assert backing("nbdkit:file dir=/srv") is None
    assert backing("nbdkit:memory 1G") is None
