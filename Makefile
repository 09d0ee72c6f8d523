# zvault's commands. All of it works as root on a Debian machine that has git, make and a network.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PREFIX ?= /usr
DESTDIR ?=
LAB := tests/lab
PYTHON := /usr/bin/python3
# Where setup keeps the host's tools; empty until it ran.
VENV = $(shell $(PYTHON) -B $(LAB)/cache.py venv)
# What is compiled is kept, but not in the checkout: of what pytest computes before the first test, two thirds is compiling.
TOOL = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(VENV)/pycache PYTHONPATH=. $(VENV)/bin
LINTED = zvault tests docs config/hooks/proxmox-freeze $(LAB)/run $(LAB)/soak
NAME ?= pipeline
# make lab T="tests/lab/test_prune.py -k held": these tests only
T ?=
# make lab ZFS=2.4, make setup ZFS=2.4: another version of OpenZFS than the usual one
ZFS ?= $(ZVAULT_LAB_ZFS)
export ZVAULT_LAB_ZFS := $(ZFS)
# make lab-versions: the tests in which zvault meets what depends on OpenZFS's version: what libzfs and libzfs_core are called
# with, module parameters, devices' properties, what zpool prints of a scrub, what a receive refuses. Four CPU minutes.
VERSIONED := test_lab.py test_known_by_events.py test_scrub.py test_ledger.py test_damaged_dataset.py \
    $(addprefix test_small_streams.py::test_,properties_are_as_programs_leave_them_and_changed_ones_are_sent \
    a_property_of_a_snapshot_comes_with_it several_snapshots_at_once_arrive_each_with_its_guid \
    a_record_on_twenty_datasets_is_set_without_programs_and_at_once) \
    $(addprefix test_tuning.py::test_,set_while_the_vault_is_up_and_put_back_when_it_goes_down \
    what_counts_only_when_openzfs_is_loaded dirty_data_stays_within_memory_and_unknown_names_are_told \
    properties_of_the_pools_devices)
# OpenZFS 2.4's kernel, if it need not be built.
OTHER_KERNEL = $(shell ZVAULT_LAB_ZFS=2.4 $(PYTHON) -B $(LAB)/cache.py kernel_at_hand)
# make soak N=3: so many runs
N ?= 10
# Unit tests at once: two a CPU, for some wait for processes and deadlines.
WORKERS := $(shell echo $$((2 * $$(nproc))))

.DEFAULT_GOAL := help
.PHONY: help setup ready test test-all affected record lint types unit core lab lab-versions versions-at-hand vm soak failovers demo bench pictures format install deb release clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: ## prepare everything the other targets need (minutes the first time); ZFS=2.4 as well
	@$(LAB)/setup

# The targets one after another, and last what each took.
STEPS = began=$$SECONDS; for step in $(1); do \
	    from=$$SECONDS; $(MAKE) --no-print-directory $$step; took="$${took:-}$$step $$((SECONDS - from)) s, "; \
	done; echo "$@: $${took}together $$(((SECONDS - began) / 60)) min $$(((SECONDS - began) % 60)) s"

test: setup ## what proves most for its time: lint, types, unit tests, the core of the lab
	@$(call STEPS,lint types $(if $(T),lab,unit core))

test-all: setup ## everything: the whole lab, and what depends on OpenZFS's version with 2.4 too, if its kernel is at hand
	@$(call STEPS,lint types unit $(if $(ZFS),,versions-at-hand) lab)

affected: ready ## the tests that run what is not committed yet; SINCE=COMMIT: what changed since
	@$(TOOL)/python $(LAB)/affected.py --since $(or $(SINCE),HEAD)

record: setup ## run the whole lab and choose anew which of its tests are the core (tests/lab/core.txt)
	@folder=$$($(PYTHON) -B $(LAB)/cache.py root)/recorded; rm -rf "$$folder"; \
	$(TOOL)/python -m pytest $(LAB) --record --branches="$$folder"; \
	$(TOOL)/python $(LAB)/choose_core.py "$$folder"

ready:
	@[ -e $(VENV) ] || { echo "run 'make setup' first" >&2; exit 1; }

lint types unit core lab format: | ready
ifneq ($(ZFS),)
lab: setup
endif

lint: ## style, and which module may import which
	@$(TOOL)/ruff check $(LINTED)
	@$(TOOL)/ruff format --check $(LINTED)
	@$(TOOL)/lint-imports --no-cache

types: ## static types
	@$(TOOL)/mypy

unit: ## tests that need nothing; T="FILE -k NAME" for some
	@$(TOOL)/python -m pytest -n $(WORKERS) --dist worksteal $(or $(T),tests/unit)

core: ## a lab test of each promise of the README and each invariant (tests/lab/core.txt)
	@$(TOOL)/python -m pytest @$(LAB)/core.txt --unsteady=1

lab: ## tests in a real kernel with real OpenZFS; T= as well, ZFS=2.4: with that version
	@$(TOOL)/python -m pytest $(or $(T),$(LAB) --unsteady=1)

lab-versions: ## the tests of the lab that depend on OpenZFS's version, with 2.4
	@$(MAKE) --no-print-directory lab ZFS=2.4 T="$(VERSIONED:%=$(LAB)/%) --unsteady=1"

versions-at-hand:
	@if [ -n "$(OTHER_KERNEL)" ]; then $(MAKE) --no-print-directory lab-versions; \
	else echo "OpenZFS 2.4 is not tried: its kernel is not built yet, and 'make lab-versions' would take 16 minutes for it"; fi

vm: ## tests on a genuine Debian 13 in qemu, its own kernel and zfs-dkms; T= and ZFS=2.4 as with the lab
	@$(LAB)/setup vm
	@$(TOOL)/python -m pytest -v $(or $(T),tests/vm)

soak: setup ## the unit tests with 20 times the random cases, each fuzz target 5 minutes, the lab N=10 times in random order
	@$(TOOL)/python $(LAB)/soak --runs $(N) $(T)

failovers: setup ## hosts that share a vault in a bucket (STORAGE=image: an RBD image) fail N=20 times in a run: what is lost
	@$(LAB)/run --peer --mem 4G --timeout 7000 -- python3 -u $(LAB)/failovers.py $(or $(STORAGE),bucket) --count $(if $(filter file,$(origin N)),20,$(N))

demo: setup ## see a backup happen
	@if [ -t 1 ]; then terminal=--tty; fi; \
	$(LAB)/run --timeout 900 $${terminal:-} -- python3 $(LAB)/demo.py

bench: setup ## measure: make bench NAME=noop, small, bulk, pipeline, receive, requests, updown, blockstore, rest, restore, restore_files, restore_bucket, trickle or scale; ROUNDS=, ONLY=, MIB=, FILES=, SHORT=, DATASETS=
	@more="$(if $(DATASETS),--datasets $(DATASETS))"; \
	case "$(NAME) $(ONLY)" in \
	"scale lab") exec $(LAB)/run --alone --mem 6G --timeout 3000 -- python3 tests/bench/scale_lab.py $$more $(if $(ROUNDS),--rounds $(ROUNDS));; \
	"scale "*) exec env $(TOOL)/python tests/bench/scale.py $$more;; \
	esac; \
	peers=$$(tests/bench/get-peers); \
	disk=$$(mktemp --suffix=.img); trap 'rm -f "$$disk"' EXIT; truncate -s 160G "$$disk"; \
	$(LAB)/run --alone --mem 8G --timeout 3000 --share "$$peers" --disk "$$disk" $(foreach v,MIB FILES SHORT DATASETS TRANSFERS THREADS EXTRA,$(if $($(v)),--env $(v)=$($(v)))) -- python3 tests/bench/$(NAME).py $(if $(ROUNDS),--rounds $(ROUNDS)) $(ONLY)

pictures: ready ## take docs/pictures anew, of the status page in a real browser
	@ZVAULT_PICTURES=$(CURDIR)/docs/pictures $(TOOL)/python -m pytest tests/lab/test_page_browser.py -k pictures

format: ## rewrite the sources in the one style
	@$(TOOL)/ruff check --fix $(LINTED)
	@$(TOOL)/ruff format $(LINTED)

PACKAGES = $(DESTDIR)$(PREFIX)/lib/python3/dist-packages
DOC = $(DESTDIR)$(PREFIX)/share/doc/zvault
# What root runs is nobody else's: neither a checkout's owner and modes come along, nor those of files that were there before.
install: ## DESTDIR= PREFIX=/usr: the package, its commands, units and profiles
	@install -d $(PACKAGES) $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share
	@rm -rf $(PACKAGES)/zvault
	@umask 022; find -L zvault \( -name '*.py' -o -name py.typed -o -path 'zvault/data/*' \) -type f -print0 \
	    | xargs -0 cp -L --preserve=timestamps --parents -t $(PACKAGES)
	@find $(PACKAGES)/zvault -type d -exec chmod 755 {} + -o -exec chmod 644 {} +
	@ln -sfnr $(PACKAGES)/zvault/data $(DESTDIR)$(PREFIX)/share/zvault
	@launcher() { \
	    rm -f "$$1"; printf '#!/usr/bin/python3\nimport sys\n\nfrom zvault.%s import main\n\nsys.exit(main())\n' "$$2" >"$$1"; \
	    chmod 755 "$$1"; }; \
	launcher $(DESTDIR)$(PREFIX)/bin/zvaultctl cli.app; \
	launcher $(DESTDIR)$(PREFIX)/bin/zvaultd daemon.main
	@put() { for file in "$${@:2}"; do if [ -e "$$file" ]; then install -Dpm 644 -t "$$1" "$$file"; fi; done; }; \
	put $(DESTDIR)$(PREFIX)/lib/systemd/system systemd/*.{service,socket,timer,target,slice,path}; \
	put $(DESTDIR)$(PREFIX)/share/man/man1 docs/man/*.1; \
	put $(DESTDIR)$(PREFIX)/share/man/man5 docs/man/*.5; \
	put $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8; \
	put $(DESTDIR)$(PREFIX)/share/zsh/vendor-completions config/completion/_zvaultctl; \
	put $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d config/completion/zvaultctl.fish; \
	put $(DOC) config/zvault.toml README.md CHANGELOG.md SECURITY.md docs/*.md; \
	for room in explanation how-to reference runbooks; do put $(DOC)/$$room docs/$$room/*.md; done; \
	put $(DOC)/pictures docs/pictures/*.png
	@# There is no docs/ between them, and nothing for those who work on zvault.
	@find $(DOC) -name '*.md' -exec sed -Ei \
	    -e 's/\]\((docs|config)\//](/g' -e 's/\[([^]]*)\]\((\.\.\/)*(CONTRIBUTING\.md|ARCHITECTURE\.md|LICENSE)[^)]*\)/\1/g' {} +
	@renamed() { if [ -e "$$1" ]; then install -Dpm 644 "$$1" "$$2"; fi; }; \
	renamed systemd/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/zvault.conf; \
	renamed config/completion/zvaultctl.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/zvaultctl; \
	renamed systemd/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/zvault.conf

DEB = build/deb/zvault
DIST = build/dist
# Files as they are packed: with the changelog's date and the usual modes, whoever's checkout they come from.
EPOCH = $(shell dpkg-parsechangelog -S Timestamp)
NORMAL = --sort=name --mtime=@$(EPOCH) --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner --exclude=__pycache__
deb: ## packages for Debian 13, in build/; wants debhelper and dh-python
	@rm -rf build/deb && mkdir -p $(DEB)
	@tar -c $(NORMAL) Makefile README.md CHANGELOG.md SECURITY.md zvault systemd config docs debian | tar -xp --no-same-owner -C $(DEB)
	@cd $(DEB) && umask 022 && SOURCE_DATE_EPOCH=$(EPOCH) debian/rules binary
	@mv build/deb/*.deb build

# Debian 13's own Python and setuptools, not setup's: other versions write other metadata.
BUILD = import sys; import setuptools.build_meta as it; getattr(it, sys.argv[1])(sys.argv[2])
# What git knows; a source that was unpacked has nothing else.
SHIPPED = { [ -e .git ] && git ls-files -z 2>/dev/null || find . '(' -type f -o -type l ')' -not -path './build/*' -not -path './.*' -not -name '*.py[co]' -print0; }
release: ## packages, wheel, sdist and SHA256SUMS in build/: the same from the same sources, whoever makes it
	@of=$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' zvault/__init__.py); \
	logged=$$(dpkg-parsechangelog -S Version); \
	[ "$${logged%-*}" = "$$of" ] || { \
	    echo "zvault/__init__.py has version $$of, debian/changelog $$logged: make them the same" >&2; exit 1; }
	@if [ -n "$$(git status --porcelain 2>/dev/null)" ]; then echo "not committed: what is made is of no commit" >&2; fi
	@rm -rf build && mkdir -p $(DIST)/tree
	@$(SHIPPED) | tar -ch $(NORMAL) --null -T - | tar -xp --no-same-owner -C $(DIST)/tree
	@export SOURCE_DATE_EPOCH=$(EPOCH); umask 022; cd $(DIST); \
	(cd tree && $(PYTHON) -c '$(BUILD)' build_sdist .. >../sdist.log); \
	tar -xf *.tar.gz && rm *.tar.gz && name=$$(basename zvault-*/); \
	tar -c --format=ustar $(NORMAL) "$$name" | gzip -9n >"../$$name.tar.gz"; \
	(cd "$$name" && find . -exec touch -hd @$(EPOCH) {} + && $(PYTHON) -c '$(BUILD)' build_wheel ../.. >../wheel.log)
	@$(MAKE) --no-print-directory -C $(DIST)/tree deb >$(DIST)/deb.log 2>&1 || { tail -n 30 $(DIST)/deb.log >&2; exit 1; }
	@mv $(DIST)/tree/build/*.deb build
	@cd build && sha256sum *.deb *.whl *.tar.gz >SHA256SUMS && cat SHA256SUMS

clean: ## remove what setup and the tests left
	@cache=$$($(PYTHON) -B $(LAB)/cache.py root); \
	rm -rf --one-file-system "$$cache"/{guest,kernel,layer,system,venv,peers,vm-image,vm-packages}-* "$$cache"/runs "$$cache"/*.lock .mypy_cache .ruff_cache .pytest_cache
