# The commands of the README. CMake does the work; presets are in CMakePresets.json.
.PHONY: all build demo test lint setup clean fuzz gpu-bundle wheel

all: build

# Install what building needs and is missing (Debian or Ubuntu packages), once.
setup:
	@tools/setup.sh

# The release program, without tests: build/punica. CUDA=OFF: without kernels for GPUs.
build: setup
	@tools/quiet.sh cmake --preset release $(if $(CUDA),-DPUNICA_CUDA=$(CUDA))
	@tools/quiet.sh cmake --build build --target src/all

# A server with one base model and 13 adapters, asked all at once. Kernels for GPUs are most of a build: where there is neither a GPU nor
# a build with them, the demo does without.
demo:
	@if ls /dev/nvidia[0-9]* >/dev/null 2>&1 || nvidia-smi -L 2>/dev/null | grep -q GPU || grep -qsE '^PUNICA_CUDA:STRING=(AUTO|ON)' build/CMakeCache.txt; then \
	    $(MAKE) --no-print-directory build; \
	else \
	    echo "there is no NVIDIA GPU here: the demo is built without CUDA (make build has it)"; \
	    $(MAKE) --no-print-directory build CUDA=OFF; \
	fi
	@tools/demo.sh

# Everything that can be tested on this machine: sanitizers, goldens, bad files, faults, short fuzzing.
test:
	@tools/setup.sh test
	@tests/run.sh

# Layout, and what clang-tidy, cppcheck, shellcheck and ruff find; part of make test. FIX=1 lays out C and CUDA.
lint:
	@tools/setup.sh test
	@tests/run.sh lint $(if $(FIX),fix)

# Longer fuzzing by hand: make fuzz SECONDS_EACH=600
SECONDS_EACH ?= 60
fuzz:
	@tools/setup.sh test
	@tests/fuzz.sh $(SECONDS_EACH)

# One folder to take to a GPU machine: build/gpu-bundle, with test.sh and bench.sh.
gpu-bundle:
	@tools/setup.sh gpu
	@tools/gpu/bundle.sh

# The kernels for PyTorch: a wheel in build/, with the library inside. Needs nvcc and Python's pip.
wheel: build
	@tools/wheel.sh

clean:
	rm -rf build
