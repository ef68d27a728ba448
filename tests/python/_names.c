/* Slots by name and the arguments of a call through the public C API, checked on
 * the way, and what they do when memory runs out. A frame is given as its address.
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

/* ---- slots by name ------------------------------------------------------- */

static char sentinel;

static PyObject *
names_index(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "O&O", address_converter, &frame, &name)) {
        return NULL;
    }
    Py_ssize_t index = localsplus_index(frame, name);
    return index < 0 ? NULL : PyLong_FromSsize_t(index);
}

static PyObject *
names_indexes(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "O&O", address_converter, &frame, &name)) {
        return NULL;
    }
    return localsplus_indexes(frame, name);
}

/* get_by_name(address, name, no_value): no_value stands for "no value". */
static PyObject *
names_get_by_name(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    PyObject *name, *no_value, *result = (PyObject *)&sentinel;
    if (!PyArg_ParseTuple(args, "O&OO", address_converter, &frame, &name, &no_value)) {
        return NULL;
    }
    int found = localsplus_get_by_name(frame, name, &result);
    int failed = PyErr_Occurred() != NULL;
    if (found == 1 && result != NULL && result != (PyObject *)&sentinel && !failed) {
        return result;
    }
    if (found == 0 && result == NULL && !failed) {
        return Py_NewRef(no_value);
    }
    if (found != -1 || result != NULL || !failed) {
        PyErr_Format(PyExc_AssertionError, "answered %d, result %p, %s exception", found, (void *)result,
                     failed ? "an" : "no");
    }
    return NULL;
}

static PyObject *
names_dict(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", address_converter, &frame)) {
        return NULL;
    }
    return localsplus_dict(frame);
}

static PyObject *
names_name_map(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", address_converter, &frame)) {
        return NULL;
    }
    return localsplus_name_map(frame);
}

/* null(function, address): calls it with NULL for the name, or for the result. */
static PyObject *
names_null(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *function;
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "sO&", &function, address_converter, &frame)) {
        return NULL;
    }
    PyObject *result = (PyObject *)&sentinel;
    long answer = -2;
    if (strcmp(function, "index") == 0) {
        answer = (long)localsplus_index(frame, NULL);
    }
    else if (strcmp(function, "indexes") == 0) {
        answer = localsplus_indexes(frame, NULL) == NULL ? -1 : 0;
    }
    else if (strcmp(function, "get_by_name") == 0) {
        answer = localsplus_get_by_name(frame, NULL, &result);
        if (result != NULL) {
            answer = -2;
        }
    }
    else if (strcmp(function, "result") == 0) {
        answer = localsplus_get_by_name(frame, Py_None, NULL);
    }
    if (answer == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyLong_FromLong(answer);
}

/* 0, or -1 with an exception. */
static int
ask_names(frame_t *frame, PyObject *name)
{
    PyObject *value, *indexes, *dict;
    if (localsplus_index(frame, name) < 0 || localsplus_get_by_name(frame, name, &value) < 0) {
        return -1;
    }
    Py_XDECREF(value);
    indexes = localsplus_indexes(frame, name);
    if (indexes == NULL) {
        return -1;
    }
    Py_DECREF(indexes);
    dict = localsplus_dict(frame);
    if (dict == NULL) {
        return -1;
    }
    Py_DECREF(dict);
    return 0;
}

/* names_repeatedly(address, name, times) */
static PyObject *
names_names_repeatedly(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    PyObject *name;
    Py_ssize_t times;
    if (!PyArg_ParseTuple(args, "O&On", address_converter, &frame, &name, &times)) {
        return NULL;
    }
    while (times-- > 0) {
        if (ask_names(frame, name) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* names_with_pending(address, name): whether a pending exception is still the same afterwards. */
static PyObject *
names_names_with_pending(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "O&O", address_converter, &frame, &name)) {
        return NULL;
    }
    PyErr_SetString(PyExc_ZeroDivisionError, "pending");
    int status = ask_names(frame, name);
    int kept = PyErr_ExceptionMatches(PyExc_ZeroDivisionError);
    PyErr_Clear();
    return PyBool_FromLong(status == 0 && kept);
}

/* ---- arguments ------------------------------------------------------------ */

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

static int
ask_name_map(frame_t *frame, PyObject *Py_UNUSED(name))
{
    PyObject *name_map = localsplus_name_map(frame);
    Py_XDECREF(name_map);
    return name_map == NULL ? -1 : 0;
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
    int (*ask)(frame_t *, PyObject *) = strcmp(question, "arguments") == 0  ? ask_arguments
                                        : strcmp(question, "names") == 0    ? ask_names
                                        : strcmp(question, "name_map") == 0 ? ask_name_map
                                                                            : NULL;
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
    {"index", names_index, METH_VARARGS, NULL},
    {"indexes", names_indexes, METH_VARARGS, NULL},
    {"get_by_name", names_get_by_name, METH_VARARGS, NULL},
    {"dict", names_dict, METH_VARARGS, NULL},
    {"name_map", names_name_map, METH_VARARGS, NULL},
    {"null", names_null, METH_VARARGS, NULL},
    {"names_repeatedly", names_names_repeatedly, METH_VARARGS, NULL},
    {"names_with_pending", names_names_with_pending, METH_VARARGS, NULL},
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
