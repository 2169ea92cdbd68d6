# Saltern. `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO          ?= go
# All but the race detector compile in the same way, so that nothing is compiled twice.
export CGO_ENABLED := 0
export GOFLAGS     := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
# Says at the end which tests were skipped, and why. `make lint` vets all packages, and
# nobody debugs the programs of the tests.
# What failed is tried once more, alone, and said in the summary: a busy machine can explain one
# failure. It explains no race, and not more than three failures.
# $(call gotest,PACKAGES,FLAGS)
gotest      = $(GO) tool gotestsum --format pkgname --format-hide-empty-pkg --no-color \
	--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test \
	--packages="$(1)" -- -vet=off -ldflags=-w $(2)
SALT        := 3006.28 3007.15 3008.3
# Where the Salt releases for tests are kept; shared by all checkouts.
export SALTERN_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/saltern
# Seconds for each fuzz target in `make fuzz-smoke`.
FUZZTIME    ?= 1s
# Packages with goroutines of their own, tested with the race detector.
RACE        ?= ./supervisor/... ./lbproxy/... ./master/... ./glusterctl/mount ./internal/... ./tui/input
# Of those, the ones with tests that the race detector would falsify.
PLAIN       ?= ./master/msgpack ./master/zmtp
# Tags of files with tests that need more than unit tests may have.
TAGS        := e2e,mixed,appliance,attack,nspawn,boot,gluster,monitoring

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# What all programs of a build say they are.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
STAMP    = -X saltern/internal/release.version=$(VERSION)

.PHONY: build
build: ## build all programs into bin/
	@mkdir -p bin
	$(GO) build -ldflags='$(STAMP)' -o bin/ ./cmd/...
	@for n in salt-key salt-run salt-cp; do if [ -e bin/salt ]; then ln -sfn salt bin/$$n; fi; done

# Where `make install` puts things; PREFIX=/usr DESTDIR=tree for a package. The programs
# are those in PROGRAMS; bin/applianced, which runs here, writes its manual.
PREFIX   ?= /usr/local
BINDIR   ?= $(PREFIX)/bin
DESTDIR  ?=
PROGRAMS ?= bin
UNITS    = applianced.service saltern-master.service saltern-api.service saltern-lb.service saltern-vip.service saltern-pam.socket saltern-pam@.service

.PHONY: install
install: ## programs, units, accounts, completion and manual pages (as root, after make build; PREFIX=/usr DESTDIR=tree)
	@test -x bin/applianced || { echo 'nothing is built yet: make build' >&2; exit 1; }
	install -D -m 0755 -t $(DESTDIR)$(BINDIR) $(addprefix $(PROGRAMS)/,applianced salt-master salt-api salt)
	@for n in salt-key salt-run salt-cp; do ln -sfn salt $(DESTDIR)$(BINDIR)/$$n; done
	@for u in $(UNITS); do \
	  sed 's#/usr/local/bin/#$(BINDIR)/#' packaging/$$u | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/$$u; done
	install -D -m 0644 packaging/saltern.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/saltern.conf
	install -D -m 0644 packaging/saltern-master.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/saltern-master.conf
	@bin/applianced completion bash | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/applianced
	@bin/applianced man --dir $(DESTDIR)$(PREFIX)/share/man/man8
	@if [ -z "$(DESTDIR)" ]; then echo 'next: systemd-sysusers && systemctl daemon-reload && systemctl enable --now applianced && applianced setup'; fi

.PHONY: uninstall
uninstall: ## remove what make install has put in place; before: applianced reset --yes, systemctl disable --now applianced
	rm -f $(addprefix $(DESTDIR)$(BINDIR)/,applianced salt-master salt-api salt salt-key salt-run salt-cp)
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/systemd/system/,$(UNITS)) $(addprefix $(DESTDIR)$(PREFIX)/lib/sysusers.d/,saltern.conf saltern-master.conf)
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/applianced $(DESTDIR)$(PREFIX)/share/man/man8/applianced*.8

# Packages for Debian, Ubuntu and their like, and for those of rpm.
ARCH ?= $(shell $(GO) env GOARCH)

.PHONY: packages-parts
packages-parts: build
	@mkdir -p bin/packages/$(ARCH)
	GOARCH=$(ARCH) $(GO) build -ldflags='-s -w -buildid= $(STAMP)' -o bin/packages/$(ARCH)/ ./cmd/applianced ./cmd/salt-master ./cmd/salt ./cmd/salt-api
	$(GO) build -modfile=packaging/packages/nfpm.mod -o bin/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm

.PHONY: packages
packages: packages-parts ## deb and rpm into dist/ (VERSION=1.2.3, ARCH=arm64)
	@scripts/packages '$(VERSION)' $(ARCH) $(PACKAGES_OUT)
PACKAGES_OUT ?= dist

.PHONY: test-packages
test-packages: deps-salt ## the packages on a plain Debian 12: beside Salt with a real minion, alone, as a node; rpm's (by hand, as root; apt-get install rpm lintian)
	rm -rf bin/packages/test
	for v in 1.2.3 1.2.4; do $(MAKE) --no-print-directory packages VERSION=$$v PACKAGES_OUT=bin/packages/test; done
	$(GO) test -count=1 -v -run 'Package' ./packaging
	@GO='$(GO)' RUN='$(RUN)' scripts/test-packages

.PHONY: test-tutorials
test-tutorials: build deps-salt ## types README.md and docs/tutorials on plain Debian 12 machines with real minions (by hand, as root; RUN=TestTutorialFailover)
	@scripts/deps tutorials
	rm -rf bin/packages/tutorials
	$(MAKE) --no-print-directory packages VERSION=1.2.3 PACKAGES_OUT=bin/packages/tutorials
	@GO='$(GO)' RUN='$(RUN)' scripts/test-tutorials

# A release. SIGN=key.pem signs SHA256SUMS, IMAGES=1 adds disk images in FORMATS (as
# root), DIRTY=1 makes a trial of a tree with changes.
RELEASE_OUT ?= dist/release-$(VERSION)
.PHONY: release
release: ## all files of a release, with digests, into dist/release-1.2.3/ (VERSION=1.2.3 SIGN=key.pem, IMAGES=1, DIRTY=1 for a trial)
	@GO='$(GO)' SIGN='$(SIGN)' IMAGES='$(IMAGES)' DIRTY='$(DIRTY)' scripts/release '$(VERSION)' '$(RELEASE_OUT)'

.PHONY: release-repro
release-repro: ## two releases of the last commit must be the same, byte for byte, without disk images (by hand: VERSION=1.2.3)
	@GO='$(GO)' scripts/release-repro '$(VERSION)'

# Repositories for apt and dnf, to which the packages of FROM are added.
REPO ?= dist/repo
FROM ?= $(RELEASE_OUT)
.PHONY: repo
repo: ## repositories for apt and dnf, signed by gpg, into dist/repo/ (FROM=dist/release-1.2.3 KEY=FINGERPRINT)
	@KEY='$(KEY)' scripts/repo '$(FROM)' '$(REPO)'

# What looks at pages for people who see, hear or move otherwise.
AXE     := 4.14.1
AXE_SUM := e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
BROWSER  = $(GO) -C test/browser test -count=1 -timeout 10m

.PHONY: deps-axe
deps-axe:
	@scripts/deps axe $(AXE) $(AXE_SUM)

# Says at the end which tests were skipped, and why: without root those of three nodes.
.PHONY: test-browser
test-browser: build deps-salt deps-axe ## the console in Chromium: axe-core, pictures, three nodes (as root; UPDATE=1 writes the pictures anew, PICTURES=0 compares none; SALTERN_PICTURES=FOLDER; RUN=TestThreeNodes; SALTERN_LOSS=0 to 3 loses the node at that moment of it)
	SALTERN_AXE=$(SALTERN_CACHE)/axe-core/axe.min.js $(GO) tool gotestsum --format pkgname --no-color --raw-command -- \
	  $(GO) -C test/browser test -json -count=1 -parallel 3 -timeout 15m -run '$(or $(RUN),TestConsole|TestNotes|TestLateReturn|TestSignIn|TestThreeNodes|TestManyTabs|TestTasks|TestFleetAtWork$(if $(filter 0,$(PICTURES)),,|TestPictures))' . -args $(if $(UPDATE),-update) $(if $(filter 0,$(PICTURES)),-compare=false)

.PHONY: test-saltgui
test-saltgui: build deps-salt ## SaltGUI in Chromium: all its pages on one node, and on three of which each kind is lost (by hand, as root; SALTGUI=DIR, its folder saltgui; MINUTES=70 on its page of events; RUN=TestSaltGUIThreeNodes; apt-get install chromium fonts-dejavu-core keepalived)
	@[ -e "$(SALTGUI)/index.html" ] || { echo "SALTGUI=DIR names the folder saltgui of https://github.com/erwindon/SaltGUI; there is no '$(SALTGUI)/index.html'" >&2; exit 1; }
	SALTERN_SALTGUI="$(abspath $(SALTGUI))" SALTERN_MINUTES=$(MINUTES) $(BROWSER) -timeout 100m -v -run '$(or $(RUN),TestSaltGUI)' .

.PHONY: test-s3
test-s3: ## backups to a real S3 service that takes any keys, at S3=URL (by hand; pip install 'moto[server,s3]', then moto_server -p 5555)
	@test -n "$(S3)" || { echo "needed: S3=http://127.0.0.1:5555, the address of an S3 service that takes any keys, such as moto_server" >&2; exit 1; }
	SALTERN_S3=$(S3) $(GO) test -count=1 -v -run '^TestBucket$$' ./supervisor/backupplan

.PHONY: test-repo
test-repo: ## apt and dnf install from the repositories and refuse what was changed, on a plain Debian 12 (by hand, as root)
	@scripts/deps repo
	@GO='$(GO)' scripts/test-repo

.PHONY: oci
oci: ## the container image for amd64 and arm64 into dist/oci/, an OCI image layout
	@for a in amd64 arm64; do $(MAKE) -s --no-print-directory packages-parts ARCH=$$a; done
	@rm -rf dist/oci
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}; bin/saltern-image oci --programs bin/packages --version '$(VERSION)' --out dist/oci

.PHONY: oci-python
oci-python: packages-parts ## the container image with Python for this kind of machine into dist/oci-python/ (as root, on Debian 12)
	@rm -rf dist/oci-python
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}; bin/saltern-image oci --python --cache $(SALTERN_CACHE)/image --programs bin/packages --version '$(VERSION)' --out dist/oci-python

.PHONY: test-oci
test-oci: build oci oci-python deps-salt ## the container images and the compose files, run with real minions (by hand, as root; apt-get install podman runc skopeo curl; RUN=TestThree)
	$(if $(RUN),,@scripts/test-oci dist/oci '$(VERSION)')
	@SALTERN_OCI=$(CURDIR)/dist SALTERN_OCI_VERSION='$(VERSION)' unshare --net --mount sh -c 'ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec $(GO) -C test/oci test -count=1 -v -timeout 20m -run "$(or $(RUN),Test)" .'

.PHONY: test-arm64
test-arm64: deps-salt ## the programs for arm64 as a node with real minions, under qemu-user (by hand, some minutes; apt-get install qemu-user-static)
	@$(MAKE) -s --no-print-directory packages-parts ARCH=arm64
	@GO='$(GO)' scripts/test-arm64

.PHONY: test-terraform
test-terraform: ## the Terraform module: names, ports, answers (a few seconds; looks at the form, too, where terraform is installed)
	$(GO) -C test/terraform test -count=1 -timeout 2m .

.PHONY: docs
docs: ## the site of the documentation into dist/docs, its links checked (mkdocs-material from PyPI, by hash)
	@scripts/docs

.PHONY: run
run: ## a one-node appliance on 127.0.0.1 with one real minion, until Ctrl-C (MINION=0: without)
	@scripts/run-one-node

# The compiler and the linker take an eighth less of a processor when garbage may wait, with 40 MiB
# more each. What they make is the same, and lies in the cache under the same name.
.PHONY: test
test: export GOFLAGS += '-toolexec=/usr/bin/env GOGC=400'
test: ## everything CI runs
	@# lint fills what deps, which waits for the network, and the tests leave idle. Two of the four jobs are parts of deps.
	@$(MAKE) --no-print-directory -j4 race lint QUIETLY=nice RACEP=3 QUICK=1 AFTER=deps
	@# Each of them alone leaves a core idle for part of its time.
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-browser unit-rest test-terraform PICTURES=0
	@# The volume and then the image take as long as e2e. Fuzzing is niced and takes what they leave idle.
	@$(MAKE) --no-print-directory -j3 --output-sync=target e2e e2e-storage test-nspawn fuzz-smoke NSPAWN_AFTER=e2e-storage FUZZ=changed FUZZTIME=400ms
	@$(MAKE) --no-print-directory attack-short # alone: it measures

# What race waits for, and lint, too, where git is missing; what test-nspawn waits for.
AFTER :=
NSPAWN_AFTER :=

.PHONY: lint
lint: $(if $(shell command -v git),,$(AFTER)) ## gofmt, vet and staticcheck of all files, shell syntax
	@bad=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$bad" ]; then echo "not gofmt-ed:"; echo "$$bad"; exit 1; fi
	@# They take a third less of a processor when garbage may wait: 65 s for 95, with 0.7 GiB for 0.5.
	GOGC=400 $(QUIETLY) $(GO) vet -tags $(TAGS) ./...
	GOGC=400 $(QUIETLY) $(GO) tool staticcheck -tags $(TAGS) ./...
	@for f in scripts/* packaging/packages/*.sh .ci/run test/gluster/lab; do if [ -f "$$f" ]; then bash -n "$$f"; fi; done

.PHONY: unit
unit: packages-parts ## unit tests
	SALTERN_PYTHON=$${SALTERN_PYTHON:-$(SALTERN_CACHE)/salt-3008.3/bin/python} $(call gotest,./...)

.PHONY: test-index
test-index: build ## by hand: Python packages from the index that pip is configured for; downloads some
	SALTERN_TEST_INDEX=1 SALTERN_PYTHON=$${SALTERN_PYTHON:-$(SALTERN_CACHE)/salt-3008.3/bin/python} \
	  $(GO) test -count=1 -v -run TestPythonManual ./cmd/applianced
	SALTERN_TEST_INDEX=1 $(GO) test -tags e2e -count=1 -v -run TestVaultPillar ./test/e2e

.PHONY: unit-rest
unit-rest: packages-parts ## those that race does not run
	SALTERN_PYTHON=$${SALTERN_PYTHON:-$(SALTERN_CACHE)/salt-3008.3/bin/python} \
	  $(call gotest,$(PLAIN) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(RACE))"))

.PHONY: check
check: ## lint and unit tests of what was changed since BASE, a minute (BASE=main)
	@GO='$(GO)' BASE='$(BASE)' TAGS='$(TAGS)' scripts/check

# The arithmetic of Go's cryptography, which only Go's own packages can import. It starts no goroutines, and the
# packages above it stay watched. With it, the race detector doubles the cost of TLS handshakes.
ARITHMETIC := $(addprefix crypto/internal/fips140/,bigmod edwards25519/... mlkem nistec/...)
# Without debug information, too: nobody debugs the programs of make test.
RACEQUICK   = -gcflags=all=-dwarf=false $(foreach p,$(ARITHMETIC),'-gcflags=$p=-dwarf=false -race=false')

.PHONY: race
race: $(AFTER) ## unit tests with the race detector (RACEP=4: so many packages at a time, for they mostly wait; QUICK=1: with less work, as make test does)
	@# Without GORACE each process of a test sleeps a second at its end.
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=50 SALTERN_PYTHON=$${SALTERN_PYTHON:-$(SALTERN_CACHE)/salt-3008.3/bin/python} $(call gotest,$(RACE),-race $(if $(RACEP),-p $(RACEP)) $(if $(QUICK),$(RACEQUICK)))

.PHONY: fuzz-smoke
fuzz-smoke: ## each fuzz target for a second, beside its seeds (FUZZTIME=30s for more, FUZZ=changed: of packages that changed)
	@GO='$(GO)' FUZZTIME='$(FUZZTIME)' FUZZ='$(FUZZ)' nice scripts/fuzz-smoke # others hold times beside it

E2EP ?= 6

.PHONY: e2e
e2e: build deps-salt ## real minions of three Salt releases against a real node (E2EP=4: so many tests at a time)
	@# Parallel tests start with those of the last file: there the longest one lies.
	$(call gotest,./test/e2e/...,-tags e2e -count=1 -timeout 20m -parallel $(E2EP))

.PHONY: attack-short
attack-short: build deps-salt ## a node under attack in every way that the audit found, a few seconds each (as root; SALTERN_ATTACK_ONLY=2,7,proofs)
	$(GO) test -c -tags attack -o bin/attack.test ./test/attack
	bin/attack.test -test.timeout 15m

.PHONY: attack
attack: build deps-salt ## the same, each way for a minute from one address and from fifty, and the tests of all findings, one line each (by hand, as root, an hour)
	$(GO) test -c -tags attack -o bin/attack.test ./test/attack
	SALTERN_ATTACK=long bin/attack.test -test.timeout 120m

.PHONY: e2e-lb
e2e-lb: build deps-salt ## failures of masters and of the load balancer, five rounds, holding the times of a quiet machine (by hand, as root)
	SALTERN_STRICT=1 SALTERN_ROUNDS=5 $(GO) test -tags e2e -count=1 -timeout 60m -run '^TestBalancer' -v ./test/e2e/

.PHONY: e2e-cluster
e2e-cluster: build deps-salt ## what 303 minions tell is the same on all nodes, losses under load and while options are applied, twenty losses of nodes of a cluster while jobs run, holding the times of a quiet machine (by hand, as root)
	SALTERN_STRICT=1 SALTERN_KILLS=20 $(GO) test -tags 'e2e appliance' -count=1 -timeout 60m -parallel 1 -run '^Test(OneTruth|LossUnderLoad|LossDuringApply|ClusterKills)' -v ./test/e2e/

# How often each of them.
ROUNDS ?= 10
.PHONY: soak-cluster
soak-cluster: build deps-salt ## three nodes with a virtual address, 200 scripted and three real minions, a job each two seconds, faults one and two at a time: none run twice, none lost (by hand, as root; MINUTES=30 SEED=1; KIND=volume: on machines with a real glusterd each)
	SALTERN_SOAK_KIND=$(KIND) SALTERN_SOAK_MINUTES=$(or $(MINUTES),30) SALTERN_SOAK_SEED=$(SEED) $(GO) test -tags 'e2e appliance' -count=1 -timeout 0 -run '^TestSoakCluster$$' -v ./test/e2e/

.PHONY: e2e-returners
e2e-returners: build deps-salt ## returners of events and jobs that go away, and engines, in a cluster whose owner is killed: nothing lost, nothing twice (by hand, ten minutes; RETURNER_ROUNDS=5 AWAY=60)
	SALTERN_RETURNERS=1 SALTERN_ROUNDS=$(or $(RETURNER_ROUNDS),5) SALTERN_AWAY=$(or $(AWAY),60) $(GO) test -tags e2e -count=1 -timeout 60m -run '^TestReturnersOverKills$$' -v ./test/e2e/

.PHONY: e2e-schedule
e2e-schedule: build ## a cluster with a run of its schedule each three seconds, whose owner is killed, and restarted, fifty times: each begins once (by hand, forty minutes of a quiet machine; KILLS=50)
	SALTERN_SCHEDULE_KILLS=$(or $(KILLS),50) $(GO) test -tags e2e -count=1 -timeout 100m -run '^TestScheduleOver(Kills|Restarts)$$' -v ./test/e2e/

.PHONY: e2e-fleet
e2e-fleet: build deps-salt ## 2,000 scripted and three real minions that run states 24 times while a node is lost: what fleet.* says on each node by all ways, beside the plan and the job cache, and what fleet.explain says (by hand, ten minutes; FLEET=2000)
	SALTERN_FLEET=$(or $(FLEET),2000) $(GO) test -tags e2e -count=1 -timeout 60m -run '^Test(FleetNumbers|ExplainOnThreeNodes)$$' -v ./test/e2e/

.PHONY: e2e-merge
e2e-merge: build deps-salt ## statuses of pushes to a cluster whose owner is killed twenty times, and by an appliance's web hook under many calls (by hand, as root, ten minutes; KILLS=20)
	SALTERN_KILLS=$(or $(KILLS),20) $(GO) test -tags 'e2e appliance' -count=1 -timeout 60m -run '^TestReport(sOverKills|ByHook)$$' -v ./test/e2e/

.PHONY: e2e-violations
e2e-violations: build deps-salt ## ten times each: a removal that stops half way, masters that do not hear each other, a minion restarted while its node is lost, a full disk, a frozen leader (by hand, as root, an hour; ROUNDS=10)
	$(GO) test -tags 'e2e appliance' -count=$(ROUNDS) -timeout 120m -parallel 1 -run '^Test(RemovalStopsHalfWay|LeaveBesideAHungMaster|MastersApart|FaultDiskFull|NoJobTwice)$$' -v ./test/e2e/
	$(GO) test -tags e2e -count=$(ROUNDS) -timeout 60m -run '^TestLongLeaderFrozen$$' -v ./test/storage/

.PHONY: sim
sim: ## ten thousand seeds of each simulation of the cluster's logic (SEEDS=10000; a few minutes)
	SALTERN_SIM_SEEDS=$(or $(SEEDS),10000) $(GO) test -count=1 -timeout 60m -run Simulation -v ./master/cluster/... ./test/records
	SALTERN_SCHEDULES=2000 $(GO) test -count=1 -timeout 60m -run '^TestScheduleRunsOnceOverKills$$' -v ./master/internal/schedule

.PHONY: screens
screens: ## random keys and noise on the pages of wizard and console, on six terminals of tmux (by hand; STEPS=2000, SEED: one that a test printed)
	SALTERN_WALK_STEPS=$(or $(STEPS),2000) SALTERN_WALK_SEED=$(SEED) $(GO) test -count=1 -timeout 60m -run '^TestWalks$$' -v ./tui

.PHONY: test-postgres
test-postgres: ## three masters with one PostgreSQL, while one of them and PostgreSQL are killed (MINIONS=300; two minutes); PostgreSQL is killed for ten minutes, and slow later, while 300 returns a second go on (AWAY=10m; half an hour)
	SALTERN_POSTGRES_MASTERS=$(or $(MINIONS),300) $(GO) test -count=1 -timeout 20m -run '^TestThreeMastersWithOneDatabase$$' -v ./master/internal/postgres
	SALTERN_POSTGRES_AWAY=$(or $(AWAY),10m) $(GO) test -count=1 -timeout 120m -run '^TestLongOutage$$' -v ./master/internal/postgres

.PHONY: test-memo
test-memo: deps-salt ## random pillar trees with and without saltern_pillar_memo, and secrets of minions in it (TREES=1000 for MINIONS=200 each, SEED: random, FIRST=0; an hour of a quiet machine)
	SALTERN_MEMO_TREES=$(or $(TREES),1000) SALTERN_MEMO_FIRST=$(or $(FIRST),0) SALTERN_MEMO_MINIONS=$(or $(MINIONS),200) SALTERN_MEMO_SEED=$(or $(SEED),$$(date +%s%N)) SALTERN_PYTHON=$${SALTERN_PYTHON:-$(SALTERN_CACHE)/salt-3008.3/bin/python} \
		$(GO) test -count=1 -timeout 120m -run 'TestMemo(Faithful|Leaks)' -v ./master/internal/pillar

.PHONY: test-templates
test-templates: deps-salt ## random templates, texts and ext_pillars, rendered in the fast way and as Salt does, by three releases of Salt (N=50000, SEED: one that a test printed; an hour or more)
	for version in 3006.28 3007.15 3008.3; do \
		SALTERN_EXT_PILLARS=$(or $(N),5000) SALTERN_EXT_PILLARS_SEED=$(SEED) \
		SALTERN_TEMPLATES=$(or $(N),50000) SALTERN_TEMPLATES_SEED=$(SEED) SALTERN_PYTHON=$(SALTERN_CACHE)/salt-$$version/bin/python \
		$(GO) test -count=1 -timeout 180m -run '^Test(YAMLInGo|KeptCode|QuickSaltAnswersAsSalt|SecretsAsSaltHasThem|ExtPillarsAsSaltHasThem)$$' -v ./master/internal/pillar/renderer ./master/internal/pillar || exit 1; \
	done

.PHONY: test-reactions
test-reactions: deps-salt ## random reaction files, read here and by the reactors of three releases of Salt (N=1000, SEED: one that a test printed; minutes)
	for version in 3006.28 3007.15 3008.3; do \
		SALTERN_REACTIONS=$(or $(N),1000) SALTERN_REACTIONS_SEED=$(SEED) SALTERN_PYTHON=$(SALTERN_CACHE)/salt-$$version/bin/python \
			$(GO) test -count=1 -timeout 60m -run '^TestReactionsAreSalts$$' -v ./master/internal/pillar/renderer || exit 1; \
	done

.PHONY: test-git-twelve
test-git-twelve: deps-salt ## pillars from twelve kinds of git repositories as Salt with pygit2 compiles them (by hand, some minutes)
	@scripts/deps pygit2
	SALTERN_TWELVE=1 SALTERN_PYTHON=$${SALTERN_PYTHON:-$(SALTERN_CACHE)/salt-3008.3/bin/python} $(GO) test -count=1 -timeout 30m -run TestGitTwelve -v ./master/internal/pillar

.PHONY: e2e-revert
e2e-revert: build deps-salt ## machines put back to snapshots: one, two, all, the arbiter (by hand, as root, 20 minutes)
	$(GO) test -tags 'e2e appliance' -count=1 -timeout 60m -parallel 1 -run '^TestReverted' -v ./test/e2e/

.PHONY: e2e-clone
e2e-clone: build deps-salt ## copies of a node: beside it with another address and with its own, while it is off, in its place (by hand, as root, six minutes)
	$(GO) test -tags 'e2e appliance' -count=1 -timeout 20m -run '^TestCloneOfANode$$' -v ./test/e2e/

.PHONY: e2e-appliance
e2e-appliance: build deps-salt ## three machines from nothing to a cluster, ten times, power cuts at every step, day two, faults (by hand, as root, 20 minutes)
	$(GO) test -tags 'e2e appliance' -count=1 -timeout 60m -parallel 1 -run '^Test(Appliance(TenTimes|PowerCuts)|DayTwo$$|TwoNodesOnADirectory$$|(Leave|Tools)BesideAHungMaster$$|ClusterKey|FaultsOf(ACluster|AHungMaster|ClocksAndVersions)$$)' -v ./test/e2e/

.PHONY: e2e-import
e2e-import: build bench-swarm deps-salt ## a tree of ten years from Salt's master to a cluster of three and back, with 2,000 scripted minions and three real ones; imports killed at each step (by hand, as root, five minutes)
	SALTERN_STRICT=1 $(GO) test -tags 'e2e appliance' -count=1 -timeout 20m -run '^TestImport(OldTree|Killed)$$' -v ./test/e2e/

.PHONY: e2e-volume
e2e-volume: build deps-salt ## whole nodes on a real shared volume with real minions: replace, leave, remove, recover, an arbiter, backup and restore, an import, what 303 minions tell, 200 changes applied at once (SALTERN_ROUNDS) (by hand, as root)
	$(GO) test -tags 'e2e appliance' -count=1 -timeout 95m -parallel 1 -run '^TestApplianceVolume' -v ./test/e2e/

.PHONY: e2e-many-files
e2e-many-files: build deps-salt ## jobs with the newest files while more and more files lie on a real shared volume, and how long bringing what is new takes (by hand, as root; FILES="2000 10000 40000")
	SALTERN_FILES="$(or $(FILES),2000 10000 40000)" $(GO) test -tags 'e2e appliance' -count=1 -timeout 90m -run '^TestApplianceVolumeManyFiles$$' -v ./test/e2e/

.PHONY: e2e-mixed
e2e-mixed: build deps-salt ## from a cluster of Salt's masters to ours and back, two masters of both kinds, holding the times of a quiet machine (by hand)
	SALTERN_STRICT=1 $(GO) test -tags 'e2e mixed' -count=1 -timeout 60m -parallel 3 -run '^(TestMixed|TestTopolog|TestMigration)' -v ./test/e2e/

.PHONY: bench-storage
bench-storage: bench-swarm build ## three masters on the shared volume and on a local directory (as root; STORAGE_BENCH='--rounds 5')
	python3 test/bench/storage.py --bin bin --swarm "$(SWARM)" $(STORAGE_BENCH)

.PHONY: e2e-storage
e2e-storage: build ## the shared volume on three pretend machines with real glusterds (as root)
	$(call gotest,./test/storage/,-tags e2e -count=1 -timeout 20m -run '^TestVolume')

.PHONY: e2e-storage-long
e2e-storage-long: build ## the same: replace, remove, interrupt every step, every fault by its code, move a directory to a volume, what two nodes survive, what was written is copied, the cost when idle (by hand, three quarters of an hour)
	$(GO) test -tags e2e -count=1 -timeout 60m -run '^TestLong' -v ./test/storage/

.PHONY: test-peer
test-peer: build ## Salt's own integration tests (PEER_SUITE=harness, as root; PEER_ARGS=options)
	@scripts/peer-suite $(PEER_ARGS)

# SWARM plays minions; another program with the same modes, flags and report may
# be given. BENCH are flags of test/bench/master.py.
SWARM ?= bin/swarm
BENCH ?= --rounds 3
.PHONY: bench-swarm
bench-swarm:
	$(if $(filter bin/swarm,$(SWARM)),$(GO) build -o bin/swarm ./test/load/swarm)

.PHONY: bench-master
bench-master: bench-swarm build deps-salt ## compare the master with Python's (BENCH='--rounds 3 --large')
	python3 test/bench/master.py --go bin/salt-master --python $(SALTERN_CACHE)/salt-3008.3/bin/salt-master \
	  --renderer-python $(SALTERN_CACHE)/salt-3008.3/bin/python --swarm "$(SWARM)" $(BENCH)

# BENCH_STORM are flags of test/bench/storm.py.
BENCH_STORM ?=
.PHONY: bench-storm
bench-storm: bench-swarm build deps-salt ## what the master does in Python at many events and calls at once, compared with Python's master (by hand, ten minutes; BENCH_STORM='--minions 2000')
	python3 test/bench/storm.py --go bin/salt-master --python $(SALTERN_CACHE)/salt-3008.3/bin/salt-master \
	  --renderer-python $(SALTERN_CACHE)/salt-3008.3/bin/python --swarm "$(SWARM)" $(BENCH_STORM)

# BENCH_HIGHSTATE are flags of test/bench/highstate.py.
BENCH_HIGHSTATE ?=
.PHONY: bench-highstate
bench-highstate: bench-swarm build deps-salt ## a job of state.apply for 3,000 minions whose pillars are 21 templates, compared with Python's master (by hand, on a quiet machine, half an hour; BENCH_HIGHSTATE='--before OTHER/salt-master --minions 500')
	python3 test/bench/highstate.py --go bin/salt-master --python $(SALTERN_CACHE)/salt-3008.3/bin/salt-master \
	  --renderer-python $(SALTERN_CACHE)/salt-3008.3/bin/python --swarm "$(SWARM)" $(BENCH_HIGHSTATE)

# BENCH_DIFF are flags of test/bench/diff.py.
BENCH_DIFF ?=
.PHONY: bench-diff
bench-diff: bench-swarm build deps-salt ## pillar.diff and pillar.readers for 2,000 minions, alone and while these run jobs (by hand, ten minutes; BENCH_DIFF='--minions 500 --pings 20')
	python3 test/bench/diff.py --go bin/salt-master --salt-run bin/salt-run \
	  --renderer-python $(SALTERN_CACHE)/salt-3008.3/bin/python --swarm "$(SWARM)" $(BENCH_DIFF)

# HISTORY_RUNS are made once and stay in HISTORY_DIR, some 100 bytes on disk for each.
HISTORY_RUNS ?= 10000000
HISTORY_DIR ?= /var/tmp/saltern-bench-history
.PHONY: bench-history
bench-history: ## look-ups in the history of ten million returns (by hand, ten minutes; HISTORY_RUNS=1000000, HISTORY_DIR)
	mkdir -p $(HISTORY_DIR)
	SALTERN_HISTORY_DIR=$(HISTORY_DIR) SALTERN_HISTORY_RUNS=$(HISTORY_RUNS) \
	  $(GO) test -count 1 -run TestTenMillion -v -timeout 3h ./master/history

# BENCH_API are flags of test/bench/api.py.
BENCH_API ?= --rounds 3
.PHONY: bench-api
bench-api: bench-swarm build deps-salt ## compare salt-api with Salt's rest_cherrypy beside one master (as root, 3 minutes; BENCH_API='--seconds 10')
	python3 test/bench/api.py --bin bin --venv $(SALTERN_CACHE)/salt-3008.3 --swarm "$(SWARM)" $(BENCH_API)

# See test/bench/lb/run for more settings.
.PHONY: bench-lb
bench-lb: build ## compare the load balancer with HAProxy (root; REPS=5 ONLY=speed,fail)
	test/bench/lb/run

# SOAK are flags of test/soak.
SOAK ?= -duration 30m
.PHONY: soak-lb
soak-lb: build ## load, abuse and faults on the load balancer for half an hour; nothing may be left behind (SOAK='-duration 4h')
	$(GO) run ./test/soak -program bin/applianced $(SOAK)

# SOAK_API are flags of test/soak/api.
SOAK_API ?=
.PHONY: soak-api
soak-api: bench-swarm build ## a million requests of all kinds to salt-api; memory and descriptors stay as they are (20 minutes on two quiet cores; SOAK_API='-n 50000')
	$(GO) build -o bin/soak-api ./test/soak/api
	bin/soak-api -swarm "$(SWARM)" $(SOAK_API)

.PHONY: bench-cluster
bench-cluster: bench-swarm build deps-salt ## three masters and lb against three of Python's and HAProxy (BENCH_CLUSTER=options; needs haproxy and a quiet machine)
	python3 test/bench/cluster.py --bin bin --venv $(SALTERN_CACHE)/salt-3008.3 --swarm "$(SWARM)" $(BENCH_CLUSTER)

.PHONY: test-gluster
test-gluster: ## real glusterds on pretend machines: form, grow, break, heal, TLS (by hand, as root)
	@command -v glusterd mkfs.xfs >/dev/null || { echo "needed: apt-get install glusterfs-server glusterfs-client xfsprogs iproute2" >&2; exit 1; }
	$(GO) test -tags gluster -count=1 -timeout 30m -run 'TestLife|TestAttack33' -v ./glusterctl/

# Images. PYTHON=0 leaves Salt's Python library out, FORMATS chooses among raw,
# qcow2, vhd, box, ova, box-virtualbox, upgrade, upgrade-ova; SIGN=key.pem signs upgrades, NEXT=30 promises
# the next one within so many days; LEVEL is zstd's.
PYTHON      ?= 1
FORMATS     ?= qcow2,ova$(if $(SIGN),$(comma)upgrade$(comma)upgrade-ova)
LEVEL       ?= 9
IMAGE_OUT   ?= dist
IMAGE_VERSION ?= $(VERSION)
comma       := ,
IMAGE_FLAGS  = --programs bin/image --cache $(SALTERN_CACHE)/image --python=$(if $(filter 0,$(PYTHON)),false,true) --version $(IMAGE_VERSION) --commit-time $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: image-programs
image-programs: VERSION := $(IMAGE_VERSION)
image-programs:
	@mkdir -p bin/image
	$(GO) build -ldflags='-s -w -buildid= $(STAMP)' -o bin/image/ ./cmd/applianced ./cmd/salt-master ./cmd/salt-api ./cmd/salt
	$(GO) build -ldflags='$(STAMP)' -o bin/ ./cmd/saltern-image

.PHONY: image
image: image-programs ## disk images into dist/ (as root; PYTHON=0, FORMATS=raw,qcow2,ova, LEVEL=15, SIGN=key.pem)
	@scripts/deps image
	bin/saltern-image build $(IMAGE_FLAGS) --out $(IMAGE_OUT) --format $(FORMATS) --level $(LEVEL) $(if $(SIGN),--sign $(SIGN)) $(if $(NEXT),--next $(NEXT))

.PHONY: image-repro
image-repro: image-programs ## two builds must be the same, byte for byte (by hand, as root)
	@scripts/deps image
	@scripts/image-repro $(IMAGE_FLAGS)

.PHONY: test-nspawn
test-nspawn: image-programs deps-salt $(NSPAWN_AFTER) ## the image's tree: its files, and booted by systemd in containers, one node and three (as root; RUN=TestNode)
	@GO='$(GO)' RUN='$(RUN)' scripts/test-nspawn $(IMAGE_FLAGS)

.PHONY: test-upgrade
test-upgrade: image-programs deps-salt ## three machines in containers get a version while real minions work: upgrade --all, and the upgrade window (by hand, as root; half an hour; RUN=TestUpgradeMachines)
	@scripts/deps image
	@GO='$(GO)' RUN='$(or $(RUN),^TestUpgrade)' SKIP='^$$' TIMEOUT=60m scripts/test-nspawn $(IMAGE_FLAGS)

.PHONY: test-boot
test-boot: image-programs ## the disks booted by QEMU, BIOS and UEFI (by hand, as root; slow without KVM)
	@scripts/deps image
	@mkdir -p $(SALTERN_CACHE)/boot && { [ -e $(SALTERN_CACHE)/boot/key.pem ] || bin/saltern-image keygen $(SALTERN_CACHE)/boot/key.pem; }
	bin/saltern-image build $(IMAGE_FLAGS) --out $(SALTERN_CACHE)/boot --format qcow2,upgrade --level 3 --sign $(SALTERN_CACHE)/boot/key.pem
	SALTERN_DIST=$(SALTERN_CACHE)/boot $(GO) test -tags boot -count=1 -timeout 120m -v -run '$(or $(RUN),.)' ./test/image/

.PHONY: test-monitoring
test-monitoring: build ## docs/monitoring with Debian's Prometheus: a scrape; the rules are checked by make unit (by hand: apt-get install prometheus)
	$(GO) test -tags monitoring -count=1 -timeout 10m ./test/monitoring/

.PHONY: deps
deps: ## what the tests need on a fresh Debian 12 (as root) and the Salt releases
	@scripts/deps packages
	@$(MAKE) --no-print-directory deps-salt deps-promtool deps-pygit2 deps-axe deps-modules

.PHONY: deps-salt $(SALT:%=deps-salt-%)
deps-salt: $(SALT:%=deps-salt-%)
$(SALT:%=deps-salt-%): deps-salt-%:
	@scripts/deps salt $*

.PHONY: deps-promtool deps-pygit2
deps-promtool deps-pygit2: deps-%:
	@scripts/deps $*

.PHONY: deps-modules
deps-modules:
	$(GO) mod download
	$(GO) -C test/oidcprovider/server mod download
	$(GO) -C test/browser mod download

.PHONY: clean
clean: ## remove what was built and the data of `make run`
	rm -rf bin .run
