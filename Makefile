# One command for each thing; needs Python 3.10 or newer, pip's registry, and no root but for the drills.
.POSIX:

PYTHON ?= python3
PIP_OPTIONS = --quiet --disable-pip-version-check
BIN = .venv/bin
CHECKS = .venv-checks/bin
# Quick tests wait for half of their time: three at once keep two cores busy.
QUICK = -n 3 --dist loadfile
PARALLEL = -n 2 --dist loadfile
SERIAL = tests/drills tests/slurm
ALONE = tests/command/test_hostile_output.py tests/command/test_full_disk.py

.PHONY: help venv demo test drills frameworks soak bench check wheel clean

help:
	@echo 'make demo     a two-node job on this machine loses a rank and a node, and finishes'
	@echo 'make test     all tests but drills and soak, under 10 minutes'
	@echo 'make drills   the command on hosts in network namespaces, under Slurm, and under the training frameworks (root)'
	@echo 'make frameworks  the drills of DeepSpeed and of JAX with Orbax, in environments of their own (1 GB, 5 minutes)'
	@echo 'make soak     the long tests'
	@echo 'make bench    side by side with torchrun: starts, restarts, memory, idle CPU, the store, output, its watch (about 13 minutes)'
	@echo 'make check    format, lint, types, floors'
	@echo 'make wheel    the wheel, in dist/'
	@echo 'make venv     .venv with remuster, etcd, torch and the test tools (all of the above make it)'
	@echo 'make clean    remove what the others made'
	@echo 'PYTHON=/path/to/python3 chooses the interpreter of a new .venv'

venv: .venv/stamp

.venv/stamp: pyproject.toml setup.cfg requirements/test.txt requirements/train.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo 'remuster needs Python 3.10 or newer, and $(PYTHON) is not; try: make PYTHON=/path/to/python3 venv' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(PIP_OPTIONS) -e '.[etcd]' -r requirements/test.txt -r requirements/train.txt
	@touch .venv/stamp

.venv-frameworks/stamp: .venv/stamp requirements/frameworks.txt
	$(BIN)/python -m venv .venv-frameworks
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		>"$$(.venv-frameworks/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	.venv-frameworks/bin/python -m pip install $(PIP_OPTIONS) -r requirements/frameworks.txt
	@touch .venv-frameworks/stamp

.venv-deepspeed/stamp: .venv/stamp requirements/frameworks-deepspeed.txt
	$(BIN)/python -m venv .venv-deepspeed
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		>"$$(.venv-deepspeed/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	.venv-deepspeed/bin/python -m pip install $(PIP_OPTIONS) -r requirements/frameworks-deepspeed.txt
	@touch .venv-deepspeed/stamp

.venv-jax/stamp: requirements/frameworks-jax.txt
	$(PYTHON) -m venv .venv-jax
	.venv-jax/bin/python -m pip install $(PIP_OPTIONS) -r requirements/frameworks-jax.txt
	@touch .venv-jax/stamp

.venv-checks/stamp: requirements/checks.txt
	$(PYTHON) -m venv .venv-checks
	$(CHECKS)/python -m pip install $(PIP_OPTIONS) -r requirements/checks.txt
	@touch .venv-checks/stamp

demo: .venv/stamp
	$(BIN)/python examples/demo.py

test: .venv/stamp
	$(BIN)/pytest -m 'not drill and not soak and not timing' $(QUICK)
	$(BIN)/pytest -m 'timing and not drill and not soak'

drills: .venv/stamp .venv-frameworks/stamp
	@test "$$(id -u)" = 0 || { echo 'drills build network namespaces; run make drills as root' >&2; exit 1; }
	$(BIN)/pytest -m 'drill and not soak' $(SERIAL) $(ALONE)
	$(BIN)/pytest -m 'drill and not soak' $(PARALLEL) $(SERIAL:%=--ignore=%) $(ALONE:%=--ignore=%) --ignore=tests/frameworks/own

frameworks: .venv/stamp .venv-deepspeed/stamp .venv-jax/stamp
	$(BIN)/pytest -m drill tests/frameworks/own

soak: .venv/stamp
	$(BIN)/pytest -m soak

bench: .venv/stamp
	$(BIN)/python bench

check: .venv-checks/stamp
	$(CHECKS)/ruff format --check .
	$(CHECKS)/ruff check .
	PYTHONPATH=. $(CHECKS)/mypy
	$(CHECKS)/pyright --pythonpath $(CHECKS)/python
	PYTHONPATH=. $(CHECKS)/lint-imports

wheel: .venv/stamp
	rm -rf build
	$(BIN)/python -m build --wheel --no-isolation --quiet --outdir dist

clean:
	rm -rf .venv .venv-checks .venv-frameworks .venv-deepspeed .venv-jax build dist *.egg-info demo-out
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
