# fp8lab: `make` builds what it can, `make help` lists the targets.
CONFIG ?= release
BUILD  ?= build/$(CONFIG)
CC     ?= gcc
Q      ?= @

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
        -Wno-unused-parameter
# No fast-math anywhere, and no contraction: the reference's bits rest on it (kernels/cpu/README.md).
BASE_FLAGS := -std=c11 -D_GNU_SOURCE -I. -fopenmp -ffp-contract=off -fno-strict-aliasing -g $(WARN)
OPT_release := -O2
OPT_debug   := -O0
OPT_asan    := -O1 -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined
ifeq ($(OPT_$(CONFIG)),)
$(error CONFIG=$(CONFIG) is unknown; use release, debug or asan)
endif
CFLAGS += $(BASE_FLAGS) $(OPT_$(CONFIG))

PKGS   := lua5.4 libarchive jansson libcrypto libpcre2-8
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS   = $(shell pkg-config --libs $(PKGS) 2>/dev/null)
LIBS   := -lm -ldl -lpthread

KERNELS_SRC := $(wildcard kernels/*.c kernels/cpu/*.c)
MODEL_SRC   := $(wildcard model/*.c)
RUNNER_SRC  := $(filter-out runner/main.c,$(wildcard runner/*.c))
objs = $(patsubst %.c,$(BUILD)/%.o,$(1))
KERNELS_LIB := $(BUILD)/libkernels.a
MODEL_LIB   := $(BUILD)/libmodel.a
RUNNER_LIB  := $(BUILD)/librunner.a
ROOMS := $(RUNNER_LIB) $(MODEL_LIB) $(KERNELS_LIB)

.PHONY: all
all: $(BUILD)/fp8lab

$(BUILD)/fp8lab: $(BUILD)/runner/main.o $(ROOMS)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS) $(LIBS)

$(KERNELS_LIB): $(call objs,$(KERNELS_SRC))
$(MODEL_LIB): $(call objs,$(MODEL_SRC))
$(RUNNER_LIB): $(call objs,$(RUNNER_SRC))
%.a:
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) $(FLAGS_$(basename $(notdir $<))) $(PKG_CFLAGS) -MMD -MP -c -o $@ $<

# Two builds of a backend fit together only if they saw the same interface headers: their hash stands
# in the operator table (kernels/backend.h).
GEN := $(BUILD)/gen
$(GEN)/interface_hash.h: $(sort $(wildcard kernels/*.h))
	@mkdir -p $(@D)
	$(Q)printf '#define FP8LAB_INTERFACE_HASH "%s"\n' "$$(cat $^ | sha256sum | cut -d' ' -f1)" > $@
FLAGS_cpu_backend := -I$(GEN)
$(BUILD)/kernels/cpu/cpu_backend.o: $(GEN)/interface_hash.h

# Their loops are vectorised by the compiler, for the instruction set that each file names.
FLAGS_isa_avx512 := -O3
FLAGS_isa_avx2 := -O3
FLAGS_isa_neon := -O3
FLAGS_isa_portable := -O3

# One program per tests/*/test_*.c, each with its own cmocka main.
TEST_SRC := $(wildcard tests/*/test_*.c)
TEST_BIN := $(patsubst %.c,$(BUILD)/%,$(TEST_SRC))
TEST_HELP := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_HELP) $(ROOMS)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $(filter %.o %.a,$^) $(PKG_LIBS) -lcmocka $(LIBS)
.PRECIOUS: $(BUILD)/%.o

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

.PHONY: clean
clean: ## remove build/
	rm -rf build
