# fp8lab: `make` builds what it can, `make help` lists the targets.
CONFIG ?= release
BUILD  ?= build/$(CONFIG)
Q      ?= @
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
ifeq ($(origin CC),default) # make's default is cc, and ?= would keep it
CC     := gcc
endif

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
        -Wno-unused-parameter $(WERROR)
# No fast-math and no contraction: the reference's bits depend on both (kernels/cpu/README.md).
# -g1: reports and profiles need lines. Variables are in CONFIG=debug.
BASE_FLAGS := -std=c11 -D_GNU_SOURCE -I. -fopenmp -ffp-contract=off -fno-strict-aliasing -g1 $(WARN)
OPT_release := -O2
OPT_debug   := -O0 -g
# -Og: with -g1 the build takes two thirds of the time.
OPT_asan    := -Og -fsanitize=address,undefined -fno-omit-frame-pointer \
               -fno-sanitize-recover=undefined
# For tests of threads other than OpenMP's, for example T="dist/test_job unit/test_board". libgomp is
# not instrumented, and its barriers would be reported. So tests/run.sh limits OpenMP to one thread.
OPT_tsan    := -O1 -fsanitize=thread -fno-omit-frame-pointer
ifeq ($(OPT_$(CONFIG)),)
$(error CONFIG=$(CONFIG) is unknown; use release, debug, asan or tsan)
endif
CFLAGS += $(BASE_FLAGS) $(OPT_$(CONFIG))

PKGS       := lua5.4 libarchive jansson libcrypto oniguruma zlib
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
LIBS       := -lm -ldl -lpthread
# Test programs are many, and gold links each four times as fast.
TEST_LIBS  := -lcmocka $(LIBS) $(if $(shell command -v ld.gold),-fuse-ld=gold)

KERNELS_SRC := $(wildcard kernels/*.c kernels/certify/*.c kernels/cpu/*.c kernels/cuda/*.c)
MODEL_SRC   := $(wildcard model/*.c model/*/*.c)
RUNNER_SRC  := $(filter-out runner/main.c,$(wildcard runner/*.c runner/*/*.c))
objs = $(patsubst %.c,$(BUILD)/%.o,$(1))
KERNELS_LIB := $(BUILD)/libkernels.a
MODEL_LIB   := $(BUILD)/libmodel.a
RUNNER_LIB  := $(BUILD)/librunner.a
ROOMS := $(RUNNER_LIB) $(MODEL_LIB) $(KERNELS_LIB)

.PHONY: all
all: $(BUILD)/fp8lab ## build the program (the default); CONFIG=release, debug, asan or tsan

$(BUILD)/fp8lab: $(BUILD)/runner/main.o $(ROOMS)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS) $(LIBS)

# The same program; it finds its libraries in ../lib beside it. DT_RPATH, the old kind of run path,
# also applies to libraries that other libraries load. The new kind, DT_RUNPATH, does not.
$(BUILD)/fp8lab-relocatable: $(BUILD)/runner/main.o $(ROOMS)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS) $(LIBS) \
	    -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib'

$(KERNELS_LIB): $(call objs,$(KERNELS_SRC))
$(MODEL_LIB): $(call objs,$(MODEL_SRC))
$(RUNNER_LIB): $(call objs,$(RUNNER_SRC))
%.a:
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Reports a missing library once, with the fix, before an #include fails.
$(BUILD)/found:
	@pkg-config --exists $(PKGS) || { echo "Libraries are missing; \`make setup\` installs them" \
	    "or names them, \`make info\` shows what was found." >&2; exit 1; }
	@mkdir -p $(@D) && touch $@

# A file beside the objects records compiler and flags (WITH_cc, WITH_nvcc). If these change, all
# objects are compiled again. A ccache before the compiler is no change.
WITH_cc = $(filter-out %ccache,$(CC)) $(CFLAGS) $(PKG_CFLAGS)
differs = $(subst x$(strip $(file <$(BUILD)/with.$(1))),,x$(strip $(WITH_$(1))))
$(BUILD)/with.cc $(BUILD)/with.nvcc $(BUILD)/with.commit: $(BUILD)/with.%:
	@mkdir -p $(@D) && printf '%s\n' '$(subst ','\'',$(strip $(WITH_$*)))' > $@

$(BUILD)/%.o: %.c Makefile $(BUILD)/with.cc | $(BUILD)/found
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) $(FLAGS_$(basename $(notdir $<))) $(PKG_CFLAGS) -MMD -MP -c -o $@ $<

# A program accepts only a plugin built from the same kernels, device code included: the operator
# table has their hash (kernels/backend.h).
GEN := $(BUILD)/gen
KERNELS := $(sort $(foreach x,c h cu cuh inc,$(wildcard kernels/*.$(x) kernels/*/*.$(x))))
$(GEN)/kernels_hash.h: $(KERNELS)
	@mkdir -p $(@D)
	$(Q)printf '#define FP8LAB_KERNELS_SHA256 "%s"\n' \
	    "$$(sha256sum $^ | sha256sum | cut -d' ' -f1)" > $@
FLAGS_cpu_backend := -I$(GEN)
FLAGS_backends := -I$(GEN)
$(BUILD)/kernels/cpu/cpu_backend.o $(BUILD)/runner/plan/backends.o: $(GEN)/kernels_hash.h

# What a run records about the program. `code`, one of a run's inputs, is the hash of the sources
# that determine its results. These are kernels, model, the process that trains, and what turns a
# script into a configuration. `build` is the hash of all sources. It must be equal in all tasks of
# one job. git supplies the commit, and whether files differ from it (1 or 0): after a commit the
# next make records that. An image is built without the folder .git, so its build gets COMMIT and
# DIRTY.
SOURCES := $(sort $(KERNELS) $(wildcard model/*.[ch] model/*/*.[ch] runner/*.[ch] runner/*/*.[ch] \
                                runner/compare/report.js runner/compare/report.css))
RESULT_SOURCES := $(filter kernels/% model/% runner/script/% runner/weights/% runner/worker/% \
                           runner/plan/options.% \
                           runner/plan/backends.% runner/record/streams.% runner/base/canonical.% \
                           runner/base/value.%,$(SOURCES))
GIT     := git --no-optional-locks -c safe.directory='*'
hash_of = $$(sha256sum $(1) | sha256sum | cut -d' ' -f1)
WITH_commit := $(or $(COMMIT),$(shell $(GIT) rev-parse HEAD 2>/dev/null || echo unknown)) \
               $(if $(filter-out 0,$(or $(DIRTY),$(shell $(GIT) status --porcelain 2>/dev/null | \
                                                              grep -q . && echo 1))),1,0)
$(GEN)/sources.h: $(SOURCES) $(BUILD)/with.commit
	@mkdir -p $(@D)
	$(Q){ printf '#define FP8LAB_CODE_SHA256 "%s"\n' "$(call hash_of,$(RESULT_SOURCES))"; \
	  printf '#define FP8LAB_BUILD_SHA256 "%s"\n' "$(call hash_of,$(SOURCES))"; \
	  printf '#define FP8LAB_COMMIT "%s"\n#define FP8LAB_DIRTY %d\n' $(WITH_commit); } > $@
FLAGS_build_info := -I$(GEN)
# The page's script and style are linked in as bytes (.incbin).
$(BUILD)/runner/compare/page.o: runner/compare/report.js runner/compare/report.css
$(BUILD)/runner/base/build_info.o: $(GEN)/sources.h

# The compiler vectorises the reference's loops. If it had to keep errno and floating-point traps, it
# could not vectorise sqrt or a select. No code here reads them, and neither flag changes a value.
VECTORISED := adamw attention attention_bwd attention_pack embedding fill fingerprint gelu \
              isa_avx2 isa_avx512 isa_neon isa_portable lanes layernorm loss matmul matmul_pack qk \
              quantise reduce rmsnorm sink softmax swiglu
$(foreach f,$(VECTORISED),$(eval FLAGS_$f := -O3 -fno-math-errno -fno-trapping-math))

# ---- the CUDA backend ------------------------------------------------------------------------------
# A plugin, built if nvcc is found. ARCHS: the devices that get machine code; "all": every supported
# device; compute_*: PTX, for tests. No contraction, as in the reference: operators that promise the
# reference's bits have its expressions, and the others call fma themselves. NVCC_QUICK: flags for a
# plugin that is never run (tests/long/sbsa.sh). `make NVCC=` builds no plugin. An invalid
# setting stops make, unless the goals build nothing.
ARCHS ?= sm_90a
CUDA_SUPPORTED := sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a sm_121a
ifneq ($(if $(MAKECMDGOALS),$(filter-out help info clean setup,$(MAKECMDGOALS)),all),)
ifneq ($(or $(filter undefined,$(origin NVCC)),$(NVCC)),)
find_nvcc := NVCC='$(NVCC)' CUDACXX='$(CUDACXX)' CUDA_HOME='$(CUDA_HOME)' CUDA_PATH='$(CUDA_PATH)' \
    containers/find_nvcc.sh
override NVCC := $(shell $(find_nvcc) 2>/dev/null)
ifneq ($(.SHELLSTATUS),0)
$(error $(shell $(find_nvcc) 2>&1))
endif
endif
bad_archs := $(filter-out all $(CUDA_SUPPORTED) $(CUDA_SUPPORTED:sm_%=compute_%),$(ARCHS))
# 90, 9.0, sm_90 and sm_90f mean sm_90a; machine code of sm_80 runs on each 8.x. nvcc's sm_120f is
# for a family of devices, and code of sm_120a does not run on the others.
FAMILY_100 := sm_100a sm_103a
FAMILY_120 := sm_120a sm_121a
digits = $(subst a,,$(subst f,,$(subst .,,$(1:sm_%=%))))
meant = $(or $(if $(filter %f,$(1)),$(FAMILY_$(digits))),$(filter \
    sm_$(digits) sm_$(digits)a,$(CUDA_SUPPORTED)),$(if $(filter 86 87 88,$(digits)),sm_80))
ifneq ($(bad_archs)$(if $(strip $(ARCHS)),,empty),)
$(error ARCHS=$(ARCHS): each word must be one of $(CUDA_SUPPORTED), or all$(foreach a,$(bad_archs),$(if \
    $(call meant,$(a)),; for $(a) write $(call meant,$(a)))))
endif
endif
CUDA_ARCHS := $(if $(filter all,$(ARCHS)),$(CUDA_SUPPORTED),$(ARCHS))
# Not named CUDA_VERSION: CUDA images set that variable, so make would export it to every command.
NVCC_RELEASE = $(shell $(NVCC) --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
CUDA_HOME  := $(patsubst %/bin/,%,$(dir $(NVCC)))
PLUGIN     := $(BUILD)/libfp8lab_cuda.so
FOREIGN    := $(BUILD)/foreign/$(notdir $(PLUGIN))
CUDA_SRC   := $(wildcard kernels/cuda/*.cu)
CUDA_OBJ   := $(patsubst %.cu,$(BUILD)/%.o,$(CUDA_SRC)) \
              $(addprefix $(BUILD)/plugin/kernels/,arithmetic.o arithmetic_way.o base.o choices.o \
                dtype.o link.o cuda/device.o)
NVCC_FLAGS := -std=c++17 -O2 -lineinfo -fmad=false -I. -I$(GEN) $(addprefix -I,$(CUDNN_INCLUDE)) \
    $(NVCC_TARGET) $(NVCC_QUICK) $(if $(filter debug,$(CONFIG)),-DFP8LAB_CUDA_DEBUG) -Werror all-warnings \
    -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wno-unused-parameter,-Wno-unused-function
machine_code = $(foreach a,$(1),-gencode arch=$(a:sm_%=compute_%),code=$(a))
WITH_nvcc = $(NVCC) $(NVCC_FLAGS) $(call machine_code,$(CUDA_ARCHS))
# Sources without kernels: the host's compiler alone takes them, in a third of the time, and once
# for all ARCHS.
HOST_CU := attention_choice attention_cudnn check choices cuda_libraries cuda_memory cuda_order \
           cuda_progress cuda_timer cudnn_graph gemm gemm_trial hopper_copy nccl
$(HOST_CU:%=$(BUILD)/kernels/cuda/%.o): private NVCC_FLAGS += -x c++
.PHONY: $(foreach c,cc nvcc commit,$(if $(call differs,$(c)),$(BUILD)/with.$(c)))

$(BUILD)/kernels/cuda/%.o: kernels/cuda/%.cu $(BUILD)/with.nvcc
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(WITH_nvcc) -MMD -MP -c -o $@ $<
$(BUILD)/kernels/cuda/cuda_backend.o: $(GEN)/kernels_hash.h

$(BUILD)/plugin/%.o: %.c $(BUILD)/with.cc
	@mkdir -p $(@D)
	@echo "  CC    $< (for the plugin)"
	$(Q)$(CC) $(BASE_FLAGS) -O2 -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

# cudart is linked statically, with hidden symbols. The loader searches cuBLASLt in lib/ of a
# relocatable folder, then in the CUDA folder of the build, then in its usual places.
$(PLUGIN): $(CUDA_OBJ)
$(PLUGIN) $(FOREIGN):
	@echo "  LINK  $@"
ifneq ($(LINK_SBSA),)
	$(Q)$(LINK_SBSA) $@ $^
else
	$(Q)$(NVCC) -shared -cudart static -o $@ $^ -L$(CUDA_HOME)/lib64 -lcublasLt \
	    -Xlinker --exclude-libs,ALL,-rpath,'$$ORIGIN/..:$(CUDA_HOME)/lib64'
endif

# For tests: a plugin without machine code for this machine's GPU. The file that queries the device is
# compiled for GB10 only; on a GB10, for sm_120a only.
FOREIGN_ARCH = $(if $(filter 12.1,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
                                    2>/dev/null)),sm_120a,sm_121a)
$(BUILD)/foreign/cuda_backend.o: kernels/cuda/cuda_backend.cu $(GEN)/kernels_hash.h \
                                 $(BUILD)/with.nvcc
	@mkdir -p $(@D)
	@echo "  NVCC  $< (for another device)"
	$(Q)$(NVCC) $(NVCC_FLAGS) $(call machine_code,$(FOREIGN_ARCH)) -MMD -MP -c -o $@ $<
$(FOREIGN): $(BUILD)/foreign/cuda_backend.o $(filter-out %/cuda_backend.o,$(CUDA_OBJ))

# Cross-compiled for aarch64 servers. containers/sbsa.sh collects the headers and libraries.
.PHONY: cuda
ifeq ($(CROSS),)
cuda: $(PLUGIN) ## build the CUDA backend alone; CROSS=aarch64 for aarch64 servers
else
SBSA_HOME := build/$(CROSS)/sbsa
cuda:
	@test "$(CROSS)" = aarch64 || { echo "CROSS=$(CROSS): the only value is aarch64" >&2; exit 2; }
	@containers/sbsa.sh $(SBSA_HOME) $(NVCC)
	+@$(AGAIN) CROSS= BUILD=build/$(CROSS) CC=$(CROSS_PREFIX)gcc \
	    NVCC_TARGET="-ccbin $(CROSS_PREFIX)g++ -I$(SBSA_HOME)/include -I$(SBSA_HOME)/include/cccl" \
	    LINK_SBSA="containers/link_sbsa.sh $(SBSA_HOME) $(firstword $(subst ., ,$(NVCC_RELEASE)))" \
	    build/$(CROSS)/$(notdir $(PLUGIN))
endif

ifneq ($(NVCC),)
all: $(PLUGIN)
else
all: no-plugin
endif
.PHONY: no-plugin
no-plugin:
	@echo "  skipped: libfp8lab_cuda.so: no nvcc was found (--backend cpu does not need it)"

# Operator by operator against the CPU backend, on a machine with a GPU; see tests/gpu/run.sh.
GPU_TEST_BIN := $(patsubst %.c,$(BUILD)/%,$(filter-out %/pair.c %/fault_plugin.c,$(wildcard tests/gpu/*.c)))
GPU_TEST_HELP := $(addprefix $(BUILD)/tests/,gpu/pair.o support/tiny.o support/ranks.o \
                                               support/shards.o support/comm_cases.o)
$(GPU_TEST_BIN): %: %.o $(GPU_TEST_HELP) $(ROOMS)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS) $(TEST_LIBS)
# This test also calls the backend's part for cuDNN directly; its symbols are hidden in the plugin.
CUDNN_TEST := $(BUILD)/tests/gpu/test_attention_fp8
$(CUDNN_TEST): $(addprefix $(BUILD)/,tests/gpu/cudnn_codes.o kernels/cuda/attention_cudnn.o \
                                     kernels/cuda/cudnn_graph.o)
$(CUDNN_TEST): TEST_LIBS += -L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -lrt -ldl -lpthread \
    -Wl,-rpath,'$$ORIGIN/..:$(CUDA_HOME)/lib64'
$(BUILD)/tests/gpu/%.o: tests/gpu/%.cu $(BUILD)/with.nvcc
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(WITH_nvcc) -MMD -MP -c -o $@ $<
# It copies the table of operators, so it is built again if the interface changes.
$(BUILD)/tests/gpu/fault_plugin.so: tests/gpu/fault_plugin.c $(BUILD)/plugin/kernels/base.o \
                                    $(wildcard kernels/*.h kernels/*.inc)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(BASE_FLAGS) -O2 -fPIC -shared -o $@ $(filter-out %.h %.inc,$^) -ldl
.PHONY: test-gpu-build
test-gpu-build: $(PLUGIN) $(FOREIGN) $(GPU_TEST_BIN) $(BUILD)/tests/gpu/fault_plugin.so
	@cp -f $(PLUGIN) $(BUILD)/tests/gpu/

# ---- tests ---------------------------------------------------------------------------------------
# One program per tests/*/test_*.c, each with its own cmocka main; one shell test per tests/*/*.sh.
# T: only the tests whose path contains one of these words, for example T="ops/ cli/suite".
T ?=
chosen = $(if $(T),$(strip $(foreach t,$(1),$(if $(strip $(foreach w,$(T),$(findstring $(w),$(t)))),$(t)))),$(1))
TEST_SRC  := $(call chosen,$(filter-out tests/gpu/% tests/long/%,$(wildcard tests/*/test_*.c)))
LONG_SRC  := $(call chosen,$(wildcard tests/long/test_*.c))
# Shell tests with the line "# tier: long" run in `make test-long`, and in `make test` if T asks for
# them.
LONG_TIER := $(shell grep -ls '^\# tier: long' tests/*/*.sh)
LONG_SH   := $(call chosen,$(wildcard tests/long/*.sh) $(LONG_TIER))
# What tests in long/ and outside/ run. long/cases.sh runs all cases of its programs.
LONG_USES := $(addprefix $(BUILD)/tests/,bundle/test_bundle train/test_checkpoint dist/test_shard train/test_training \
                                         dist/test_written fault/test_runner dist/test_one_rank_fails)
TEST_SH   := $(call chosen,$(filter-out tests/support/% tests/gpu/% tests/long/% tests/outside/% %/lib.sh \
                                        $(if $(T),,$(LONG_TIER)),$(sort $(wildcard tests/*/*.sh))))
# The comparisons with Python packages of others, on little input; tests/long/ has more of them.
OUTSIDE_SH := $(call chosen,$(filter-out %/lib.sh,$(wildcard tests/outside/*.sh)))
TEST_BIN  := $(patsubst %.c,$(BUILD)/%,$(TEST_SRC))
# What the chosen shell tests run of these programs: T may not have chosen it.
SH_USES   := $(addprefix $(BUILD)/,$(sort $(shell \
    sed -nE 's|.*"\$$BUILD/(tests/[a-z]+/test_[a-z0-9_]+)".*|\1|p' $(TEST_SH) /dev/null)))
TEST_HELP := $(call objs,$(wildcard tests/support/*.c))
ifeq ($(CONFIG),tsan) # its malloc would run before the thread sanitizer is set up
TEST_HELP := $(filter-out %/allocations.o,$(TEST_HELP))
endif
# A test that includes nothing of the runner is linked without it, and is not linked again when the
# runner changes.
ON_RUNNER := $(shell grep -lE '"(runner/|tests/support/(comm_cases|ranks|run_fixture)\.h)' tests/support/*.c $(TEST_SRC) /dev/null)
ON_RUNNER_BIN  := $(patsubst %.c,$(BUILD)/%,$(filter $(ON_RUNNER),$(TEST_SRC)))
MODEL_TEST_HELP := $(filter-out $(call objs,$(ON_RUNNER)),$(TEST_HELP))
# Its malloc must leave no frame on the stack. The leak checker ignores memory of the dynamic loader,
# and it recognises the loader as the caller of malloc. -Og would keep the frame.
FLAGS_allocations := -O1 -foptimize-sibling-calls
# The results of these tests do not depend on CONFIG, so only release runs them.
ifneq ($(CONFIG),release)
TEST_SH := $(filter-out tests/house/% tests/containers/% %/aarch64.sh,$(TEST_SH))
endif
# Shell tests start first, because the longest tests are among them.
test_names = $(patsubst %,$(CONFIG):%,$(filter %.sh,$(1)) $(basename $(filter %.c,$(1))))

# The tests' own code needs no speed, and half the files are theirs.
ifeq ($(CONFIG),release)
$(BUILD)/tests/%.o: CFLAGS += -O1
endif

LONG_BIN := $(patsubst %.c,$(BUILD)/%,$(LONG_SRC)) \
            $(filter-out $(TEST_BIN),$(sort $(LONG_USES) $(SH_USES)))
$(ON_RUNNER_BIN) $(LONG_BIN): %: %.o $(TEST_HELP) $(ROOMS)
$(filter-out $(ON_RUNNER_BIN),$(TEST_BIN)): %: %.o $(MODEL_TEST_HELP) $(MODEL_LIB) $(KERNELS_LIB)
$(TEST_BIN) $(LONG_BIN):
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS) $(TEST_LIBS)
# The program with a backend that fails on request, or that makes choices; see their sources.
STAND_INS := $(addprefix $(BUILD)/tests/,dist/faulty cli/chooser)
WRAP_faulty := ,--wrap=waitpid
$(STAND_INS): %: %.o $(BUILD)/runner/main.o $(ROOMS)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) -Wl,--wrap=cpu_backend_open$(WRAP_$(@F)) -o $@ $^ $(PKG_LIBS) $(LIBS)
.PRECIOUS: $(BUILD)/%.o

# Programs whose output is compared bit for bit, here and on aarch64. They use model and kernels only,
# so a cross compiler needs no library.
GOLDEN := $(patsubst tests/golden/%.c,$(BUILD)/golden/%,$(wildcard tests/golden/*.c))
$(BUILD)/golden/%: $(BUILD)/tests/golden/%.o $(BUILD)/tests/support/tiny.o \
                   $(MODEL_LIB) $(KERNELS_LIB)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(GOLDEN_LINK) -o $@ $^ -lm

CROSS_PREFIX ?= aarch64-linux-gnu-
# Sources that need libraries which the cross compiler does not have.
FILES_SRC := $(addprefix model/,checkpoint.c checkpoint_adopt.c checkpoint_content.c checkpoint_files.c checkpoint_writer.c \
                                identity.c safetensors.c ground/json_read.c ground/json_safe.c ground/sha256.c \
                                ground/sha256_tree.c)
.PHONY: golden-aarch64
golden-aarch64:
	+@$(AGAIN) BUILD=build/aarch64 CC=$(CROSS_PREFIX)gcc AR=$(CROSS_PREFIX)ar GOLDEN_LINK="-static -Wl,--no-warnings" \
	    MODEL_SRC="$(filter-out $(FILES_SRC),$(MODEL_SRC))" golden-build
.PHONY: golden-build
golden-build: $(GOLDEN)
	@:

-include $(shell find $(BUILD) -type f -name '*.d' 2>/dev/null)

# Targets that begin with a set-up start make again, because the set-up may change what make finds.
# The new make uses JOBS jobs unless the caller gave -j.
AGAIN = $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(JOBS))

.PHONY: setup
setup: ## install the libraries the build needs, or name them and stop
	@containers/install.sh build

.PHONY: test-packages test-venv
test-packages:
	@containers/install.sh build data test
test-venv: ## install the Python packages that tests/outside/ compares with
	@tests/support/venv.sh build/venv

.PHONY: test-chosen
test-chosen:
	@test -n "$(TEST_SRC)$(TEST_SH)" || { \
	    echo "T=$(T): no test's path contains one of these words; the tests are tests/*/test_*.c and tests/*/*.sh" >&2; exit 2; }

.PHONY: test-build
test-build: $(BUILD)/fp8lab $(BUILD)/fp8lab-relocatable $(STAND_INS) $(TEST_BIN) $(SH_USES) $(GOLDEN)
ifneq ($(and $(filter release,$(CONFIG)),$(shell command -v $(CROSS_PREFIX)gcc)),)
test-build test-long-build: golden-aarch64
endif

.PHONY: test
test: test-chosen test-packages ## set up, build and run the tests (CONFIG=asan: under the sanitizers; T="ops/ cli/suite": only these)
	+@$(AGAIN) test-build
	@tests/run.sh $(call test_names,$(TEST_SRC) $(TEST_SH))

# Finds most mistakes in a minute: the tests that take less than ten seconds and need only the
# packages of the build.
CHECK_SRC := $(shell grep -LE '^/\* long: ' $(filter-out tests/dist/% tests/fuzz/%,$(TEST_SRC)) /dev/null)
CHECK_SH  := $(filter tests/golden/same_bits.sh tests/house/arrows.sh tests/house/headers.sh \
                      tests/cli/transcripts.sh tests/lua/%,$(TEST_SH))
.PHONY: check check-build
check-build: $(BUILD)/fp8lab $(patsubst %.c,$(BUILD)/%,$(filter-out /dev/null,$(CHECK_SRC))) $(GOLDEN)
check: ## build and run the quick tests, in a minute or two
	+@$(AGAIN) check-build
	@tests/run.sh $(call test_names,$(filter-out /dev/null,$(CHECK_SRC)) $(CHECK_SH))

# T chooses as for `make test`.
GPU_SRC := $(call chosen,$(wildcard tests/gpu/test_*.c))
GPU_SH  := $(call chosen,$(addprefix tests/gpu/,fault.sh hang.sh unfit.sh repeat.sh start.sh parity.sh))
gpu_sh   = $(if $(filter tests/gpu/$(1).sh,$(GPU_SH)),tests/gpu/$(1).sh $(2))
.PHONY: test-gpu
test-gpu: ## build and run the tests of the CUDA backend; needs nvcc and a GPU; T="test_comm hang": only these
	@test -n "$(GPU_SRC)$(GPU_SH)" || { \
	    echo "T=$(T): no test's path contains this; the tests are tests/gpu/test_*.c and *.sh" >&2; exit 2; }
	+@$(AGAIN) test-gpu-build
	@$(if $(GPU_SRC),tests/gpu/run.sh $(BUILD)/tests/gpu $(notdir $(basename $(GPU_SRC))))
	@$(call gpu_sh,fault,$(BUILD)/tests/gpu $(BUILD)/fp8lab)
	@$(call gpu_sh,hang,$(BUILD)/tests/gpu $(BUILD)/fp8lab)
	@$(call gpu_sh,unfit,$(BUILD)/fp8lab $(FOREIGN))
	@$(call gpu_sh,repeat,$(BUILD)/fp8lab)
	@$(call gpu_sh,start,$(BUILD)/fp8lab)
	@$(call gpu_sh,parity,$(BUILD)/tests/gpu || [ $$? = 77 ])

# clang's -Wconversion finds conversions that can change a value. The C sources of all rooms, without
# an object. Not tests/: clang only finds enums there that are counted as int. Off: the idiom
# assert(!"text").
.PHONY: conversions
conversions: $(GEN)/kernels_hash.h $(GEN)/sources.h ## compile the C sources with clang -Wconversion, without an object
	@command -v clang >/dev/null || { echo "clang is missing: containers/install.sh lint" >&2; exit 1; }
	$(Q)printf '%s\n' runner/main.c $(RUNNER_SRC) $(MODEL_SRC) $(KERNELS_SRC) | xargs -n 16 -P $(JOBS) \
	    clang $(BASE_FLAGS) -Wconversion -Wno-string-conversion -Werror -fsyntax-only -I$(GEN) $(PKG_CFLAGS)

# What takes longest under the sanitizers or in Python runs there in `make test-long` only.
ASAN_LONG := bundle/test_compare_content bundle/test_compare_early bundle/test_compare_factor \
    bundle/test_compare_faster bundle/test_compare_losses bundle/test_compare_place \
    bundle/test_compare_require bundle/test_compare_settings bundle/test_compare_spikes \
    bundle/test_evidence chat/test_jinja cli/test_bench_energy dist/test_odd_files \
    dist/test_one_rank_fails dist/test_shard dist/test_written fault/test_cache \
    fault/test_render fault/test_runner fault/test_weights ingest/test_go_on ingest/test_split \
    ingest/test_unique lua/test_render lua/test_sandbox ops/test_arithmetic \
    ops/test_attention_exact ops/test_certify ops/test_class_noise ops/test_matmul \
    ops/test_quantise ops/test_sum_order train/test_audit train/test_damage \
    train/test_fp8_error train/test_freeze train/test_gradients train/test_late \
    train/test_logits train/test_recipes train/test_stale train/test_token_losses \
    train/test_training train/test_twins weights/test_adopt
CI_ASAN    := $(filter-out $(ASAN_LONG:%=tests/%.c),$(TEST_SRC))
CI_OUTSIDE := $(filter-out %/bags.sh %/reproduce.sh %/templates.sh %/tensorboard.sh \
                           %/tokenizers.sh,$(OUTSIDE_SH))
.PHONY: ci
ci: test-packages conversions
	+@$(AGAIN) test-venv test-build $(if $(NVCC),$(PLUGIN))
	+@$(AGAIN) CONFIG=asan test-build TEST_BIN='$(CI_ASAN:%.c=build/asan/%)'
	@tests/run.sh $(call test_names,$(TEST_SRC) $(TEST_SH) $(CI_OUTSIDE)) \
	    $(patsubst release:%,asan:%,$(call test_names,$(CI_ASAN)))

.PHONY: test-long-build
test-long-build: $(BUILD)/fp8lab $(STAND_INS) $(LONG_BIN) $(LONG_USES)
# Threads other than OpenMP's. dist/cuda_threads.sh compiles those of the CUDA backend with the
# sanitizer itself.
THREADED := dist/test_job dist/test_comm dist/test_overlap cli/test_supervise unit/test_board \
    unit/test_signals train/test_data_order
.PHONY: test-threads
test-threads: ## run the tests of threads under the thread sanitizer
	+@$(AGAIN) test CONFIG=tsan T="$(THREADED)"
	+@FP8LAB_TEST_IMAGE=1 $(AGAIN) test T="dist/cuda_threads"
.PHONY: test-asan-long
test-asan-long: ## run under the sanitizers what .ci/run leaves out
	+@$(AGAIN) test CONFIG=asan T="$(ASAN_LONG)"
.PHONY: test-long
test-long: test-packages ## run what takes minutes and up to 14 GB of memory, threads, Python packages of others; T=
	+@$(AGAIN) test-venv test-long-build
	+@$(if $(T),,$(AGAIN) test-threads)
	+@$(if $(T),,$(AGAIN) test-asan-long)
	@JOBS=1 TEST_TIMEOUT=1800 tests/run.sh $(call test_names,$(LONG_SRC) $(LONG_SH) $(OUTSIDE_SH))

.PHONY: arrows
arrows: ## check the includes between rooms; `make check` also looks for mutable state in the objects
	@tests/house/arrows.sh .

.PHONY: headers
headers: ## compile each header alone, as C11, and those of kernels/ as C++ too
	@tests/house/headers.sh

# ---- the first run -------------------------------------------------------------------------------
.PHONY: demo
demo: ## set up, build, train the quick start in four recipes on real text, and compare them
	@containers/install.sh build data
	+@$(AGAIN) $(if $(wildcard /dev/nvidiactl),all,$(BUILD)/fp8lab)
	@containers/export_text.sh data/quickstart.txt
	@$(BUILD)/fp8lab data data/quickstart.txt
	@$(BUILD)/fp8lab run experiments/quickstart.lua
	@echo 'fp8lab is $(BUILD)/fp8lab here; to call it by name: PATH=$$PWD/$(BUILD):$$PATH' >&2

# ---- reproduction ---------------------------------------------------------------------------------
# Runs in the image if a container tool works. containers/repro.sh describes ONLY=... and the others.
.PHONY: repro
repro: ## run this platform's reference bundles again and compare to the bit; NATIVE=1: no image
	@containers/repro.sh

# ---- the rest ------------------------------------------------------------------------------------
.PHONY: dist
dist: $(BUILD)/fp8lab-relocatable ## lay out dist/fp8lab, which runs elsewhere, libraries included
	@containers/dist.sh $< dist/fp8lab $(if $(NVCC),$(PLUGIN))
ifneq ($(NVCC),)
dist: $(PLUGIN)
endif

# containers/image.sh describes BASE_IMAGE=..., ARCH=... and the others.
.PHONY: image
image: ## build the container image; BASE_IMAGE=..., ARCH=arm64, CUDA=none, TAG=..., TOOL=...
	@containers/image.sh build

.PHONY: sif
sif: ## build fp8lab.sif with Apptainer; BASE_IMAGE=... as for image
	@containers/apptainer.sh

.PHONY: pin-base
pin-base: ## ask the registry for the digest of the base image, and keep it in containers/versions
	@containers/image.sh pin

# For editors and clangd. One line of JSON, made by make itself.
COMMANDS_OF := runner/main.c $(RUNNER_SRC) $(MODEL_SRC) $(KERNELS_SRC) $(wildcard tests/*/*.c)
comma := ,
command_of = {"directory":"$(CURDIR)"$(comma)"file":"$(1)"$(comma)"command":"$(subst ",\",$(strip \
    $(CC) $(CFLAGS) $(FLAGS_$(basename $(notdir $(1)))) $(PKG_CFLAGS) -I$(GEN) -c $(1)))"}
.PHONY: compile_commands.json
compile_commands.json: ## write how each C source is compiled, for editors
	$(file >$@,[$(subst } {,}$(comma){,$(foreach s,$(COMMANDS_OF),$(call command_of,$(s))))])
	@echo "$@: $(words $(COMMANDS_OF)) sources"

.PHONY: info
info: ## show what the build found, and what it skips because something is missing
	@containers/info.sh $(PKGS)

.PHONY: clean
clean: ## remove build/
	rm -rf build

.PHONY: help
help: ## list the targets
	@echo "make TARGET [CONFIG=release|debug|asan|tsan]"
	@sed -n 's/^\([a-z][a-z_.-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16
