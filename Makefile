# make test is what CI runs; it needs Go, Node and git, a C compiler for the race detector, and
# Python 3.10 for the official Python client. Without the last two it runs less, and says so.

GO          ?= go
BIN         := bin/snakream
S3TESTD     := bin/s3testd
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 30s
ROUNDS      ?= 500

# The race detector needs cgo. Without a C compiler the tests run without it.
RACE := $(shell command -v $$($(GO) env CC) >/dev/null 2>&1 && echo -race)

NODE_PACKAGES := $(patsubst %,test/%/node_modules/.package-lock.json,conformance client app)
PYTHON_ENV    := test/python/.venv/installed

.PHONY: run build test unit crash docs openapi e2e lint fuzz soak bench peers clean

run: build
	$(BIN) serve

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/snakream

test: $(NODE_PACKAGES) $(PYTHON_ENV) lint unit crash docs e2e

# The S3 server of the tests; a module of its own, and built once.
$(S3TESTD): test/s3testd/main.go test/s3testd/go.mod test/s3testd/go.sum
	cd test/s3testd && CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o $(CURDIR)/$@ .

unit: $(S3TESTD)
	@test -n "$(RACE)" || echo "no C compiler: running without the race detector"
	S3TESTD=$(CURDIR)/$(S3TESTD) $(GO) test $(RACE) -timeout 15m ./...

# The power cuts of the model test, all of them: they take too long with the race
# detector, under which make unit runs a part.
crash:
	$(GO) test -run '^TestCrashes$$' -count=1 -timeout 10m ./engine

# The description of the API and the examples of the documentation, against the binary.
docs: build
	cd test/openapi && E2E_BINARY=$(CURDIR)/$(BIN) $(GO) test -tags e2e -count=1 -timeout 10m ./...

# After a change of docs/openapi.yaml: the form of it that is served.
openapi:
	cd test/openapi && $(GO) test -tags e2e -run '^TestServedForm$$' . -update

# The binary with the official conformance suite, the official clients, SIGKILL, and an S3
# server.
e2e: build $(S3TESTD) $(NODE_PACKAGES) $(PYTHON_ENV)
	E2E_BINARY=$(CURDIR)/$(BIN) S3TESTD=$(CURDIR)/$(S3TESTD) $(GO) test -tags e2e -count=1 -timeout 15m ./test/...

lint:
	@unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
		test -z "$$unformatted" || { echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags e2e ./test/...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags e2e ./test/...
	cd test/openapi && $(GO) vet -tags e2e ./... && $(GO) run $(STATICCHECK) -tags e2e ./...
	cd test/s3testd && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...

# Every fuzz target for FUZZTIME. (Their corpora are part of make test.)
fuzz:
	@set -e; for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

# The crash test for a long time: ROUNDS kills for each number of shards.
soak: build
	E2E_BINARY=$(CURDIR)/$(BIN) E2E_ROUNDS=$(ROUNDS) $(GO) test -tags e2e -run '^TestCrash$$' -count=1 -timeout 0 -v ./test/e2e

# The figures of docs/PERFORMANCE.md, against the peers: BENCHFLAGS="-only append -runs 1".
bench: build
	$(GO) run ./bench figures $(BENCHFLAGS)

peers:
	bench/peers/peers.sh install

clean:
	rm -rf bin $(patsubst %,test/%/node_modules,conformance client app) test/python/.venv

test/%/node_modules/.package-lock.json: test/%/package-lock.json
	cd test/$* && npm ci --no-audit --no-fund
	@touch $@

# Its exit code is 3 when there is no Python that can run the client.
$(PYTHON_ENV): test/python/requirements.txt test/python/install.py
	@command -v python3 >/dev/null || { echo "the official Python client is NOT tested: there is no python3" >&2; exit 0; }; \
		python3 test/python/install.py || test $$? = 3
