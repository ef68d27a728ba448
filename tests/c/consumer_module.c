/* The test extension _consumer: localsplus called from strict C11 and C++17. */
#define PY_SSIZE_T_CLEAN
#include "consumer.h"

#include <string.h>

static const consumer *
find_consumer(const char *language)
{
    const consumer *all[] = {&consumer_c, &consumer_cpp, &consumer_cpp_too};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i]->language, language) == 0) {
            return all[i];
        }
    }
    PyErr_SetString(PyExc_LookupError, language);
    return NULL;
}

static PyObject *
versions(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *language;
    if (!PyArg_ParseTuple(args, "s", &language)) {
        return NULL;
    }
    const consumer *found = find_consumer(language);
    return found == NULL ? NULL : Py_BuildValue("ii", found->header_version, found->library_version());
}

static PyObject *
first_local(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *language;
    PyObject *address;
    if (!PyArg_ParseTuple(args, "sO", &language, &address)) {
        return NULL;
    }
    const consumer *found = find_consumer(language);
    if (found == NULL) {
        return NULL;
    }
    struct _PyInterpreterFrame *frame = (struct _PyInterpreterFrame *)PyLong_AsVoidPtr(address);
    if (frame == NULL && PyErr_Occurred()) {
        return NULL;
    }
    return found->first_local(frame);
}

static PyMethodDef methods[] = {
    {"versions", versions, METH_VARARGS, NULL},
    {"first_local", first_local, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
execute(PyObject *module)
{
    return PyModule_AddIntConstant(module, "HEADER_ABI_VERSION", LOCALSPLUS_ABI_VERSION);
}

/* The converted function pointer is how module slots are; ISO C has no such conversion. */
__extension__ static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_consumer",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__consumer(void);

PyMODINIT_FUNC
PyInit__consumer(void)
{
    return PyModuleDef_Init(&definition);
}
