# Developer commands. `make` lists them.

GO        ?= go
LINTER    ?= golangci-lint
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
TESTFLAGS ?= -count=1 -shuffle=on
# Shipped binaries use the PGO profile, which takes a minute more to build.
PLAIN      = -pgo=off
# The linter vets all packages once, not each build of each test.
UNVETTED   = $(PLAIN) -vet=off
PROFILES   = $(CURDIR)/.profiles
# The profile of the released program, also used by the benchmark.
PROFILE    = $(CURDIR)/cmd/exportbridge/default.pgo
CLI        = exportbridge/cmd/internal/cli
REVISION  ?= $(shell git rev-parse HEAD 2>/dev/null)
# Flags of release builds, independent of the machine.
SHIP       = -trimpath -buildvcs=false -ldflags "-s -w -X $(CLI).version=$(VERSION) -X $(CLI).revision=$(REVISION)"
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
DIST      ?= $(CURDIR)/dist
ACTIONLINT = github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
# Name of the released image, as a registry knows it, without a tag.
IMAGE     ?= exportbridge
# The time of all released files: that of the commit.
EPOCH     ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.DEFAULT_GOAL := help
.PHONY: help demo build test check lint docs up down test-real test-kafka test-compose browser model broken explore poison proof soak bench bench-fleet peers pgo image release release-test release-check rename recording

# A line "##@ name" starts a group.
help:
	@awk -F ':.*## ' '/^##@ / { printf "%s%s:\n", gap, substr($$0, 5); gap = "\n" } /^[a-z-]+:.*## / { printf "  %-13s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Everyday

demo: ## run the demo: API, Kafka and Redis embedded in one process
	@echo "building the demo: the first time this compiles all libraries, which takes some minutes"
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && trap : INT TERM && \
	$(GO) build -v $(PLAIN) -o "$$dir/exportbridge-dev" ./cmd/exportbridge-dev && \
	{ test ! -t 0 || set -m; "$$dir/exportbridge-dev" demo; } # in the foreground of a terminal: a Ctrl-C would end make, as an error

build: ## build ./exportbridge
	CGO_ENABLED=0 $(GO) build $(SHIP) -o exportbridge ./cmd/exportbridge

# These take the longest, and bench mostly waits: named first, they begin first.
LONGEST = ./cmd/internal/e2e ./cmd/internal/dev/bench

test: ## run all tests on embedded servers; needs only Go
	$(GO) test $(UNVETTED) $(TESTFLAGS) -timeout 20m $(LONGEST) ./...

# What one goroutine or another program computes, or counts in memory, make test runs in full:
# the race detector would take minutes to see nothing.
NO_RACE = AuditLists|AlertRules|DatesOfAllDays|EpochRollsOver|.*AgainstOracle|MutatedTimes|UndatedAtBoundary|WrongFlagValues|DefaultFormIsUnchanged|Form(Items|Windows)$$|.*(Bomb|Alloc)
# Under the detector each program sleeps for a second when it ends, to watch the goroutines that
# still run. The tests end theirs before.
check: export GORACE = atexit_sleep_ms=0

check: lint ## run all checks that a commit must pass, beside make test
	$(GO) mod tidy -diff
	$(GO) run $(PLAIN) ./cmd/exportbridge config docs --check cmd/exportbridge/docs/settings.md
	@# of e2e, those that start the test binary itself: the detector does not see the programs that the others build
	$(GO) test $(UNVETTED) -race $(TESTFLAGS) -timeout 20m -run '^Test(Scripts|Signals|SimulateStops|DemoOnATerminal)$$' ./cmd/internal/e2e
	cd cmd/internal/release && $(GO) test $(PLAIN) $(TESTFLAGS) ./deploy
	EXPLORE_SCHEDULES=500 $(GO) test $(UNVETTED) -race $(TESTFLAGS) -timeout 20m -skip '^(Test|Fuzz)($(NO_RACE))' \
	  $(filter-out %/e2e,$(LONGEST)) $$($(GO) list ./... | grep -v /e2e$$)

lint: ## check the format, run the linter
	@command -v $(LINTER) >/dev/null || { echo "install the linter: go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"; exit 1; }
	@unformatted=$$(gofmt -l .) && test -z "$$unformatted" || { echo "$$unformatted: run gofmt -w ."; exit 1; }
	GOFLAGS="$(GOFLAGS) $(PLAIN)" $(LINTER) run ./...
	cd cmd/internal/release && GOFLAGS="$(GOFLAGS) $(PLAIN)" $(LINTER) run ./...

docs: ## regenerate settings page, alert rules and licences
	$(GO) run $(PLAIN) ./cmd/exportbridge config docs --write cmd/exportbridge/docs/settings.md
	$(GO) run $(PLAIN) ./cmd/exportbridge alerts --force --output cmd/exportbridge/deploy/helm/files/alerts.yml
	@file=cmd/exportbridge/deploy/kubernetes/monitoring/rules.yaml; \
	{ sed '/^spec:/q' $$file; $(GO) run $(PLAIN) ./cmd/exportbridge alerts | sed 's/^./  &/'; } >$$file.new && mv $$file.new $$file
	$(GO) test $(UNVETTED) -run TestNotices ./cmd/exportbridge -update

##@ Run in containers

up: ## start Kafka, Redis and bridge; without .env, a simulator too
	@test -e .env || cp cmd/exportbridge/deploy/compose/simulator.env .env
	VERSION=$(VERSION) REVISION=$(REVISION) docker compose up --build --wait

down: ## stop the containers and delete their data
	EXPORT_API_KEY=- docker compose --profile "*" down --volumes

##@ Deep checks

# What tests on no server is in `make test`: whole packages, and these tests of e2e. So is what
# the settings, the API or a door decides: the broker sees none of it.
NO_SERVERS = Test(Compose|DemoOnATerminal|DocumentLinks|HelpWidth|Image|MakeDemo|OffersAreTaken|ReadmeInstall|Recording|ReloadSignals|Scripts|Signals|SimulateStops|Unit)
NO_BROKER  = AcceptWithStandby AliveWhileServersAreAway BackfillNumbered DeadLettersOfAWrongResource ExpiredCursor \
  Forms JobsOverHTTP JobsShareTheRateLimit Learn LogsHoldNoContent NewestFirst Notify ProofOracle Recording Schema \
  SchemaBadEvents SchemaStops Secrets ShowsOverHTTP Traces TracesWithoutCollector VerifyMany VerifyRefuses \
  VerifySharedIDs VerifyWithoutIDs WindowForms WindowOfEmptyPages
EMPTY      =

# The packages that speak with Kafka or Redis, and the other tests that do.
ON_SERVERS = ./bridge/bridgetest/servers ./bridge/kafkaadmin ./bridge/kafkaclient ./bridge/kafkagroup ./bridge/kafkasink ./bridge/keyring ./cursorstore

test-real: ## run the tests on real Apache Kafka and Redis
	TEST_REAL=1 $(GO) test $(UNVETTED) $(TESTFLAGS) -timeout 50m -skip '^($(NO_SERVERS)|Test(Document(Commands|HTTP)|E2E($(subst $(EMPTY) $(EMPTY),|,$(strip $(NO_BROKER)))))$$)' ./cmd/internal/e2e $(ON_SERVERS)
	TEST_REAL=1 $(GO) test $(UNVETTED) $(TESTFLAGS) -timeout 10m -run '^Test(CheckOnRealRedisWithEviction|SchemaRegisterOnRegistry)$$' ./cmd/internal/command

KAFKA_VERSIONS = 3.9.1 4.0.1 4.1.1 4.2.0 4.3.1 4.3.1/transaction.version=1

test-kafka: ## conformance, crash test on each of VERSIONS; KILLS=20
	@for version in $(or $(VERSIONS),$(KAFKA_VERSIONS)); do echo "== Apache Kafka $$version"; \
	TEST_REAL=1 TEST_KAFKA_VERSION=$$version E2E_CHAOS=1 E2E_KILLS=$(or $(KILLS),20) \
	$(GO) test $(UNVETTED) -count=1 -timeout 40m -run 'TestRealKafka|TestConformanceOnKafka|TestE2EProofChaos|TestE2EKafkaVersion' \
	./bridge/bridgetest/servers ./bridge/kafkasink ./cmd/internal/e2e || exit 1; done

# Without Docker: podman, and stand-ins for the images, on Debian as root.
test-compose: ## start the compose project in containers, kill each
	TEST_COMPOSE=1 cmd/exportbridge/deploy/compose/test/engine $(GO) test $(UNVETTED) -count=1 -v -timeout 40m -run '^TestComposeUp$$' ./cmd/internal/e2e

browser: ## test the operations page in Chromium; SCREENSHOTS=dir
	$(if $(SCREENSHOTS),SCREENSHOTS=$(abspath $(SCREENSHOTS))) $(GO) test $(UNVETTED) $(TESTFLAGS) -tags browser -timeout 60m ./bridge/ops/ui

model: ## check the models of the protocols, and each broken rule, with spin
	MODEL=1 $(GO) test $(UNVETTED) -count=1 -v -timeout 10m -run TestModel ./bridge/engine ./bridge/windows ./bridge/backfill ./bridge/reconcile ./bridge/deadletter

broken: ## remove each rule of the protocol: a test must fail
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	$(GO) run $(PLAIN) ./bridge/bridgetest/rules/overlay "$$dir" && \
	$(GO) test $(UNVETTED) -overlay "$$dir/overlay.json" -count=1 -tags proof -timeout 30m -v -run 'Broken' ./bridge/engine ./bridge/windows ./cmd/internal/e2e

explore: ## test schedules of two processes with faults; SECONDS=60
	EXPLORE_SECONDS=$$(($(or $(SECONDS),60) / 4)) $(GO) test $(UNVETTED) -count=1 -v -timeout 60m -run 'TestExplore(Windows|Random)?$$' ./bridge/engine

poison: ## overwrite released pages under the race detector; EVENTS=N
	POISON_EVENTS=$(or $(EVENTS),1000000) $(GO) test $(UNVETTED) -race -count=1 -timeout 30m -v -run TestPoisonedPages ./bridge/kafkasink

# FLEET=1: 50 STREAMS, 200 KILLS, and the program of UPGRADE_FROM in turn with today's.
proof: ## kill, pause, cut; FLEET, KILLS, ZOMBIES, MINUTES, UPGRADE
	TEST_REAL=1 $(if $(FLEET),E2E_STREAMS=$(or $(STREAMS),50) E2E_KILLS=$(or $(KILLS),200) E2E_UPGRADE_FROM=$(or $(UPGRADE_FROM),f54da5f2)) \
	$(if $(UPGRADE_FROM),E2E_UPGRADE_FROM=$(UPGRADE_FROM)) $(if $(KILLS),E2E_CHAOS=1 E2E_KILLS=$(KILLS)) $(if $(ZOMBIES),E2E_ZOMBIES=$(ZOMBIES)) $(if $(MINUTES),E2E_MINUTES=$(MINUTES)) $(if $(UPGRADE),E2E_UPGRADE=$(UPGRADE)) $(if $(SEED),E2E_SEED=$(SEED)) \
	$(GO) test $(UNVETTED) -count=1 -v -timeout 3h -run '$(or $(if $(FLEET),TestE2EProofFleet),$(if $(UPGRADE),TestE2EProofUpgrade),$(if $(KILLS),TestE2EProof(Chaos|Windows|Late|Routes)),$(if $(ZOMBIES),TestE2EProof(Zombies|Pair)),$(if $(MINUTES),TestE2EProof(Cluster|Rest)),TestE2EProof)' ./cmd/internal/e2e

peers: ## follow one list with other tools too; SECONDS=120, KILLS=6
	cmd/internal/dev/peers/run $(or $(SECONDS),120) $(or $(KILLS),6)

soak: ## run one bridge with a fault every 5 s; MINUTES=30
	TEST_REAL=1 SOAK_MINUTES=$(or $(MINUTES),30) $(GO) test $(UNVETTED) -count=1 -v -timeout 3h -run TestE2ESoak ./cmd/internal/e2e

##@ Performance

bench: ## measure this machine; ROWS=name, QUICK=1, KAFKA, REDIS
	$(GO) run -pgo=$(PROFILE) ./cmd/exportbridge-dev bench $(ROWS) $(if $(QUICK),--quick) $(if $(KAFKA),--kafka $(KAFKA)) $(if $(REDIS),--redis $(REDIS))

bench-fleet: ## measure many streams; STREAMS=100, PAGES=20, KAFKA, REDIS
	$(GO) run -pgo=$(PROFILE) ./cmd/exportbridge-dev bench fleet $(if $(STREAMS),--streams $(STREAMS)) $(if $(PAGES),--pages $(PAGES)) $(if $(KAFKA),--kafka $(KAFKA)) $(if $(REDIS),--redis $(REDIS))

pgo: ## refresh the profile that the binary is built with
	$(GO) run -trimpath -pgo=$(PROFILE) ./cmd/exportbridge-dev bench cpu_per_million bridge_cpu_per_million_0 serial_fraction_20 --rounds 1 --pages 200 --profile $(PROFILES)
	$(GO) tool pprof -proto $(PROFILES)/*.cpu > $(PROFILE)
	rm -r $(PROFILES)

##@ Release

image: ## build the container image
	docker build -f cmd/exportbridge/Dockerfile --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) -t exportbridge:$(VERSION) .

release: ## build all that is published into dist/ (15 min); IMAGE=name
	$(GO) -C cmd/internal/release run $(PLAIN) . -out "$(DIST)" -version $(VERSION) -revision "$(REVISION)" -epoch "$(EPOCH)" -image $(IMAGE) -platforms "$(PLATFORMS)" -- $(SHIP)
	@cat "$(DIST)/SHA256SUMS"

release-test: ## install and run packages and images as in a release
	cd cmd/internal/release && $(GO) mod tidy -diff && $(GO) vet $(PLAIN) ./... && $(GO) run $(ACTIONLINT) ../../../.github/workflows/*.yml && RELEASE_IMAGE="$(IMAGE)" $(GO) test $(UNVETTED) -count=1 ./...

# The second build starts with an empty cache.
release-check: ## build the last commit twice, compare, try the result
	@set -e; work=$$(mktemp -d); trap 'chmod -R u+w "$$work"; rm -rf "$$work"' EXIT; \
	for build in one another/place; do \
	  mkdir -p "$$work/$$build"; \
	  git archive $(REVISION) | tar -x -C "$$work/$$build"; \
	  cache=$$($(GO) env GOCACHE); [ $$build = one ] || cache=$$work/cache; \
	  GOCACHE=$$cache $(MAKE) -C "$$work/$$build" release GO="$(GO)" VERSION="$(VERSION)" REVISION="$(REVISION)" EPOCH="$(EPOCH)" IMAGE="$(IMAGE)" PLATFORMS="$(PLATFORMS)" DIST="$$work/$$build/dist"; \
	done; \
	diff "$$work/one/dist/SHA256SUMS" "$$work/another/place/dist/SHA256SUMS"; \
	echo "both builds are the same"; \
	RELEASE_DIST="$$work/one/dist" $(MAKE) release-test IMAGE="$(IMAGE)"

rename: ## give the module another path; MODULE=path, IMAGE=name
	$(GO) -C cmd/internal/release run $(PLAIN) ./rename -module "$(MODULE)" $(if $(findstring command,$(origin IMAGE)),-image "$(IMAGE)")

recording: ## record the README's demo session again
	RECORDING=write $(GO) test $(UNVETTED) -count=1 -run TestRecording ./cmd/internal/e2e
