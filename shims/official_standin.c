/* Stand-ins for PyUnstable_InterpreterFrame_GetLocal, which CPython exports
 * from 3.16 on: one shared library per behaviour, chosen with -DSTANDIN=...
 *
 *     cc -O2 -fPIC -shared -I... -DSTANDIN=STANDIN_THREE_ARGUMENTS \
 *        official_standin.c oracle.c -o standin.so
 *
 * Loaded with RTLD_GLOBAL before localsplus chooses its provider, it plays the
 * interpreter that exports the symbol. A symbol proves a name and nothing else:
 * all but the first two must be turned down. Each is also an extension module
 * named official_standin, so that an interpreter without ctypes can load it
 * (under sys.setdlopenflags).
 */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>

#define STANDIN_THREE_ARGUMENTS    1  /* as merged for 3.16 */
#define STANDIN_WITH_NAMES         2  /* the same, and PyUnstable_Code_GetLocalPlusNames */
#define STANDIN_TWO_ARGUMENTS      3  /* the draft that was never released */
#define STANDIN_ALWAYS_ZERO        4  /* no slot has a value */
#define STANDIN_OFF_BY_ONE         5  /* answers about the next slot */
#define STANDIN_RESULT_NOT_WRITTEN 6  /* the right return value, *result as it was */
#define STANDIN_WRONG_FREE         7  /* for a free variable, the cell instead of its contents */
#define STANDIN_ANY_INDEX          8  /* 1 and None for an index out of range */
#define STANDIN_LEAKED_REFERENCE   9  /* one reference too many */
#define STANDIN_BORROWED_REFERENCE 10 /* one reference too few */
#define STANDIN_NO_EXCEPTION       11 /* -1 for an index out of range, and nothing set */
#define STANDIN_KEEPS_RESULT       12 /* 0 without overwriting *result */

#ifndef STANDIN
#  error "choose a behaviour with -DSTANDIN=STANDIN_..."
#endif

/* What CPython's function answers. It differs from localsplus in two places:
 * a free variable always comes from the function's closure, also after the slot
 * got another cell, and a cell that was passed as an argument is unboxed even
 * before MAKE_CELL ran. */
static int
official_get_local(struct _PyInterpreterFrame *frame, Py_ssize_t index, PyObject **result)
{
    *result = NULL;
    if (!oracle_is_python_frame(frame)) {
        /* CPython asserts here: callers must not ask. */
        fprintf(stderr, "official_standin: asked about a frame without Python code\n");
        abort();
    }
    PyCodeObject *code = (PyCodeObject *)oracle_executable(frame);
    if (index < 0 || index >= code->co_nlocalsplus) {
        PyErr_Format(PyExc_IndexError, "localsplus index %zd out of range [0, %d)", index, code->co_nlocalsplus);
        return -1;
    }

    PyObject *cell;
    Py_ssize_t first_free = code->co_nlocalsplus - code->co_nfreevars;
    if (index < first_free) {
        int found = oracle_get_slot(frame, index, ORACLE_RAW_CELL, result);
        if (found <= 0 || !(oracle_kind(frame, index) & ORACLE_KIND_CELL) || !PyCell_Check(*result)) {
            return found;
        }
        cell = *result;
        *result = PyCell_Get(cell);
        Py_DECREF(cell);
        return *result != NULL;
    }

    PyObject *function = oracle_function(frame);
    if (!(code->co_flags & CO_OPTIMIZED) || function == NULL || !PyFunction_Check(function)) {
        return 0;
    }
    cell = PyTuple_GET_ITEM(PyFunction_GET_CLOSURE(function), index - first_free);
    *result = PyCell_Get(cell);
    return *result != NULL;
}

#if STANDIN == STANDIN_TWO_ARGUMENTS

PyAPI_FUNC(PyObject *) PyUnstable_InterpreterFrame_GetLocal(struct _PyInterpreterFrame *frame, Py_ssize_t index);

PyObject *
PyUnstable_InterpreterFrame_GetLocal(struct _PyInterpreterFrame *frame, Py_ssize_t index)
{
    PyObject *result;
    (void)official_get_local(frame, index, &result);
    return result;
}

#else

PyAPI_FUNC(int) PyUnstable_InterpreterFrame_GetLocal(struct _PyInterpreterFrame *frame, Py_ssize_t index,
                                                     PyObject **result);

int
PyUnstable_InterpreterFrame_GetLocal(struct _PyInterpreterFrame *frame, Py_ssize_t index, PyObject **result)
{
#  if STANDIN == STANDIN_THREE_ARGUMENTS || STANDIN == STANDIN_WITH_NAMES
    return official_get_local(frame, index, result);

#  elif STANDIN == STANDIN_ALWAYS_ZERO
    int found = official_get_local(frame, index, result);
    Py_CLEAR(*result);
    return found < 0 ? found : 0;

#  elif STANDIN == STANDIN_OFF_BY_ONE
    Py_ssize_t count = oracle_count(frame);
    int in_range = index >= 0 && index < count;
    return official_get_local(frame, in_range ? (index + 1) % count : index, result);

#  elif STANDIN == STANDIN_RESULT_NOT_WRITTEN
    PyObject *value;
    int found = official_get_local(frame, index, &value);
    (void)result;
    Py_XDECREF(value);
    return found;

#  elif STANDIN == STANDIN_WRONG_FREE
    int found = official_get_local(frame, index, result);
    if (found == 1 && (oracle_kind(frame, index) & ORACLE_KIND_FREE)) {
        Py_DECREF(*result);
        found = oracle_get_slot(frame, index, ORACLE_RAW_CELL, result);
    }
    return found;

#  elif STANDIN == STANDIN_ANY_INDEX
    int found = official_get_local(frame, index, result);
    if (found < 0) {
        PyErr_Clear();
        *result = Py_NewRef(Py_None);
        found = 1;
    }
    return found;

#  elif STANDIN == STANDIN_LEAKED_REFERENCE
    int found = official_get_local(frame, index, result);
    Py_XINCREF(*result);
    return found;

#  elif STANDIN == STANDIN_BORROWED_REFERENCE
    int found = official_get_local(frame, index, result);
    Py_XDECREF(*result);
    return found;

#  elif STANDIN == STANDIN_NO_EXCEPTION
    int found = official_get_local(frame, index, result);
    if (found < 0) {
        PyErr_Clear();
    }
    return found;

#  elif STANDIN == STANDIN_KEEPS_RESULT
    PyObject *value;
    int found = official_get_local(frame, index, &value);
    if (found != 0) {
        *result = value;
    }
    return found;

#  else
#    error "unknown STANDIN"
#  endif
}

#endif

#if (STANDIN == STANDIN_THREE_ARGUMENTS || STANDIN == STANDIN_WITH_NAMES) && PY_VERSION_HEX < 0x030C0000

/* Without a layout, localsplus tells shim frames apart with this. */
PyAPI_FUNC(PyObject *) PyUnstable_InterpreterFrame_GetCode(struct _PyInterpreterFrame *frame);

PyObject *
PyUnstable_InterpreterFrame_GetCode(struct _PyInterpreterFrame *frame)
{
    return Py_NewRef(oracle_executable(frame));
}

#endif

#if STANDIN == STANDIN_WITH_NAMES

PyAPI_FUNC(PyObject *) PyUnstable_Code_GetLocalPlusNames(PyCodeObject *code);

/* A tuple of its own, so that a test can tell where names came from. */
PyObject *
PyUnstable_Code_GetLocalPlusNames(PyCodeObject *code)
{
    PyObject *list = PySequence_List(code->co_localsplusnames);
    if (list == NULL) {
        return NULL;
    }
    PyObject *names = PyList_AsTuple(list);
    Py_DECREF(list);
    return names;
}

#endif

/* ---- the extension module ----------------------------------------------- */

/* The stand-in asked directly, past localsplus: get_local(address, index) is
 * (1, value) or (0, None). */
static PyObject *
standin_get_local(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *address;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "On", &address, &index)) {
        return NULL;
    }
    struct _PyInterpreterFrame *frame = PyLong_AsVoidPtr(address);
    if (frame == NULL) {
        return NULL;
    }
    PyObject *value;
    int found = official_get_local(frame, index, &value);
    if (found < 0) {
        return NULL;
    }
    return Py_BuildValue("iN", found, found ? value : Py_NewRef(Py_None));
}

static PyMethodDef standin_methods[] = {
    {"get_local", standin_get_local, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot standin_slots[] = {
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef standin_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "official_standin",
    .m_methods = standin_methods,
    .m_slots = standin_slots,
};

PyMODINIT_FUNC PyInit_official_standin(void);

PyMODINIT_FUNC
PyInit_official_standin(void)
{
    return PyModuleDef_Init(&standin_module);
}
