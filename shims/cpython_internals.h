/* The interpreter's own definition of a frame: the internal headers of the
 * version being compiled against, in the order each of them needs.
 *
 * Only test code includes this. The library itself never sees these headers:
 * that is what the programs built on this file check it against.
 */
#ifndef LOCALSPLUS_CPYTHON_INTERNALS_H
#define LOCALSPLUS_CPYTHON_INTERNALS_H

#ifndef Py_BUILD_CORE
#  define Py_BUILD_CORE 1
#endif

#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000
#  error "localsplus starts at CPython 3.11"
#endif

#include <stddef.h>
#include <stdint.h>

/* The headers themselves are not clean under -Wextra in every version. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_runtime.h"
#if PY_VERSION_HEX >= 0x030D0000
#  include "internal/pycore_opcode_utils.h"
#endif
#if PY_VERSION_HEX >= 0x030E0000
#  include "internal/pycore_debug_offsets.h"
#  include "internal/pycore_interpframe.h"
#  include "internal/pycore_stackref.h"
#endif
#include "opcode.h"
#pragma GCC diagnostic pop

/* Thread-local bytecode: frames of such a build point into a copy of the code. */
#if PY_VERSION_HEX >= 0x030E0000 && defined(Py_GIL_DISABLED)
#  define LOCALSPLUS_HAS_TLBC 1
#endif

/* Slots hold tagged references instead of plain object pointers. */
#if PY_VERSION_HEX >= 0x030E0000
#  define LOCALSPLUS_HAS_STACKREFS 1
#endif

/* 3.11 spells the test out wherever it needs it. */
#ifndef FRAME_STATE_FINISHED
#  define FRAME_STATE_FINISHED(S) ((S) >= FRAME_COMPLETED)
#endif

#endif /* LOCALSPLUS_CPYTHON_INTERNALS_H */
