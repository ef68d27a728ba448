/* The questions of localsplus.h about a frame besides its slots, and the ways to
 * a frame, for the case suite: one function for one function of the header,
 * "none" being None. Frames are addresses. No internal CPython header is needed.
 */
#define PY_SSIZE_T_CLEAN
#include "localsplus.h"

#include <string.h>

typedef struct _PyInterpreterFrame frame_t;

/* What a result variable holds before each call. */
static char sentinel_object;
#define SENTINEL ((void *)&sentinel_object)

static int
address_converter(PyObject *object, void *address)
{
    void *pointer = PyLong_AsVoidPtr(object);
    *(void **)address = pointer;
    return pointer != NULL || !PyErr_Occurred();
}

/* Checks that answer, result and error indicator agree. */
static int
agrees(int found, void *result)
{
    int failed = PyErr_Occurred() != NULL;
    if ((found == 1 && result != NULL && result != SENTINEL && !failed) || (found == 0 && result == NULL && !failed)
        || (found == -1 && result == NULL && failed)) {
        return 1;
    }
    PyErr_Format(PyExc_AssertionError, "answered %d with *result %s and %s exception", found,
                 result == NULL ? "NULL" : (result == SENTINEL ? "not written" : "something"), failed ? "an" : "no");
    return 0;
}

static PyObject *
object_or_none(int found, PyObject *result)
{
    if (!agrees(found, result) || found < 0) {
        return NULL;
    }
    return found ? result : Py_NewRef(Py_None);
}

static PyObject *
frame_or_none(int found, frame_t *result)
{
    if (!agrees(found, result) || found < 0) {
        return NULL;
    }
    return found ? PyLong_FromVoidPtr(result) : Py_NewRef(Py_None);
}

static PyObject *
number(Py_ssize_t answer)
{
    if ((answer == -1) != (PyErr_Occurred() != NULL)) {
        PyErr_Format(PyExc_AssertionError, "answered %zd with%s exception", answer, PyErr_Occurred() ? " an" : "out");
    }
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(answer);
}

#define QUESTION(NAME, ANSWER)                                   \
    static PyObject *                                            \
    questions_##NAME(PyObject *Py_UNUSED(module), PyObject *arg) \
    {                                                            \
        frame_t *frame;                                          \
        if (!address_converter(arg, &frame)) {                   \
            return NULL;                                         \
        }                                                        \
        return ANSWER;                                           \
    }

#define OPTIONAL(NAME)                                           \
    static PyObject *                                            \
    optional_##NAME(frame_t *frame)                              \
    {                                                            \
        PyObject *result = SENTINEL;                             \
        int found = localsplus_##NAME(frame, &result);           \
        return object_or_none(found, result);                    \
    }                                                            \
    QUESTION(NAME, optional_##NAME(frame))

OPTIONAL(function)
OPTIONAL(namespace)
OPTIONAL(closure)
OPTIONAL(frame_object)
QUESTION(globals, localsplus_globals(frame))
QUESTION(builtins, localsplus_builtins(frame))
QUESTION(code, localsplus_code(frame))
QUESTION(state, number(localsplus_state(frame)))
QUESTION(is_generator, number(localsplus_is_generator(frame)))
QUESTION(lasti, number(localsplus_lasti(frame)))
QUESTION(parameter_count, number(localsplus_parameter_count(frame)))

/* -1 without an exception is an answer here: no line. */
static PyObject *
line_or_none(frame_t *frame)
{
    int line = localsplus_line(frame);
    if (line == -1) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    return number(line);
}
QUESTION(line, line_or_none(frame))

static PyObject *
previous_or_none(frame_t *frame)
{
    frame_t *result = SENTINEL;
    int found = localsplus_previous(frame, &result);
    return frame_or_none(found, result);
}
QUESTION(previous, previous_or_none(frame))

static PyObject *
questions_parameter(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "O&n", address_converter, &frame, &index)) {
        return NULL;
    }
    return number(localsplus_parameter(frame, index));
}

static PyObject *
questions_current_frame(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    frame_t *result = SENTINEL;
    int found = localsplus_current_frame(&result);
    return frame_or_none(found, result);
}

/* None stands for NULL. */
static PyObject *
questions_frame_of_object(PyObject *Py_UNUSED(module), PyObject *object)
{
    frame_t *frame = localsplus_frame_of_object(object == Py_None ? NULL : object);
    return frame == NULL ? NULL : PyLong_FromVoidPtr(frame);
}

static PyObject *
questions_frame_of_generator(PyObject *Py_UNUSED(module), PyObject *object)
{
    frame_t *frame = localsplus_frame_of_generator(object == Py_None ? NULL : object);
    return frame == NULL ? NULL : PyLong_FromVoidPtr(frame);
}

/* The functions that write a result, called with NULL for it. */
static PyObject *
questions_without_result(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    const char *name;
    if (!PyArg_ParseTuple(args, "O&s", address_converter, &frame, &name)) {
        return NULL;
    }
    int found = strcmp(name, "function") == 0        ? localsplus_function(frame, NULL)
                : strcmp(name, "namespace") == 0     ? localsplus_namespace(frame, NULL)
                : strcmp(name, "closure") == 0       ? localsplus_closure(frame, NULL)
                : strcmp(name, "frame_object") == 0  ? localsplus_frame_object(frame, NULL)
                : strcmp(name, "previous") == 0      ? localsplus_previous(frame, NULL)
                : strcmp(name, "current_frame") == 0 ? localsplus_current_frame(NULL)
                                                     : 7;
    return found == -1 && PyErr_Occurred() ? NULL : PyLong_FromLong(found);
}

static PyMethodDef questions_methods[] = {
    {"function", questions_function, METH_O, NULL},
    {"globals", questions_globals, METH_O, NULL},
    {"builtins", questions_builtins, METH_O, NULL},
    {"namespace", questions_namespace, METH_O, NULL},
    {"closure", questions_closure, METH_O, NULL},
    {"frame_object", questions_frame_object, METH_O, NULL},
    {"code", questions_code, METH_O, NULL},
    {"line", questions_line, METH_O, NULL},
    {"lasti", questions_lasti, METH_O, NULL},
    {"state", questions_state, METH_O, NULL},
    {"is_generator", questions_is_generator, METH_O, NULL},
    {"parameter_count", questions_parameter_count, METH_O, NULL},
    {"parameter", questions_parameter, METH_VARARGS, NULL},
    {"previous", questions_previous, METH_O, NULL},
    {"current_frame", questions_current_frame, METH_NOARGS, NULL},
    {"frame_of_object", questions_frame_of_object, METH_O, NULL},
    {"frame_of_generator", questions_frame_of_generator, METH_O, NULL},
    {"without_result", questions_without_result, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
questions_exec(PyObject *module)
{
#define CONSTANT(NAME) PyModule_AddIntConstant(module, #NAME, LOCALSPLUS_##NAME) < 0
    return CONSTANT(UNSTARTED) || CONSTANT(EXECUTING) || CONSTANT(SUSPENDED) || CONSTANT(FINISHED)
                   || CONSTANT(CLEARED) || CONSTANT(PARAMETER_NONE) || CONSTANT(PARAMETER_POSITIONAL_ONLY)
                   || CONSTANT(PARAMETER_POSITIONAL) || CONSTANT(PARAMETER_KEYWORD_ONLY)
                   || CONSTANT(PARAMETER_VAR_POSITIONAL) || CONSTANT(PARAMETER_VAR_KEYWORD)
               ? -1
               : 0;
}

static PyModuleDef_Slot questions_slots[] = {
    {Py_mod_exec, questions_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef questions_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_questions",
    .m_methods = questions_methods,
    .m_slots = questions_slots,
};

PyMODINIT_FUNC
PyInit__questions(void)
{
    return PyModuleDef_Init(&questions_module);
}
