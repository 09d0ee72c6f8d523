"""Reading the configuration: every problem at once, each with file, line and key."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from zvault.config import cross_checks, exposure, overlap_checks, sharing_checks
from zvault.config.fields import ConfigTable, quote_text, suggest_nearest
from zvault.config.foreign_writers import list_writer_problems
from zvault.config.paths import Paths
from zvault.config.problems import ConfigFinding, ConfigProblem, list_findings
from zvault.config.profile import VaultProfile
from zvault.config.schema import Backup, Config, Vault
from zvault.config.templates import TEMPLATE_TABLE, resolve_templates
from zvault.config.toml_file import TomlDocument, parse_document, read_bytes, read_document
from zvault.config.toml_lines import KeyPath, find_line, show_key
from zvault.core.errors import ConfigError
from zvault.core.name_rules import check_word

NAMED_TABLES = ("host", "vault", "backup", "notify", TEMPLATE_TABLE)
"""Tables of tables: what conf.d adds to, one name in one file."""

AnyTable = TypeVar("AnyTable", bound=ConfigTable)


def load_config(paths: Paths, file: Path | None = None) -> Config:
    """The configuration in ``file`` (default: ``paths.config_file``) and ``conf.d/*.toml`` next to it. The default file
    may be missing where conf.d has any.

    Raises ConfigError, whose ``why`` has one line for each problem: ``FILE:LINE: KEY: what is wrong``. That others than
    root may write it is one.
    """
    main = file or paths.config_file
    merged, config = _Merged(), None
    complete = _read_all(main, merged, needed=file is not None)
    merged.problems += list_writer_problems([*merged.order, main.parent / "conf.d"])
    resolved = resolve_templates(merged.data)
    merged.report(resolved.findings)
    try:
        config = Config.model_validate(resolved.data)
    except ValidationError as error:
        merged.report(resolved.locate_findings(list_findings(error, Config)))
    # A file that cannot be read may hold what another refers to; only say what is sure.
    if complete:
        merged.report(resolved.locate_findings(_cross_check(resolved.data, config)))
    merged.problems += _profile_problems(paths, merged)
    if config is not None:
        merged.report(finding for finding, certain in _late_timeouts(paths, config) if certain)
    if config is None or merged.problems:
        raise _error(main, merged.problems, merged.order)
    return config


def list_doubts(paths: Paths, config: Config, file: Path | None = None) -> list[str]:
    """List what is wrong with a configuration that was loaded unless the host is set up for it: ``KEY: what``."""
    found = [finding for finding, certain in _late_timeouts(paths, config) if not certain]
    found += cross_checks.find_hosts_before_colons(config.backup)
    found += cross_checks.find_plain_endpoints(config.vault)
    found += cross_checks.find_plain_notifications(config.notify)
    found += cross_checks.find_short_locks(config.vault)
    return _show_findings(paths, file, found) + find_readable_secrets(paths, config, file)


def list_resolved_lines(paths: Paths, file: Path | None = None) -> list[str]:
    """The backups of a configuration that was loaded, as TOML, with what each inherits and from where."""
    merged = _Merged()
    _read_all(file or paths.config_file, merged, needed=file is not None)
    return list(resolve_templates(merged.data).format_lines())


def find_readable_secrets(paths: Paths, config: Config, file: Path | None = None) -> list[str]:
    """List what other users of this host can read of a configuration that was loaded, or change: ``KEY: what``."""
    merged = _Merged()
    _read_all(file or paths.config_file, merged, needed=file is not None)
    homes = {path: document.file for path, document in merged.home.items()}
    for backup in config.backup.values():
        if (home := homes.get(("backup", backup.table_name))) is not None:
            homes["backup", backup.name] = home
    found = [*exposure.find_exposed_secrets(config, homes), *exposure.find_writable_programs(config)]
    return _show_findings(paths, file, found)


def _show_findings(paths: Paths, file: Path | None, found: Iterable[ConfigFinding]) -> list[str]:
    """Findings about a configuration that was loaded, each once, at the keys as they were written: ``KEY: what``."""
    merged = _Merged()
    _read_all(file or paths.config_file, merged, needed=file is not None)
    located = resolve_templates(merged.data).locate_findings(found)
    return list(dict.fromkeys(f"{show_key(finding.path)}: {finding.message}" for finding in located))


def load_profile(paths: Paths, name: str) -> VaultProfile:
    """The profile ``name``, from the first of ``paths.profile_dirs`` that has it. Raises ConfigError."""
    found = _read_profile(paths, name)
    if isinstance(found, VaultProfile):
        return found
    raise _error(found[0].file, found, [])


def load_profiles(paths: Paths) -> dict[str, VaultProfile]:
    """Every profile by its name, but for those that are not right."""
    found = {name: _read_profile(paths, name) for name in _profile_names(paths)}
    return {name: one for name, one in found.items() if isinstance(one, VaultProfile)}


@dataclass
class _Merged:
    """The files read so far as one, and where in them each key stands."""

    data: dict[str, Any] = field(default_factory=dict)
    home: dict[KeyPath, TomlDocument] = field(default_factory=dict)
    order: list[Path] = field(default_factory=list)
    problems: list[ConfigProblem] = field(default_factory=list)

    def add(self, document: TomlDocument) -> None:
        """Merge one more file; what another has set already is a problem that names both places."""
        for key, value in document.data.items():
            if key in NAMED_TABLES and isinstance(value, dict) and isinstance(self.data.get(key, {}), dict):
                table = self.data.setdefault(key, {})
                self.home.setdefault((key,), document)
                for name, inner in value.items():
                    self._put(table, (key, name), inner, document)
            else:
                self._put(self.data, (key,), value, document)

    def _put(self, table: dict[str, Any], path: KeyPath, value: object, document: TomlDocument) -> None:
        name = str(path[-1])
        if name not in table:
            table[name] = value
            self.home[path] = document
            return
        other = self.home[path]
        there = f"{other.file}:{other.positions.line(path)}"
        message = f"is set in {there} already; each table stands in one file, whole"
        self.problems.append(ConfigProblem(document.file, document.positions.line(path), path, message))

    def report(self, found: Iterable[ConfigFinding]) -> None:
        """Add findings, each at the file and line its key stands on."""
        for finding in found:
            document = self._home_of(finding.path)
            line = document.positions.line(finding.path) if document else None
            file = document.file if document else self.order[0]
            self.problems.append(ConfigProblem(file, line, finding.path, finding.message))

    def _home_of(self, path: KeyPath) -> TomlDocument | None:
        return next((self.home[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.home), None)


def has_config(paths: Paths) -> bool:
    """True if there is a configuration, right or wrong: the main file, or any in conf.d."""
    return paths.config_file.exists() or bool(_drop_ins(paths.config_file.parent / "conf.d")[0])


def _read_all(main: Path, merged: _Merged, *, needed: bool) -> bool:
    """Read the main file and conf.d; whether all of it could be read. Unless it is ``needed``, the main file may be
    missing where conf.d has any.
    """
    files, problem = _drop_ins(main.parent / "conf.d")
    merged.order = [main, *files] if needed or not files or os.path.lexists(main) else files
    results = [read_document(file) for file in merged.order]
    for result in results:
        if isinstance(result, TomlDocument):
            merged.add(result)
    found = [result for result in (*results, problem) if isinstance(result, ConfigProblem)]
    merged.problems += found
    return not found


def _drop_ins(folder: Path) -> tuple[list[Path], ConfigProblem | None]:
    """``*.toml`` in conf.d by name, without hidden files: editors leave those."""
    try:
        files = sorted(
            entry for entry in folder.iterdir() if entry.suffix == ".toml" and entry.name[0] != "."
        )
    except FileNotFoundError:
        return [], None
    except OSError as error:
        return [], ConfigProblem(
            folder, None, (), f"cannot be read: {(error.strerror or str(error)).lower()}"
        )
    return files, None


def _cross_check(data: Mapping[str, Any], config: Config | None) -> Iterator[ConfigFinding]:
    """What no single table can tell. Tables that are wrong themselves take part as far as they can."""
    vaults, backups = _tables(data, "vault"), _tables(data, "backup")
    named = {name: table["vault"] for name, table in backups.items() if isinstance(table.get("vault"), str)}
    pools = {
        name: (str(table.get("host") or ""), table["pool"])
        for name, table in vaults.items()
        if isinstance(table.get("pool"), str)
    }
    yield from cross_checks.find_unknown_vaults(named, vaults)
    yield from cross_checks.find_shared_pools(pools)
    asked = {name: table.get("backups") for name, table in _tables(data, "notify").items()}
    yield from cross_checks.find_unknown_backups(
        asked, backups.keys() | {one.partition("@")[0] for one in backups}
    )
    yield from cross_checks.find_hiding_switches(config.notify if config else {})
    right_vaults = config.vault if config else dict(_right(vaults, Vault))
    right_backups = config.backup if config else dict(_right(backups, Backup))
    yield from cross_checks.find_shared_devices(right_vaults)
    yield from cross_checks.find_shared_folders(right_vaults)
    yield from cross_checks.find_long_flushes(right_vaults)
    yield from sharing_checks.find_strangers(right_vaults, platform.node())
    yield from sharing_checks.find_own_sources(right_vaults, right_backups)
    host = config.daemon.host if config else None
    yield from overlap_checks.find_overlaps(
        right_backups, right_vaults, host or platform.node() or "localhost"
    )


def _tables(data: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    tables = data.get(key)
    return (
        {name: table for name, table in tables.items() if isinstance(table, dict)}
        if isinstance(tables, dict)
        else {}
    )


def _right(tables: Mapping[str, Any], model: type[AnyTable]) -> Iterator[tuple[str, AnyTable]]:
    for name, table in tables.items():
        try:
            yield name, model.model_validate(table)
        except ValidationError:
            continue


def _late_timeouts(paths: Paths, config: Config) -> Iterator[tuple[ConfigFinding, bool]]:
    names = {vault.profile for vault in config.vault.values()}
    profiles = {
        name: found for name in names if isinstance(found := _read_profile(paths, name), VaultProfile)
    }
    return cross_checks.find_late_timeouts(config.vault, profiles)


def _profile_problems(paths: Paths, merged: _Merged) -> list[ConfigProblem]:
    """What is wrong with the profiles that vaults name: told at the vault if missing, else in the profile."""
    problems: dict[str, ConfigProblem] = {}
    missing = []
    for vault, table in _tables(merged.data, "vault").items():
        name = table.get("profile", Vault.model_fields["profile"].default)
        if not isinstance(name, str) or not _is_word(name):
            continue
        if _profile_file(paths, name) is None:
            missing.append(ConfigFinding(("vault", vault, "profile"), _no_profile(paths, name)))
        else:
            found = _read_profile(paths, name)
            own = [file for folder in paths.profile_dirs[:1] if (file := folder / f"{name}.toml").exists()]
            told = found if isinstance(found, list) else []
            told = told + list_writer_problems(own, "sets parameters of the kernel")
            problems |= {str(problem): problem for problem in told}
    merged.report(missing)
    return list(problems.values())


def _read_profile(paths: Paths, name: str) -> VaultProfile | list[ConfigProblem]:
    file = _profile_file(paths, name) if _is_word(name) else None
    if file is None:
        return [ConfigProblem(paths.profiles / f"{name}.toml", None, (), _no_profile(paths, name))]
    raw = read_bytes(file)
    return [raw] if isinstance(raw, ConfigProblem) else _parse_profile(file, raw)


@lru_cache(maxsize=64)
def _parse_profile(file: Path, raw: bytes) -> VaultProfile | list[ConfigProblem]:
    """Parses a profile. A run reads its vault's profile six times, and it is the same bytes for months."""
    document = parse_document(file, raw)
    if isinstance(document, ConfigProblem):
        return [document]
    try:
        return VaultProfile.model_validate(document.data)
    except ValidationError as error:
        lines = document.positions.lines
        return [
            ConfigProblem(file, find_line(lines, f.path), f.path, f.message)
            for f in list_findings(error, VaultProfile)
        ]


def _profile_file(paths: Paths, name: str) -> Path | None:
    files = (folder / f"{name}.toml" for folder in paths.profile_dirs)
    # lexists: a link to nowhere, or a folder that may not be entered, is to be told of when it is read.
    return next((file for file in files if file.is_symlink() or file.exists()), None)


def _no_profile(paths: Paths, name: str) -> str:
    known = _profile_names(paths)
    where = " or ".join(str(folder) for folder in paths.profile_dirs)
    hint = suggest_nearest(name, known) or (
        f"; there are: {', '.join(known)}" if known else "; there is none"
    )
    return f"no profile {quote_text(name)} in {where}{hint}"


def _profile_names(paths: Paths) -> list[str]:
    folders = (folder for folder in paths.profile_dirs if folder.is_dir())
    return sorted({file.stem for folder in folders for file in folder.glob("*.toml")})


def _is_word(name: str) -> bool:
    try:
        check_word(name)
    except ValueError:
        return False
    return True


def _error(main: Path, problems: list[ConfigProblem], order: list[Path]) -> ConfigError:
    rank = {file: index for index, file in enumerate(order)}
    problems = sorted(problems, key=lambda problem: (rank.get(problem.file, len(rank)), problem.line or 0))
    lines = dict.fromkeys(map(str, problems))
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return ConfigError(
        f"{main} cannot be used, it has {count}",
        "\n".join(lines),
        "correct what is named above, then run 'zvaultctl check-config'",
    )
