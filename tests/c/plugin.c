/* Embeds the interpreter that it is linked with and reads a local variable of a
 * Python function. Loaded by host.c. */
#include "localsplus.h"

#include <stdio.h>
#include <string.h>

/* first_local(): the value in the caller's first slot. */
static PyObject *
first_local(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    /* PyFrameObject: object header, f_back, f_frame. */
    struct _PyInterpreterFrame *frame;
    memcpy(&frame, (char *)PyEval_GetFrame() + sizeof(PyObject) + sizeof(void *), sizeof(frame));
    PyObject *value;
    switch (localsplus_get_local(frame, 0, &value)) {
        case 1:
            return value;
        case 0:
            Py_RETURN_NONE;
        default:
            return NULL;
    }
}

static PyMethodDef methods[] = {
    {"first_local", first_local, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "plugin",
    .m_size = -1,
    .m_methods = methods,
};

static PyObject *
init_plugin(void)
{
    return PyModule_Create(&definition);
}

__attribute__((visibility("default"))) int run_plugin(void);

int
run_plugin(void)
{
    if (PyImport_AppendInittab("plugin", init_plugin) < 0) {
        return 1;
    }
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.site_import = 0;
    PyStatus status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        fprintf(stderr, "%s\n", status.err_msg);
        return 1;
    }
    const char *provider = localsplus_provider();
    printf("%s\n", provider == NULL ? "refused" : provider);
    fflush(stdout);
    int failed = PyRun_SimpleString("import plugin\n"
                                    "def t(argument):\n"
                                    "    return plugin.first_local()\n"
                                    "print('found', repr(t('value')))\n");
    return Py_FinalizeEx() < 0 || failed;
}
