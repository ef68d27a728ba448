#include "../../shims/cpython_internals.h"

#include "peers.h"

#ifdef LOCALSPLUS_HAS_STACKREFS
typedef _PyStackRef Slot;
#  define SLOT_OBJECT(slot) (PyStackRef_IsNull(slot) ? NULL : PyStackRef_AsPyObjectBorrow(slot))
#else
typedef PyObject *Slot;
#  define SLOT_OBJECT(slot) (slot)
#endif

static inline PyObject *
executable_of(struct _PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    return PyStackRef_AsPyObjectBorrow(frame->f_executable);
#elif PY_VERSION_HEX >= 0x030D0000
    return frame->f_executable;
#else
    return (PyObject *)frame->f_code;
#endif
}

static inline PyObject *
function_of(struct _PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    return PyStackRef_IsNull(frame->f_funcobj) ? NULL : PyStackRef_AsPyObjectBorrow(frame->f_funcobj);
#elif PY_VERSION_HEX >= 0x030C0000
    return frame->f_funcobj;
#else
    return (PyObject *)frame->f_func;
#endif
}

PyCodeObject *
code_of(struct _PyInterpreterFrame *frame)
{
    return (PyCodeObject *)executable_of(frame);
}

struct _PyInterpreterFrame *
frame_of_frame_object(PyFrameObject *frame_object)
{
    return frame_object->f_frame;
}

/* ---- (a) -------------------------------------------------------------------- */

static inline int
is_shim(struct _PyInterpreterFrame *frame)
{
    return frame->owner > FRAME_OWNED_BY_FRAME_OBJECT;
}

static inline int
prologue_ran(struct _PyInterpreterFrame *frame, PyCodeObject *code)
{
    if (frame->owner == FRAME_OWNED_BY_GENERATOR) {
        return 1;
    }
#if PY_VERSION_HEX >= 0x030E0000
    _Py_CODEUNIT *start = _PyFrame_GetBytecode(frame);
#else
    _Py_CODEUNIT *start = _PyCode_CODE(code);
#endif
#if PY_VERSION_HEX >= 0x030D0000
    return frame->instr_ptr >= start + code->_co_firsttraceable;
#else
    return frame->prev_instr >= start + code->_co_firsttraceable;
#endif
}

/* The number of slots that the stack covers. */
static inline Py_ssize_t
live_slots(struct _PyInterpreterFrame *frame, PyCodeObject *code)
{
    if (frame->owner == FRAME_OWNED_BY_GENERATOR) {
        PyGenObject *generator = (PyGenObject *)((char *)frame - offsetof(PyGenObject, gi_iframe));
        if (FRAME_STATE_FINISHED(generator->gi_frame_state)) {
            return 0;
        }
    }
#ifdef LOCALSPLUS_HAS_STACKREFS
    if (frame->stackpointer == NULL) {
        return code->co_nlocalsplus;
    }
    return frame->stackpointer - frame->localsplus;
#else
    return frame->stacktop < 0 ? code->co_nlocalsplus : frame->stacktop;
#endif
}

/* Rule R9. */
static inline PyObject *
cell_contents(PyObject *cell)
{
    return PyCell_Get(cell);
}

static inline PyObject *
plain_value(struct _PyInterpreterFrame *frame, PyCodeObject *code, Py_ssize_t index, unsigned char kind)
{
#ifdef CO_FAST_HIDDEN
    if (kind & CO_FAST_HIDDEN) {
        return NULL;
    }
#endif
    if (kind & CO_FAST_FREE) {
        if (!(code->co_flags & CO_OPTIMIZED)) {
            return NULL;
        }
        PyObject *cell;
        if (prologue_ran(frame, code)) {
            cell = SLOT_OBJECT(frame->localsplus[index]);
        }
        else {
            PyObject *function = function_of(frame);
            if (function == NULL || !PyFunction_Check(function)) {
                return NULL;
            }
            PyObject *closure = ((PyFunctionObject *)function)->func_closure;
            Py_ssize_t position = index - (code->co_nlocalsplus - code->co_nfreevars);
            if (closure == NULL || !PyTuple_CheckExact(closure) || position >= PyTuple_GET_SIZE(closure)) {
                return NULL;
            }
            cell = PyTuple_GET_ITEM(closure, position);
        }
        return cell != NULL && PyCell_Check(cell) ? cell_contents(cell) : NULL;
    }
    PyObject *value = SLOT_OBJECT(frame->localsplus[index]);
    if (value == NULL) {
        return NULL;
    }
    if ((kind & CO_FAST_CELL) && PyCell_Check(value) && prologue_ran(frame, code)) {
        return cell_contents(value);
    }
    return Py_NewRef(value);
}

__attribute__((noinline)) int
plain_get_local(struct _PyInterpreterFrame *frame, Py_ssize_t index, PyObject **result)
{
    if (result == NULL || frame == NULL) {
        PyErr_SetString(PyExc_ValueError, "NULL");
        return -1;
    }
    *result = NULL;
    if (is_shim(frame) || !PyCode_Check(executable_of(frame))) {
        PyErr_SetString(PyExc_ValueError, "not a Python frame");
        return -1;
    }
    PyCodeObject *code = code_of(frame);
    if (index < 0 || index >= code->co_nlocalsplus) {
        PyErr_Format(PyExc_IndexError, "%zd", index);
        return -1;
    }
    unsigned char kind = PyBytes_AS_STRING(code->co_localspluskinds)[index];
    if (index >= live_slots(frame, code)) {
        return 0;
    }
    *result = plain_value(frame, code, index, kind);
    return *result != NULL;
}

__attribute__((noinline)) Py_ssize_t
plain_get_locals(struct _PyInterpreterFrame *frame, PyObject **result, Py_ssize_t capacity)
{
    if (result == NULL || frame == NULL) {
        PyErr_SetString(PyExc_ValueError, "NULL");
        return -1;
    }
    if (is_shim(frame) || !PyCode_Check(executable_of(frame))) {
        PyErr_SetString(PyExc_ValueError, "not a Python frame");
        return -1;
    }
    PyCodeObject *code = code_of(frame);
    Py_ssize_t count = code->co_nlocalsplus;
    if (capacity < count) {
        PyErr_SetString(PyExc_ValueError, "capacity");
        return -1;
    }
    const unsigned char *kinds = (const unsigned char *)PyBytes_AS_STRING(code->co_localspluskinds);
    Py_ssize_t live = live_slots(frame, code);
    for (Py_ssize_t i = 0; i < count; i++) {
        result[i] = i < live ? plain_value(frame, code, i, kinds[i]) : NULL;
    }
    return count;
}

/* ---- (b) -------------------------------------------------------------------- */

__attribute__((noinline)) Py_ssize_t
floor_get_locals(struct _PyInterpreterFrame *frame, PyObject **result, Py_ssize_t capacity)
{
    (void)capacity;
    PyCodeObject *code = code_of(frame);
    Py_ssize_t count = code->co_nlocalsplus;
    Py_ssize_t first_free = count - code->co_nfreevars;
    for (Py_ssize_t i = 0; i < first_free; i++) {
        PyObject *value = SLOT_OBJECT(frame->localsplus[i]);
        Py_XINCREF(value);
        result[i] = value;
    }
    if (first_free < count) {
        PyObject *closure = ((PyFunctionObject *)function_of(frame))->func_closure;
        for (Py_ssize_t i = first_free; i < count; i++) {
            result[i] = Py_XNewRef(PyCell_GET(PyTuple_GET_ITEM(closure, i - first_free)));
        }
    }
    return count;
}

/* ---- (d), of which the rest is in mapping.cpp ----------------------------------- */

#ifdef LOCALSPLUS_HAS_STACKREFS
PyObject *
mapping_borrow(const void *reference)
{
    return SLOT_OBJECT(*(const _PyStackRef *)reference);
}
#endif
