# Everything a developer types. `make` alone lists it.

GO        ?= go
LINTER    ?= golangci-lint
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
TESTFLAGS ?= -count=1 -shuffle=on

.DEFAULT_GOAL := help
.PHONY: help demo build test test-real check lint docs up down image bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## everything in one process: simulated API, embedded Kafka and Redis, the bridge
	$(GO) run ./cmd/exportbridge demo

build: ## build ./exportbridge
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o exportbridge ./cmd/exportbridge

test: ## all tests on embedded servers; needs only Go
	$(GO) test $(TESTFLAGS) ./...

test-real: ## the same suites and the end-to-end tests on real Apache Kafka and Redis
	TEST_REAL=1 $(GO) test $(TESTFLAGS) -timeout 20m ./...

check: lint ## what must be green before a commit lands
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) run ./cmd/exportbridge config docs --check README.md
	$(GO) test -race $(TESTFLAGS) -timeout 20m ./...

lint: ## format and lint
	@command -v $(LINTER) >/dev/null || { echo "install the linter: go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"; exit 1; }
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "run gofmt -w ."; exit 1; }
	$(LINTER) run ./...

docs: ## regenerate the settings table in the README
	$(GO) run ./cmd/exportbridge config docs --write README.md

bench: ## measure this machine
	$(GO) run ./cmd/exportbridge bench

up: ## start Kafka, Redis, simulator and bridge in containers
	docker compose up --build --wait

down: ## stop them and delete their data
	docker compose down --volumes

image: ## build the container image
	docker build -f cmd/exportbridge/Dockerfile --build-arg VERSION=$(VERSION) -t exportbridge:$(VERSION) .
