/* The test extension _compat: CPython's own names, as code written for 3.16 calls
 * them, through localsplus_compat.h where this CPython lacks them; and beside each
 * the native function. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "localsplus_compat.h"
#include "localsplus_compat.h"

#include <string.h>

typedef struct _PyInterpreterFrame frame_t;

static int
frame_from(PyObject *address, void *frame)
{
    *(frame_t **)frame = (frame_t *)PyLong_AsVoidPtr(address);
    return !PyErr_Occurred();
}

static PyObject *
unwrap(int status, PyObject *value)
{
    if (status < 0) {
        return value == NULL ? NULL : PyErr_Format(PyExc_AssertionError, "an error with a value");
    }
    if (status != (value != NULL)) {
        return PyErr_Format(PyExc_AssertionError, "status %d does not fit the value", status);
    }
    return status == 0 ? Py_NewRef(Py_NotImplemented) : value;
}

/* get_local(address, index): (official, native); NotImplemented for no value. */
static PyObject *
get_local(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "O&n", frame_from, &frame, &index)) {
        return NULL;
    }
    PyObject *value = (PyObject *)&frame; /* to be overwritten */
    int status = PyUnstable_InterpreterFrame_GetLocal(frame, index, &value);
    PyObject *official = unwrap(status, value);
    if (official == NULL) {
        return NULL;
    }
    status = localsplus_get_local(frame, index, &value);
    PyObject *native = unwrap(status, value);
    if (native == NULL) {
        Py_DECREF(official);
        return NULL;
    }
    return Py_BuildValue("NN", official, native);
}

/* code(address): (official, native). */
static PyObject *
code(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_from, &frame)) {
        return NULL;
    }
    PyObject *official = PyUnstable_InterpreterFrame_GetCode(frame);
    if (official == NULL) {
        return NULL;
    }
    PyObject *native = localsplus_code(frame);
    if (native == NULL) {
        Py_DECREF(official);
        return NULL;
    }
    return Py_BuildValue("NN", official, native);
}

/* position(address): (official lasti, native lasti, official line). */
static PyObject *
position(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_from, &frame)) {
        return NULL;
    }
    int lasti = PyUnstable_InterpreterFrame_GetLasti(frame);
    int native = localsplus_lasti(frame);
    int line = PyUnstable_InterpreterFrame_GetLine(frame);
    return PyErr_Occurred() ? NULL : Py_BuildValue("iii", lasti, native, line);
}

/* native_position(address): localsplus_lasti. */
static PyObject *
native_position(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_from, &frame)) {
        return NULL;
    }
    int lasti = localsplus_lasti(frame);
    return lasti == -1 ? NULL : PyLong_FromLong(lasti);
}

/* native_code(address): localsplus_code. */
static PyObject *
native_code(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_from, &frame)) {
        return NULL;
    }
    return localsplus_code(frame);
}

/* names(code): the names of its slots. */
static PyObject *
names(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    if (!PyArg_ParseTuple(args, "O!", &PyCode_Type, &object)) {
        return NULL;
    }
    return PyUnstable_Code_GetLocalPlusNames((PyCodeObject *)object);
}

static PyMethodDef methods[] = {
    {"get_local", get_local, METH_VARARGS, NULL},
    {"code", code, METH_VARARGS, NULL},
    {"position", position, METH_VARARGS, NULL},
    {"native_position", native_position, METH_VARARGS, NULL},
    {"native_code", native_code, METH_VARARGS, NULL},
    {"names", names, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_compat",
    .m_methods = methods,
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__compat(void);

PyMODINIT_FUNC
PyInit__compat(void)
{
    PyObject *module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
    if (module != NULL) {
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
    }
#endif
    return module;
}
