# A thin front for CMake: each target is one or two commands that you can type yourself.
PRESET ?= release
PREFIX ?= /usr/local

.PHONY: all help test check asan tsan lint tidy format demo install clean

## all: build the library and the program (PRESET=release), in build/<preset>
all:
	@cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET)

## help: print this list
help:
	@sed -n 's/^## //p' Makefile

## test: build preset dev and run its tests
test:
	@cmake --workflow --preset dev

## check: all that a CPU can prove: tests, sanitizers, lint
check:
	@scripts/check

## asan: build with address and undefined behaviour sanitizers and run the tests
asan:
	@cmake --workflow --preset asan

## tsan: build with the thread sanitizer and run the tests
tsan:
	@cmake --workflow --preset tsan

## lint: layering, sizes, names, banned functions, formatting
lint:
	@tools/lint/run

## tidy: clang-tidy over the library and the programs (slow; needs build/dev)
tidy:
	@cmake --preset dev >/dev/null
	@tools/lint/files src apps | grep '\.c$$' | xargs clang-tidy --quiet -p build/dev

## format: rewrite all C sources with clang-format
format:
	@tools/lint/format --fix

## demo: draw eight prompts with the bundled model in four precisions, side by side in ounce-demo.png
demo:
	@scripts/demo

## install: build and install under PREFIX=/usr/local (DESTDIR is honoured)
install:
	@cmake --preset $(PRESET) -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@cmake --build --preset $(PRESET)
	@cmake --install build/$(PRESET)

## clean: remove every build
clean:
	@rm -rf build
