# Two commands are enough: `make demo` and `make test`. They need python3 (3.10 or newer, with venv), make and a C++20
# compiler, and write nothing outside this folder. The work is done by .ci/environment.

TORCH ?=
VENV ?=
PMPP_CUDA ?= auto
PMPP_CUDA_ARCHS ?= auto
JOBS ?= $(shell nproc)
BENCH ?=
PYTEST_ARGS ?=
export TORCH VENV PMPP_CUDA PMPP_CUDA_ARCHS JOBS

ENVIRONMENT := bash .ci/environment
CXX_SOURCES = $$(git ls-files --cached --others --exclude-standard \
  '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | while read -r file; do [ -e "$$file" ] && echo "$$file"; done)

.DEFAULT_GOAL := help
.PHONY: help build demo test bench test-asan gpu-check format lint wheel test-wheel clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf '%-18s %s\n' "$$name" "$$text"; done
	@echo
	@echo 'Variables (make demo PMPP_CUDA=off):'
	@echo '  TORCH            another release of PyTorch, such as 2.12.0, in an environment of its own'
	@echo '  VENV             where the environment is made (.venv, with TORCH .venv-torch...); none: use the active Python, download nothing'
	@echo '  PMPP_CUDA        auto, on, or off: build for the CPU alone'
	@echo '  PMPP_CUDA_ARCHS  auto: the GPU that is there, else 90a; all; or a list such as 80,90a'
	@echo '  JOBS             compilers at a time (all cores)'
	@echo '  BENCH            arguments of make bench, e.g. BENCH="--op tiled_matmul --dtype float32"'
	@echo '  PYTEST_ARGS      arguments of pytest in make test, e.g. PYTEST_ARGS="-k transpose -x"'

build: ## set up and build the library into torch_pmpp/
	@$(ENVIRONMENT) build

demo: ## set up, build and show both operators beside PyTorch's
	@$(ENVIRONMENT) build
	@$(ENVIRONMENT) run python -m torch_pmpp demo

test: ## build everything and run all tests that this machine can run
	@$(ENVIRONMENT) test $(PYTEST_ARGS)

test-asan: ## build for the CPU with the address and undefined-behaviour sanitizers and run the C++ tests
	@$(ENVIRONMENT) asan

bench: ## run the benchmark for the device that is there
	@$(ENVIRONMENT) build
	@$(ENVIRONMENT) run python -m torch_pmpp bench $(BENCH)

gpu-check: ## all tests, sanitizers and the benchmark on a GPU
	@$(ENVIRONMENT) build tests
	@$(ENVIRONMENT) run python benchmarks/gpu_check.py

format: ## rewrite the sources in the project's style
	@$(ENVIRONMENT) run ruff format .
	@$(ENVIRONMENT) run ruff check --fix --exit-zero --quiet .
	@$(ENVIRONMENT) run clang-format -i $(CXX_SOURCES)

lint: ## check style and types
	@$(ENVIRONMENT) run ruff check .
	@$(ENVIRONMENT) run ruff format --check .
	@$(ENVIRONMENT) run clang-format --dry-run --Werror $(CXX_SOURCES)
	@$(ENVIRONMENT) run mypy

wheel: ## build a wheel for all GPU architectures into dist/ (PMPP_CUDA_ARCHS for fewer)
	@$(ENVIRONMENT) wheel

test-wheel: ## install that wheel into a new environment and run the Python tests there
	@$(ENVIRONMENT) test-wheel $(PYTEST_ARGS)

clean: ## remove what was built, but not the environment
	rm -rf build dist* torch_pmpp/lib torch_pmpp/include torch_pmpp/share torch_pmpp/build_info.json torch_pmpp/kernels.json \
	  .pytest_cache .hypothesis .ruff_cache .mypy_cache *.egg-info
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
