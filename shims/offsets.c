/* Prints every offset, size and constant that a reader of interpreter frames
 * depends on, as `name value` lines, out of the headers it is compiled with.
 *
 *     cc -I$(python3.X -c 'import sysconfig; print(sysconfig.get_path("include"))') \
 *        offsets.c -o offsets && ./offsets
 *
 * Add -DPy_GIL_DISABLED=1 (3.13 and later), -DPy_TRACE_REFS or -DPy_DEBUG for
 * the layout of a build whose pyconfig.h is not at hand. Nothing of the
 * interpreter is linked or run. A name that a version does not have is left
 * out, never printed as a guess.
 */
#include "cpython_internals.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void
print_value(const char *name, int64_t value)
{
    printf("%s %" PRId64 "\n", name, value);
}

#define VALUE(NAME, EXPR) print_value(NAME, (int64_t)(EXPR))
#define OFFSET(NAME, TYPE, FIELD) VALUE(NAME, offsetof(TYPE, FIELD))

static void
print_build(void)
{
    VALUE("python.version_hex", PY_VERSION_HEX);
#ifdef Py_GIL_DISABLED
    VALUE("build.free_threaded", 1);
#else
    VALUE("build.free_threaded", 0);
#endif
#ifdef Py_DEBUG
    VALUE("build.debug", 1);
#else
    VALUE("build.debug", 0);
#endif
#ifdef Py_TRACE_REFS
    VALUE("build.trace_refs", 1);
#else
    VALUE("build.trace_refs", 0);
#endif
}

static void
print_frame(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    OFFSET("frame.executable", _PyInterpreterFrame, f_executable);
    OFFSET("frame.instr", _PyInterpreterFrame, instr_ptr);
    VALUE("frame.instr_is_next", 1);
#else
    OFFSET("frame.executable", _PyInterpreterFrame, f_code);
    OFFSET("frame.instr", _PyInterpreterFrame, prev_instr);
    VALUE("frame.instr_is_next", 0);
#endif
#if PY_VERSION_HEX >= 0x030C0000
    OFFSET("frame.function", _PyInterpreterFrame, f_funcobj);
#else
    OFFSET("frame.function", _PyInterpreterFrame, f_func);
#endif
    OFFSET("frame.previous", _PyInterpreterFrame, previous);
    OFFSET("frame.globals", _PyInterpreterFrame, f_globals);
    OFFSET("frame.builtins", _PyInterpreterFrame, f_builtins);
    OFFSET("frame.locals", _PyInterpreterFrame, f_locals);
    OFFSET("frame.frame_obj", _PyInterpreterFrame, frame_obj);
#if PY_VERSION_HEX >= 0x030D0000
    OFFSET("thread.current_frame", PyThreadState, current_frame);
#else
    OFFSET("thread.cframe", PyThreadState, cframe);
    OFFSET("thread.current_frame", _PyCFrame, current_frame);
#endif
#ifdef LOCALSPLUS_HAS_STACKREFS
    OFFSET("frame.stack", _PyInterpreterFrame, stackpointer);
    VALUE("frame.stack_size", sizeof(((_PyInterpreterFrame *)0)->stackpointer));
#else
    OFFSET("frame.stack", _PyInterpreterFrame, stacktop);
    VALUE("frame.stack_size", sizeof(((_PyInterpreterFrame *)0)->stacktop));
#endif
#ifdef LOCALSPLUS_HAS_TLBC
    OFFSET("frame.tlbc_index", _PyInterpreterFrame, tlbc_index);
#endif
    OFFSET("frame.owner", _PyInterpreterFrame, owner);
    OFFSET("frame.localsplus", _PyInterpreterFrame, localsplus);
    VALUE("frame.size", sizeof(_PyInterpreterFrame));

    VALUE("owner.thread", FRAME_OWNED_BY_THREAD);
    VALUE("owner.generator", FRAME_OWNED_BY_GENERATOR);
    VALUE("owner.frame_object", FRAME_OWNED_BY_FRAME_OBJECT);
#if PY_VERSION_HEX >= 0x030E0000
    VALUE("owner.shim", FRAME_OWNED_BY_INTERPRETER);
#elif PY_VERSION_HEX >= 0x030C0000
    VALUE("owner.shim", FRAME_OWNED_BY_CSTACK);
#else
    /* 3.11 has no shim frames: the first value that no frame can have. */
    VALUE("owner.shim", FRAME_OWNED_BY_FRAME_OBJECT + 1);
#endif
}

static void
print_slot(void)
{
#ifdef LOCALSPLUS_HAS_STACKREFS
    /* Which tag bits PyStackRef_AsPyObjectBorrow() strips, asked of the function
     * itself. It takes no reference with both bits set (a tagged integer). */
    const uintptr_t address = 0x1000;
    uintptr_t mask = 0;
    for (uintptr_t bit = 1; bit <= 2; bit <<= 1) {
        _PyStackRef ref = {.bits = address | bit};
        if ((uintptr_t)PyStackRef_AsPyObjectBorrow(ref) == address) {
            mask |= bit;
        }
    }
    VALUE("slot.null", PyStackRef_NULL.bits);
    VALUE("slot.tag_mask", mask);
    VALUE("slot.tag_bits", Py_TAG_BITS);
    VALUE("slot.int_tag", Py_INT_TAG);
#  ifdef Py_TAG_INVALID
    VALUE("slot.invalid_tag", Py_TAG_INVALID);
#  endif
#else
    VALUE("slot.null", 0);
    VALUE("slot.tag_mask", 0);
#endif
}

static void
print_code(void)
{
    VALUE("code.size", sizeof(PyCodeObject));
    OFFSET("code.co_flags", PyCodeObject, co_flags);
    OFFSET("code.co_argcount", PyCodeObject, co_argcount);
    OFFSET("code.co_posonlyargcount", PyCodeObject, co_posonlyargcount);
    OFFSET("code.co_kwonlyargcount", PyCodeObject, co_kwonlyargcount);
    OFFSET("code.co_stacksize", PyCodeObject, co_stacksize);
    OFFSET("code.co_nlocalsplus", PyCodeObject, co_nlocalsplus);
    OFFSET("code.co_nfreevars", PyCodeObject, co_nfreevars);
    OFFSET("code.co_localsplusnames", PyCodeObject, co_localsplusnames);
    OFFSET("code.co_localspluskinds", PyCodeObject, co_localspluskinds);
    OFFSET("code._co_firsttraceable", PyCodeObject, _co_firsttraceable);
    OFFSET("code.co_code_adaptive", PyCodeObject, co_code_adaptive);
    VALUE("code.unit_size", sizeof(_Py_CODEUNIT));
#ifdef LOCALSPLUS_HAS_TLBC
    OFFSET("code.co_tlbc", PyCodeObject, co_tlbc);
    OFFSET("code_array.size", _PyCodeArray, size);
    OFFSET("code_array.entries", _PyCodeArray, entries);
#endif

    VALUE("flag.CO_OPTIMIZED", CO_OPTIMIZED);
    VALUE("flag.CO_VARARGS", CO_VARARGS);
    VALUE("flag.CO_VARKEYWORDS", CO_VARKEYWORDS);

    VALUE("kind.LOCAL", CO_FAST_LOCAL);
    VALUE("kind.CELL", CO_FAST_CELL);
    VALUE("kind.FREE", CO_FAST_FREE);
#ifdef CO_FAST_HIDDEN
    VALUE("kind.HIDDEN", CO_FAST_HIDDEN);
#endif
#ifdef CO_FAST_ARG
    VALUE("kind.ARG", CO_FAST_ARG);
#endif

    VALUE("opcode.MAKE_CELL", MAKE_CELL);
    VALUE("opcode.COPY_FREE_VARS", COPY_FREE_VARS);
    VALUE("opcode.EXTENDED_ARG", EXTENDED_ARG);
}

static void
print_objects(void)
{
    VALUE("object.size", sizeof(PyObject));
#ifndef Py_GIL_DISABLED
    OFFSET("object.ob_refcnt", PyObject, ob_refcnt);
#endif
    OFFSET("object.ob_type", PyObject, ob_type);
    OFFSET("varobject.ob_size", PyVarObject, ob_size);
    OFFSET("bytes.ob_sval", PyBytesObject, ob_sval);
    OFFSET("tuple.ob_item", PyTupleObject, ob_item);
    OFFSET("function.func_code", PyFunctionObject, func_code);
    OFFSET("function.func_builtins", PyFunctionObject, func_builtins);
    OFFSET("function.func_closure", PyFunctionObject, func_closure);
    OFFSET("cell.ob_ref", PyCellObject, ob_ref);
    VALUE("frame_object.size", sizeof(PyFrameObject));
    OFFSET("frame_object.f_back", PyFrameObject, f_back);
    OFFSET("frame_object.f_frame", PyFrameObject, f_frame);
    OFFSET("frame_object._f_frame_data", PyFrameObject, _f_frame_data);
    VALUE("generator.size", sizeof(PyGenObject));
    OFFSET("generator.gi_iframe", PyGenObject, gi_iframe);
    OFFSET("generator.gi_frame_state", PyGenObject, gi_frame_state);
    VALUE("generator.created", FRAME_CREATED);
    VALUE("generator.executing", FRAME_EXECUTING);
    for (int state = INT8_MIN; state <= INT8_MAX; state++) {
        if (FRAME_STATE_FINISHED(state)) {
            /* The lowest state of a finished generator. */
            VALUE("generator.finished", state);
            break;
        }
    }

    /* What the types' __basicsize__ must be: the part in front of the
     * variable-sized tail, which is not sizeof(). */
    VALUE("basicsize.object", sizeof(PyObject));
    VALUE("basicsize.function", sizeof(PyFunctionObject));
    VALUE("basicsize.code", offsetof(PyCodeObject, co_code_adaptive));
    VALUE("basicsize.frame", offsetof(PyFrameObject, _f_frame_data)
                                 + offsetof(_PyInterpreterFrame, localsplus));
    VALUE("basicsize.generator", offsetof(PyGenObject, gi_iframe)
                                     + offsetof(_PyInterpreterFrame, localsplus));
}

static void
print_debug_offsets(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    /* Where inside _PyRuntime the interpreter publishes the offset of a field:
     * debug_offsets is the first member of it. */
#define POSITION(FIELD) OFFSET("debug_offsets." #FIELD, _Py_DebugOffsets, FIELD)
    VALUE("debug_offsets.position", offsetof(_PyRuntimeState, debug_offsets));
    VALUE("debug_offsets.size", sizeof(_Py_DebugOffsets));
    POSITION(cookie);
    POSITION(version);
    POSITION(free_threaded);
    POSITION(thread_state.size);
    POSITION(thread_state.current_frame);
    POSITION(interpreter_frame.size);
    POSITION(interpreter_frame.previous);
    POSITION(interpreter_frame.executable);
    POSITION(interpreter_frame.instr_ptr);
    POSITION(interpreter_frame.localsplus);
    POSITION(interpreter_frame.owner);
    POSITION(code_object.size);
    POSITION(code_object.argcount);
    POSITION(code_object.localsplusnames);
    POSITION(code_object.localspluskinds);
    POSITION(code_object.co_code_adaptive);
    POSITION(pyobject.size);
    POSITION(pyobject.ob_type);
    POSITION(tuple_object.size);
    POSITION(tuple_object.ob_item);
    POSITION(tuple_object.ob_size);
    POSITION(bytes_object.size);
    POSITION(bytes_object.ob_size);
    POSITION(bytes_object.ob_sval);
#endif
#if PY_VERSION_HEX >= 0x030E0000
    POSITION(interpreter_frame.stackpointer);
    POSITION(interpreter_frame.tlbc_index);
    POSITION(code_object.co_tlbc);
    POSITION(gen_object.size);
    POSITION(gen_object.gi_iframe);
    POSITION(gen_object.gi_frame_state);
#endif
#undef POSITION
}

/* What the macros make of a count, low half and flags and all. Free-threaded
 * builds count in several fields, Py_REF_DEBUG ones in the interpreter too. */
#if !defined(Py_GIL_DISABLED) && !defined(Py_REF_DEBUG)

static int deallocated;

void
_Py_Dealloc(PyObject *object)
{
    (void)object;
    deallocated = 1;
}

static void
print_counting(void)
{
    static const uint64_t counts[] = {
        1, 2, 0x7ffffffe, 0x7fffffff, 0x80000000, 0x80000001, 0xbfffffff, 0xc0000000, 0xc0000001, 0xfffffffe, 0xffffffff,
#if PY_VERSION_HEX < 0x030C0000
        0x100000000, 0x7ffffffffffffffe,
#elif PY_VERSION_HEX >= 0x030E0000
        0x1000000000001, 0x1000080000000, 0x10000c0000000,
#endif
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        PyObject object = {0};
        char name[64];
        uint64_t word;
        memcpy((char *)&object + offsetof(PyObject, ob_refcnt), &counts[i], sizeof(word));
        Py_INCREF(&object);
        memcpy(&word, (char *)&object + offsetof(PyObject, ob_refcnt), sizeof(word));
        snprintf(name, sizeof(name), "count.%" PRIu64 ".increment", counts[i]);
        VALUE(name, word);
        memcpy((char *)&object + offsetof(PyObject, ob_refcnt), &counts[i], sizeof(word));
        deallocated = 0;
        Py_DECREF(&object);
        memcpy(&word, (char *)&object + offsetof(PyObject, ob_refcnt), sizeof(word));
        snprintf(name, sizeof(name), "count.%" PRIu64 ".decrement", counts[i]);
        VALUE(name, word);
        snprintf(name, sizeof(name), "count.%" PRIu64 ".last", counts[i]);
        VALUE(name, deallocated);
    }

    /* The lowest 32-bit count that Py_INCREF() leaves as it is; 2**32 if it
     * counts on from all of them. */
    uint64_t lowest = 1;
    uint64_t end = (uint64_t)1 << 32;
    while (lowest < end) {
        const uint64_t count = lowest + (end - lowest) / 2;
        PyObject object = {0};
        uint64_t word;
        memcpy((char *)&object + offsetof(PyObject, ob_refcnt), &count, sizeof(word));
        Py_INCREF(&object);
        memcpy(&word, (char *)&object + offsetof(PyObject, ob_refcnt), sizeof(word));
        if (word == count) {
            end = count;
        } else {
            lowest = count + 1;
        }
    }
    VALUE("count.immortal_from", lowest);
}

#else

static void
print_counting(void)
{
}

#endif

int
main(void)
{
    print_build();
    print_counting();
    print_frame();
    print_slot();
    print_code();
    print_objects();
    print_debug_offsets();
    return ferror(stdout) || fflush(stdout) != 0;
}
