#include "cpython_internals.h"
#include "oracle.h"

#include <string.h>

#if defined(Py_STACKREF_DEBUG) && !defined(Py_GIL_DISABLED)
#  error "slots of a Py_STACKREF_DEBUG build are handles, which localsplus refuses"
#endif

/* ---- what the versions name differently --------------------------------- */

#ifdef LOCALSPLUS_HAS_STACKREFS

static PyObject *
object_of(_PyStackRef ref)
{
    if (PyStackRef_IsNull(ref) || ref.bits == 0 || PyStackRef_IsTaggedInt(ref)) {
        return NULL;
    }
#  ifdef Py_TAG_INVALID
    if (PyStackRef_IsMalformed(ref)) {
        return NULL;
    }
#  else
    /* 3.14 gives the bit pattern no name; it is no reference either. */
    if ((ref.bits & 3) == 2) {
        return NULL;
    }
#  endif
    return PyStackRef_AsPyObjectBorrow(ref);
}

#else

static PyObject *
object_of(PyObject *slot)
{
    return slot;
}

#endif

int
oracle_owner(_PyInterpreterFrame *frame)
{
    return (unsigned char)frame->owner;
}

PyObject *
oracle_executable(_PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return object_of(frame->f_executable);
#else
    return (PyObject *)frame->f_code;
#endif
}

PyObject *
oracle_function(_PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return object_of(frame->f_funcobj);
#else
    return (PyObject *)frame->f_func;
#endif
}

static PyCodeObject *
code_of(_PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return _PyFrame_GetCode(frame);
#else
    return frame->f_code;
#endif
}

static _Py_CODEUNIT *
first_instruction(_PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    return _PyFrame_GetBytecode(frame);
#else
    return _PyCode_CODE(code_of(frame));
#endif
}

static _Py_CODEUNIT *
current_instruction(_PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return frame->instr_ptr;
#else
    return frame->prev_instr;
#endif
}

static int
opcode_of(_Py_CODEUNIT unit)
{
#if PY_VERSION_HEX >= 0x030C0000
    return unit.op.code;
#else
    return _Py_OPCODE(unit);
#endif
}

static int
oparg_of(_Py_CODEUNIT unit)
{
#if PY_VERSION_HEX >= 0x030C0000
    return unit.op.arg;
#else
    return _Py_OPARG(unit);
#endif
}

static PyGenObject *
generator_of(_PyInterpreterFrame *frame)
{
    return (PyGenObject *)((char *)frame - offsetof(PyGenObject, gi_iframe));
}

Py_ssize_t
oracle_stack_depth(_PyInterpreterFrame *frame)
{
#ifdef LOCALSPLUS_HAS_STACKREFS
    if (frame->stackpointer == NULL) {
        return ORACLE_STACK_UNKNOWN;
    }
    return frame->stackpointer - frame->localsplus;
#else
    return frame->stacktop;
#endif
}

/* ---- the other fields --------------------------------------------------- */

PyObject *
oracle_frame_obj(_PyInterpreterFrame *frame)
{
    return (PyObject *)frame->frame_obj;
}

_PyInterpreterFrame *
oracle_previous(_PyInterpreterFrame *frame)
{
    return frame->previous;
}

Py_ssize_t
oracle_instr_index(_PyInterpreterFrame *frame)
{
    return _PyInterpreterFrame_LASTI(frame);
}

uintptr_t
oracle_slot_bits(_PyInterpreterFrame *frame, Py_ssize_t index)
{
    uintptr_t bits;
    memcpy(&bits, &frame->localsplus[index], sizeof(bits));
    return bits;
}

uintptr_t
oracle_null_bits(void)
{
#ifdef LOCALSPLUS_HAS_STACKREFS
    return PyStackRef_NULL.bits;
#else
    return 0;
#endif
}

uintptr_t
oracle_borrowed_bits(PyObject *object)
{
#ifdef LOCALSPLUS_HAS_STACKREFS
    return (uintptr_t)object | Py_TAG_REFCNT;
#else
    return (uintptr_t)object;
#endif
}

_PyInterpreterFrame *
oracle_current_frame(void)
{
    PyThreadState *tstate = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030D0000
    return tstate->current_frame;
#else
    return tstate->cframe->current_frame;
#endif
}

_PyInterpreterFrame *
oracle_frame_of_frame_object(PyObject *frame_object)
{
    return ((PyFrameObject *)frame_object)->f_frame;
}

_PyInterpreterFrame *
oracle_frame_of_generator(PyObject *generator)
{
    if (!PyGen_CheckExact(generator) && !PyCoro_CheckExact(generator) && !PyAsyncGen_CheckExact(generator)) {
        return NULL;
    }
    return (_PyInterpreterFrame *)((char *)generator + offsetof(PyGenObject, gi_iframe));
}

/* ---- the reader --------------------------------------------------------- */

int
oracle_is_python_frame(_PyInterpreterFrame *frame)
{
    if (oracle_owner(frame) > FRAME_OWNED_BY_FRAME_OBJECT) {
        return 0;
    }
    PyObject *executable = oracle_executable(frame);
    return executable != NULL && PyCode_Check(executable);
}

Py_ssize_t
oracle_count(_PyInterpreterFrame *frame)
{
    return code_of(frame)->co_nlocalsplus;
}

PyObject *
oracle_names(_PyInterpreterFrame *frame)
{
    return code_of(frame)->co_localsplusnames;
}

static _PyLocals_Kind
kind_of(PyCodeObject *code, Py_ssize_t index)
{
    return _PyLocals_GetKind(code->co_localspluskinds, (int)index);
}

static int
is_parameter(PyCodeObject *code, Py_ssize_t index)
{
    int nargs = code->co_argcount + code->co_kwonlyargcount;
    nargs += (code->co_flags & CO_VARARGS) != 0;
    nargs += (code->co_flags & CO_VARKEYWORDS) != 0;
#ifdef CO_FAST_ARG
    /* The compiler marks them. code.replace() and types.CodeType() do not: nothing
     * is marked in what they make. */
    if (nargs > 0 && (kind_of(code, 0) & CO_FAST_ARG)) {
        return (kind_of(code, index) & CO_FAST_ARG) != 0;
    }
#endif
    return index < nargs;
}

int
oracle_kind(_PyInterpreterFrame *frame, Py_ssize_t index)
{
    PyCodeObject *code = code_of(frame);
    _PyLocals_Kind kind = kind_of(code, index);
    int answer = 0;
    if (kind & CO_FAST_LOCAL) {
        answer |= ORACLE_KIND_LOCAL;
    }
    if (kind & CO_FAST_CELL) {
        answer |= ORACLE_KIND_CELL;
    }
    if (kind & CO_FAST_FREE) {
        answer |= ORACLE_KIND_FREE;
    }
#ifdef CO_FAST_HIDDEN
    if (kind & CO_FAST_HIDDEN) {
        answer |= ORACLE_KIND_HIDDEN;
    }
#endif
    if (is_parameter(code, index)) {
        answer |= ORACLE_KIND_ARG;
    }
    return answer;
}

/* Whether the prologue instruction `opcode` (with `oparg`, unless that is
 * negative) has run. */
static int
op_already_ran(_PyInterpreterFrame *frame, int opcode, int oparg)
{
    if (!_PyFrame_IsIncomplete(frame)) {
        return 1;
    }
    int extended = 0;
    for (_Py_CODEUNIT *unit = first_instruction(frame); unit < current_instruction(frame); unit++) {
        /* The prologue has no inline caches and is never specialised. */
        int arg = extended | oparg_of(*unit);
        if (opcode_of(*unit) == opcode && (oparg < 0 || arg == oparg)) {
            return 1;
        }
        extended = opcode_of(*unit) == EXTENDED_ARG ? arg << 8 : 0;
    }
    return 0;
}

int
oracle_prologue_ran(_PyInterpreterFrame *frame)
{
    return !_PyFrame_IsIncomplete(frame);
}

int
oracle_generator_finished(_PyInterpreterFrame *frame)
{
    return oracle_owner(frame) == FRAME_OWNED_BY_GENERATOR
           && FRAME_STATE_FINISHED(generator_of(frame)->gi_frame_state);
}

static int
is_live(_PyInterpreterFrame *frame, Py_ssize_t index)
{
    if (oracle_generator_finished(frame)) {
        return 0;
    }
    Py_ssize_t depth = oracle_stack_depth(frame);
    return depth < 0 || depth > index;
}

/* The cell that COPY_FREE_VARS is going to put into the slot. */
static PyObject *
closure_entry(_PyInterpreterFrame *frame, Py_ssize_t index)
{
    PyCodeObject *code = code_of(frame);
    PyObject *function = oracle_function(frame);
    if (function == NULL || !PyFunction_Check(function)) {
        return NULL;
    }
    PyObject *closure = PyFunction_GET_CLOSURE(function);
    Py_ssize_t position = index - (code->co_nlocalsplus - code->co_nfreevars);
    if (closure == NULL || !PyTuple_Check(closure) || position >= PyTuple_GET_SIZE(closure)) {
        return NULL;
    }
    return PyTuple_GET_ITEM(closure, position);
}

int
oracle_get_slot(_PyInterpreterFrame *frame, Py_ssize_t index, unsigned flags, PyObject **result)
{
    *result = NULL;
    PyCodeObject *code = code_of(frame);
    _PyLocals_Kind kind = kind_of(code, index);
#ifdef CO_FAST_HIDDEN
    if ((kind & CO_FAST_HIDDEN) && !(flags & ORACLE_HIDDEN)) {
        return 0;
    }
#endif
    if ((kind & CO_FAST_FREE) && !(code->co_flags & CO_OPTIMIZED)) {
        return 0;
    }
    if (!is_live(frame, index)) {
        return 0;
    }

    PyObject *value;
    int is_boxed;
    if (kind & CO_FAST_FREE) {
        value = op_already_ran(frame, COPY_FREE_VARS, -1) ? object_of(frame->localsplus[index])
                                                          : closure_entry(frame, index);
        if (value == NULL || !PyCell_Check(value)) {
            return 0;
        }
        is_boxed = 1;
    }
    else {
        value = object_of(frame->localsplus[index]);
        if (value == NULL) {
            return 0;
        }
        is_boxed = (kind & CO_FAST_CELL) && PyCell_Check(value) && op_already_ran(frame, MAKE_CELL, (int)index);
    }

    if (is_boxed && !(flags & ORACLE_RAW_CELL)) {
        *result = PyCell_Get(value);
    }
    else {
        *result = Py_NewRef(value);
    }
    return *result != NULL;
}

/* ---- what a frame is ---------------------------------------------------- */

static int
has_function(_PyInterpreterFrame *frame)
{
    /* A finished generator has given it up. */
    if (oracle_generator_finished(frame)) {
        return 0;
    }
    PyObject *function = oracle_function(frame);
    return function != NULL && PyFunction_Check(function);
}

PyObject *
oracle_globals(_PyInterpreterFrame *frame)
{
    return has_function(frame) ? frame->f_globals : NULL;
}

PyObject *
oracle_builtins(_PyInterpreterFrame *frame)
{
    return has_function(frame) ? frame->f_builtins : NULL;
}

PyObject *
oracle_namespace(_PyInterpreterFrame *frame)
{
    if (oracle_generator_finished(frame) || (code_of(frame)->co_flags & CO_OPTIMIZED)) {
        return NULL;
    }
    return frame->f_locals;
}

PyObject *
oracle_closure(_PyInterpreterFrame *frame)
{
    return has_function(frame) ? PyFunction_GET_CLOSURE(oracle_function(frame)) : NULL;
}

PyObject *
oracle_frame_object(_PyInterpreterFrame *frame)
{
    if (oracle_owner(frame) == FRAME_OWNED_BY_FRAME_OBJECT) {
        return (PyObject *)((char *)frame - offsetof(PyFrameObject, _f_frame_data));
    }
    return oracle_generator_finished(frame) ? NULL : oracle_frame_obj(frame);
}

static int
is_incomplete(_PyInterpreterFrame *frame)
{
    /* 3.12's own test leaves out the shims, which have a code object there. */
    return oracle_owner(frame) > FRAME_OWNED_BY_FRAME_OBJECT || _PyFrame_IsIncomplete(frame);
}

static _PyInterpreterFrame *
first_complete(_PyInterpreterFrame *frame)
{
    while (frame != NULL && is_incomplete(frame)) {
        frame = frame->previous;
    }
    return frame;
}

_PyInterpreterFrame *
oracle_running_frame(void)
{
    return first_complete(oracle_current_frame());
}

_PyInterpreterFrame *
oracle_caller(_PyInterpreterFrame *frame)
{
    return first_complete(frame->previous);
}

enum { UNSTARTED, EXECUTING, SUSPENDED, FINISHED, CLEARED };

int
oracle_frame_state(_PyInterpreterFrame *frame)
{
    switch (oracle_owner(frame)) {
    case FRAME_OWNED_BY_GENERATOR:
        switch (generator_of(frame)->gi_frame_state) {
        case FRAME_CREATED:
            return UNSTARTED;
        case FRAME_EXECUTING:
            return EXECUTING;
        default:
            return oracle_generator_finished(frame) ? FINISHED : SUSPENDED;
        }
    case FRAME_OWNED_BY_FRAME_OBJECT:
        if (oracle_count(frame) == 0) {
            return (code_of(frame)->co_flags & CO_OPTIMIZED) || frame->f_locals != NULL ? FINISHED : CLEARED;
        }
        return oracle_stack_depth(frame) == 0 ? CLEARED : FINISHED;
    default:
        /* Only what this thread runs is linked. */
        for (_PyInterpreterFrame *linked = oracle_current_frame(); linked != NULL; linked = linked->previous) {
            if (linked == frame) {
                return is_incomplete(frame) ? UNSTARTED : EXECUTING;
            }
        }
        return UNSTARTED;
    }
}

int
oracle_lasti(_PyInterpreterFrame *frame)
{
    return (int)(_PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT));
}

int
oracle_line(_PyInterpreterFrame *frame)
{
    return PyCode_Addr2Line(code_of(frame), oracle_lasti(frame));
}

int
oracle_parameter(_PyInterpreterFrame *frame, Py_ssize_t index)
{
    PyCodeObject *code = code_of(frame);
    if (index < code->co_posonlyargcount) {
        return 1;
    }
    if (index < code->co_argcount) {
        return 2;
    }
    index -= code->co_argcount;
    if (index < code->co_kwonlyargcount) {
        return 3;
    }
    index -= code->co_kwonlyargcount;
    if (code->co_flags & CO_VARARGS) {
        if (index == 0) {
            return 4;
        }
        index--;
    }
    return (code->co_flags & CO_VARKEYWORDS) && index == 0 ? 5 : 0;
}

/* ---- hand-made frames --------------------------------------------------- */

/* No address of user space: following a pointer made of it faults. */
#define POISON 0xA5

/* In front of a generator's frame lies the generator. */
#define FRONT (offsetof(PyGenObject, gi_iframe))

_PyInterpreterFrame *
oracle_new_frame(PyObject *executable, Py_ssize_t nslots, int owner)
{
    size_t size = FRONT + offsetof(_PyInterpreterFrame, localsplus) + (size_t)(nslots + 1) * sizeof(PyObject *);
    char *memory = PyMem_Malloc(size);
    if (memory == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    memset(memory, POISON, size);
    _PyInterpreterFrame *frame = (_PyInterpreterFrame *)(memory + FRONT);
    frame->owner = (char)owner;
#ifdef LOCALSPLUS_HAS_STACKREFS
    frame->f_executable.bits = executable == NULL ? PyStackRef_NULL.bits : oracle_borrowed_bits(executable);
#elif PY_VERSION_HEX >= 0x030D0000
    frame->f_executable = executable;
#else
    frame->f_code = (PyCodeObject *)executable;
#endif
#ifdef LOCALSPLUS_HAS_TLBC
    /* Entry 0 is the code object's own bytecode. */
    frame->tlbc_index = 0;
#endif
    return frame;
}

void
oracle_free_frame(_PyInterpreterFrame *frame)
{
    PyMem_Free((char *)frame - FRONT);
}

void
oracle_set_function(_PyInterpreterFrame *frame, PyObject *function)
{
#ifdef LOCALSPLUS_HAS_STACKREFS
    frame->f_funcobj.bits = function == NULL ? PyStackRef_NULL.bits : oracle_borrowed_bits(function);
#elif PY_VERSION_HEX >= 0x030C0000
    frame->f_funcobj = function;
#else
    frame->f_func = (PyFunctionObject *)function;
#endif
}

void
oracle_set_slot_bits(_PyInterpreterFrame *frame, Py_ssize_t index, uintptr_t bits)
{
    memcpy(&frame->localsplus[index], &bits, sizeof(bits));
}

void
oracle_set_stack_depth(_PyInterpreterFrame *frame, Py_ssize_t depth)
{
#ifdef LOCALSPLUS_HAS_STACKREFS
    frame->stackpointer = depth < 0 ? NULL : frame->localsplus + depth;
#else
    frame->stacktop = (int)depth;
#endif
}

void
oracle_set_started(_PyInterpreterFrame *frame, int started)
{
    PyCodeObject *code = code_of(frame);
    _Py_CODEUNIT *start = _PyCode_CODE(code);
#if PY_VERSION_HEX >= 0x030D0000
    frame->instr_ptr = started ? start + code->_co_firsttraceable : start;
#else
    frame->prev_instr = started ? start + code->_co_firsttraceable : start - 1;
#endif
}

void
oracle_set_generator_finished(_PyInterpreterFrame *frame, int finished)
{
    generator_of(frame)->gi_frame_state = finished ? FRAME_CLEARED : FRAME_CREATED;
}

void
oracle_suppress_immortalization(void)
{
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX < 0x030E0000
    /* As compile() does while it compiles. */
    _Py_atomic_add_int(&PyInterpreterState_Get()->gc.immortalize, -2);
#endif
}
