// The blocks of docs/PORTING.md, to be called from Python with the address of a
// frame that is alive. The test puts the blocks beside this file's copy.
#define PY_SSIZE_T_CLEAN
#include "is_int.hpp"
#include "where.h"

static struct _PyInterpreterFrame *frame_at(PyObject *address)
{
    return static_cast<struct _PyInterpreterFrame *>(PyLong_AsVoidPtr(address));
}

static PyObject *call_is_int(PyObject *, PyObject *args)
{
    PyObject *address;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "O!n", &PyLong_Type, &address, &index)) {
        return nullptr;
    }
    try {
        return PyBool_FromLong(is_int(frame_at(address), static_cast<std::size_t>(index)));
    } catch (const localsplus::error &) {
        return nullptr;
    }
}

static PyObject *call_where(PyObject *, PyObject *address) { return where(frame_at(address)); }

static PyMethodDef methods[] = {
    {"is_int", call_is_int, METH_VARARGS, nullptr},
    {"where", call_where, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "porting", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr,
};

PyMODINIT_FUNC PyInit_porting()
{
    PyObject *module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
    if (module != nullptr) {
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
    }
#endif
    return module;
}
