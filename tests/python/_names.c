/* The arguments of a call through the public C API, checked on the way, and what
 * it does when memory runs out. A frame is given as its address.
 */
#define PY_SSIZE_T_CLEAN
#include "localsplus.h"

#include <stddef.h>
#include <string.h>

typedef struct _PyInterpreterFrame frame_t;

/* Part of the binary interface: three words, in this order. */
_Static_assert(offsetof(localsplus_arguments, args) == 0, "args");
_Static_assert(offsetof(localsplus_arguments, nargsf) == sizeof(void *), "nargsf");
_Static_assert(offsetof(localsplus_arguments, kwnames) == 2 * sizeof(void *), "kwnames");
_Static_assert(sizeof(localsplus_arguments) == 3 * sizeof(void *), "size");

static int
address_converter(PyObject *object, void *address)
{
    void *pointer = PyLong_AsVoidPtr(object);
    if (pointer == NULL && PyErr_Occurred()) {
        return 0;
    }
    *(void **)address = pointer;
    return 1;
}

static int
is_cleared(const localsplus_arguments *arguments)
{
    return arguments->args == NULL && arguments->nargsf == 0 && arguments->kwnames == NULL;
}

/* ---- one question, checked ----------------------------------------------- */

/* Fills `arguments`, and checks that answer, struct and exception agree. */
static int
get_arguments(frame_t *frame, localsplus_arguments *arguments)
{
    memset(arguments, 0xdb, sizeof(*arguments));
    int status = localsplus_arguments_get(frame, arguments);
    int failed = PyErr_Occurred() != NULL;
    if (status == -1 && failed && is_cleared(arguments)) {
        return -1;
    }
    if (status == 0 && !failed && arguments->args != NULL && arguments->args[-1] == NULL
        && (arguments->nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) != 0
        && (arguments->kwnames == NULL
            || (PyTuple_CheckExact(arguments->kwnames) && PyTuple_GET_SIZE(arguments->kwnames) > 0))) {
        return 0;
    }
    PyErr_Format(PyExc_AssertionError, "answered %d with %s exception, args %p, nargsf %zu, kwnames %p", status,
                 failed ? "an" : "no", (void *)arguments->args, arguments->nargsf, (void *)arguments->kwnames);
    return -1;
}

static PyObject *
clear_arguments(localsplus_arguments *arguments, PyObject *result)
{
    localsplus_arguments_clear(arguments);
    int cleared = is_cleared(arguments);
    localsplus_arguments_clear(arguments);
    if (!cleared || !is_cleared(arguments)) {
        PyErr_SetString(PyExc_AssertionError, "not cleared");
        Py_CLEAR(result);
    }
    return result;
}

/* arguments(address): (positional, names of keyword arguments, their values) */
static PyObject *
names_arguments(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    localsplus_arguments arguments;
    if (!PyArg_ParseTuple(args, "O&", address_converter, &frame) || get_arguments(frame, &arguments) < 0) {
        return NULL;
    }
    Py_ssize_t positional = PyVectorcall_NARGS(arguments.nargsf);
    Py_ssize_t keywords = arguments.kwnames == NULL ? 0 : PyTuple_GET_SIZE(arguments.kwnames);
    PyObject *values = PyTuple_New(positional), *keyword_values = PyTuple_New(keywords), *result = NULL;
    if (values != NULL && keyword_values != NULL) {
        for (Py_ssize_t i = 0; i < positional + keywords; i++) {
            PyObject *value = Py_NewRef(arguments.args[i]);
            if (i < positional) {
                PyTuple_SET_ITEM(values, i, value);
            }
            else {
                PyTuple_SET_ITEM(keyword_values, i - positional, value);
            }
        }
        result = arguments.kwnames == NULL ? Py_BuildValue("O()O", values, keyword_values)
                                           : Py_BuildValue("OOO", values, arguments.kwnames, keyword_values);
    }
    Py_XDECREF(values);
    Py_XDECREF(keyword_values);
    return clear_arguments(&arguments, result);
}

/* call(address, callable): calls it with the frame's arguments. */
static PyObject *
names_call(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    PyObject *callable;
    localsplus_arguments arguments;
    if (!PyArg_ParseTuple(args, "O&O", address_converter, &frame, &callable) || get_arguments(frame, &arguments) < 0) {
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(callable, arguments.args, arguments.nargsf, arguments.kwnames);
    return clear_arguments(&arguments, result);
}

/* arguments_repeatedly(address, times) */
static PyObject *
names_arguments_repeatedly(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    Py_ssize_t times;
    if (!PyArg_ParseTuple(args, "O&n", address_converter, &frame, &times)) {
        return NULL;
    }
    while (times-- > 0) {
        localsplus_arguments arguments;
        if (localsplus_arguments_get(frame, &arguments) < 0) {
            return NULL;
        }
        localsplus_arguments_clear(&arguments);
    }
    Py_RETURN_NONE;
}

/* arguments_into_null(address): with a NULL where the arguments should go. */
static PyObject *
names_arguments_into_null(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", address_converter, &frame)) {
        return NULL;
    }
    localsplus_arguments_clear(NULL);
    int status = localsplus_arguments_get(frame, NULL);
    return status < 0 ? NULL : PyLong_FromLong(status);
}

/* arguments_with_pending(address): whether a pending exception is still the same afterwards. */
static PyObject *
names_arguments_with_pending(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", address_converter, &frame)) {
        return NULL;
    }
    localsplus_arguments arguments;
    PyErr_SetString(PyExc_KeyError, "pending");
    int status = localsplus_arguments_get(frame, &arguments);
    int kept = PyErr_ExceptionMatches(PyExc_KeyError);
    PyErr_Clear();
    localsplus_arguments_clear(&arguments);
    return PyBool_FromLong(status == 0 && kept);
}

/* ---- out of memory ------------------------------------------------------- */

static const PyMemAllocatorDomain domains[] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
#define NDOMAINS (sizeof(domains) / sizeof(domains[0]))
static PyMemAllocatorEx wrapped[NDOMAINS];
static Py_ssize_t until_failure, live;

static int
fails(void)
{
    return until_failure-- == 0;
}

static void *
failing_malloc(void *ctx, size_t size)
{
    PyMemAllocatorEx *allocator = ctx;
    if (fails()) {
        return NULL;
    }
    live++;
    return allocator->malloc(allocator->ctx, size);
}

static void *
failing_calloc(void *ctx, size_t nelem, size_t elsize)
{
    PyMemAllocatorEx *allocator = ctx;
    if (fails()) {
        return NULL;
    }
    live++;
    return allocator->calloc(allocator->ctx, nelem, elsize);
}

static void *
failing_realloc(void *ctx, void *ptr, size_t size)
{
    PyMemAllocatorEx *allocator = ctx;
    if (fails()) {
        return NULL;
    }
    live += ptr == NULL;
    return allocator->realloc(allocator->ctx, ptr, size);
}

static void
counting_free(void *ctx, void *ptr)
{
    PyMemAllocatorEx *allocator = ctx;
    live -= ptr != NULL;
    allocator->free(allocator->ctx, ptr);
}

/* Asks `ask` with the allocation after `good` ones failing: (whether that many were needed, its answer or NULL).
 * For a process with one thread. */
static int
ask_without_memory(Py_ssize_t good, int (*ask)(frame_t *, PyObject *), frame_t *frame, PyObject *name)
{
    for (size_t i = 0; i < NDOMAINS; i++) {
        PyMem_GetAllocator(domains[i], &wrapped[i]);
        PyMemAllocatorEx failing = {&wrapped[i], failing_malloc, failing_calloc, failing_realloc, counting_free};
        PyMem_SetAllocator(domains[i], &failing);
    }
    until_failure = good;
    live = 0;
    int status = ask(frame, name);
    for (size_t i = 0; i < NDOMAINS; i++) {
        PyMem_SetAllocator(domains[i], &wrapped[i]);
    }
    return status;
}

static int
ask_arguments(frame_t *frame, PyObject *Py_UNUSED(name))
{
    localsplus_arguments arguments;
    if (localsplus_arguments_get(frame, &arguments) < 0) {
        return is_cleared(&arguments) ? -1 : -2;
    }
    localsplus_arguments_clear(&arguments);
    return 0;
}

/* without_memory(question, address, good, name=None): asks with the allocation after `good` ones failing; whether
 * that one was never asked for, or MemoryError. */
static PyObject *
names_without_memory(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *question;
    frame_t *frame;
    Py_ssize_t good;
    PyObject *name = NULL;
    if (!PyArg_ParseTuple(args, "sO&n|O", &question, address_converter, &frame, &good, &name)) {
        return NULL;
    }
    int (*ask)(frame_t *, PyObject *) = strcmp(question, "arguments") == 0 ? ask_arguments : NULL;
    if (ask == NULL) {
        PyErr_Format(PyExc_LookupError, "no question %s", question);
        return NULL;
    }
    int status = ask_without_memory(good, ask, frame, name);
    if (status == -2) {
        PyErr_SetString(PyExc_AssertionError, "failed, and left something behind");
    }
    return status < 0 ? NULL : PyBool_FromLong(until_failure >= 0);
}

static PyMethodDef names_methods[] = {
    {"arguments", names_arguments, METH_VARARGS, NULL},
    {"call", names_call, METH_VARARGS, NULL},
    {"arguments_repeatedly", names_arguments_repeatedly, METH_VARARGS, NULL},
    {"arguments_into_null", names_arguments_into_null, METH_VARARGS, NULL},
    {"arguments_with_pending", names_arguments_with_pending, METH_VARARGS, NULL},
    {"without_memory", names_without_memory, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot names_slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef names_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_names",
    .m_methods = names_methods,
    .m_slots = names_slots,
};

PyMODINIT_FUNC PyInit__names(void);

PyMODINIT_FUNC
PyInit__names(void)
{
    return PyModuleDef_Init(&names_module);
}
