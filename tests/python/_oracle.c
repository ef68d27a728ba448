/* The oracle (shims/oracle.h) as an extension module. Frames are addresses. */
#define PY_SSIZE_T_CLEAN
#include "oracle.h"

typedef struct _PyInterpreterFrame frame_t;

static int
address_converter(PyObject *object, void *address)
{
    void *pointer = PyLong_AsVoidPtr(object);
    if (pointer == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "NULL frame");
        }
        return 0;
    }
    *(void **)address = pointer;
    return 1;
}

static int
parse_python_frame(PyObject *object, frame_t **frame)
{
    if (!address_converter(object, frame)) {
        return 0;
    }
    if (!oracle_is_python_frame(*frame)) {
        PyErr_SetString(PyExc_ValueError, "not a frame of Python code");
        return 0;
    }
    return 1;
}

/* ---- fields ------------------------------------------------------------- */

static PyObject *
object_or_none(PyObject *object)
{
    return Py_NewRef(object == NULL ? Py_None : object);
}

#define FIELD(NAME, ANSWER)                                   \
    static PyObject *                                         \
    field_##NAME(PyObject *Py_UNUSED(module), PyObject *arg)  \
    {                                                         \
        frame_t *frame;                                       \
        if (!address_converter(arg, &frame)) {                \
            return NULL;                                      \
        }                                                     \
        return ANSWER;                                        \
    }

FIELD(is_python_frame, PyBool_FromLong(oracle_is_python_frame(frame)))
FIELD(owner, PyLong_FromLong(oracle_owner(frame)))
FIELD(executable, object_or_none(oracle_executable(frame)))
FIELD(function, object_or_none(oracle_function(frame)))
FIELD(frame_obj, PyLong_FromVoidPtr(oracle_frame_obj(frame)))
FIELD(namespace, object_or_none(oracle_namespace(frame)))
FIELD(previous, PyLong_FromVoidPtr(oracle_previous(frame)))
FIELD(instr_index, PyLong_FromSsize_t(oracle_instr_index(frame)))
FIELD(stack_depth, PyLong_FromSsize_t(oracle_stack_depth(frame)))
FIELD(prologue_ran, PyBool_FromLong(oracle_prologue_ran(frame)))
FIELD(generator_finished, PyBool_FromLong(oracle_generator_finished(frame)))

/* The bits of every slot. */
static PyObject *
oracle_module_slot_bits(PyObject *Py_UNUSED(module), PyObject *arg)
{
    frame_t *frame;
    if (!parse_python_frame(arg, &frame)) {
        return NULL;
    }
    Py_ssize_t count = oracle_count(frame);
    PyObject *bits = PyTuple_New(count);
    for (Py_ssize_t i = 0; bits != NULL && i < count; i++) {
        PyTuple_SET_ITEM(bits, i, PyLong_FromVoidPtr((void *)oracle_slot_bits(frame, i)));
    }
    return bits;
}

/* All that a read must leave as it was: (owner, executable, function, frame_obj,
 * previous, instruction, stack depth, slot bits). Objects are answered as
 * addresses, since this module must not add references either. */
static PyObject *
oracle_module_state(PyObject *module, PyObject *arg)
{
    frame_t *frame;
    if (!parse_python_frame(arg, &frame)) {
        return NULL;
    }
    PyObject *bits = oracle_module_slot_bits(module, arg);
    if (bits == NULL) {
        return NULL;
    }
    return Py_BuildValue("iNNNNnnN", oracle_owner(frame), PyLong_FromVoidPtr(oracle_executable(frame)),
                         PyLong_FromVoidPtr(oracle_function(frame)), PyLong_FromVoidPtr(oracle_frame_obj(frame)),
                         PyLong_FromVoidPtr(oracle_previous(frame)), oracle_instr_index(frame),
                         oracle_stack_depth(frame), bits);
}

/* ---- the reader --------------------------------------------------------- */

/* snapshot(address, no_value): (count, names, kinds, values for each combination
 * of flags), no_value standing for a slot without one. */
static PyObject *
oracle_module_snapshot(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *address, *no_value;
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "OO", &address, &no_value) || !parse_python_frame(address, &frame)) {
        return NULL;
    }
    enum { FLAG_COMBINATIONS = 4 };
    Py_ssize_t count = oracle_count(frame);
    PyObject *kinds = PyTuple_New(count);
    PyObject *flagged = PyTuple_New(FLAG_COMBINATIONS);
    PyObject *result = NULL;
    if (kinds == NULL || flagged == NULL) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(kinds, i, PyLong_FromLong(oracle_kind(frame, i)));
    }
    for (unsigned flags = 0; flags < FLAG_COMBINATIONS; flags++) {
        PyObject *values = PyTuple_New(count);
        if (values == NULL) {
            goto done;
        }
        PyTuple_SET_ITEM(flagged, flags, values);
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *value;
            int found = oracle_get_slot(frame, i, flags, &value);
            PyTuple_SET_ITEM(values, i, found ? value : Py_NewRef(no_value));
        }
    }
    result = Py_BuildValue("nOOO", count, oracle_names(frame), kinds, flagged);
done:
    Py_XDECREF(kinds);
    Py_XDECREF(flagged);
    return result;
}

/* ---- what a frame is ---------------------------------------------------- */

/* questions(address): the answers of localsplus_function and so on, by name. */
static PyObject *
oracle_module_questions(PyObject *Py_UNUSED(module), PyObject *arg)
{
    frame_t *frame;
    if (!parse_python_frame(arg, &frame)) {
        return NULL;
    }
    PyObject *globals = oracle_globals(frame);
    Py_ssize_t count = oracle_count(frame);
    PyObject *parameters = PyList_New(0);
    for (Py_ssize_t i = 0; parameters != NULL && i < count; i++) {
        PyObject *parameter = PyLong_FromLong(oracle_parameter(frame, i));
        if (parameter == NULL || PyList_Append(parameters, parameter) < 0) {
            Py_CLEAR(parameters);
        }
        Py_XDECREF(parameter);
    }
    if (parameters == NULL) {
        return NULL;
    }
    int state = oracle_frame_state(frame);
    enum { EXECUTING = 1 };
    frame_t *caller = state == EXECUTING ? oracle_caller(frame) : NULL;
    return Py_BuildValue("{sNsNsNsNsNsNsisisisNsNsN}", "function",
                         object_or_none(globals == NULL ? NULL : oracle_function(frame)), "globals",
                         object_or_none(globals), "builtins", object_or_none(oracle_builtins(frame)), "namespace",
                         object_or_none(oracle_namespace(frame)), "closure", object_or_none(oracle_closure(frame)),
                         "frame_object", object_or_none(oracle_frame_object(frame)), "line", oracle_line(frame),
                         "lasti", oracle_lasti(frame), "state", state, "is_generator",
                         PyBool_FromLong(oracle_owner(frame) == 1), "parameters", parameters, "previous",
                         caller == NULL ? Py_NewRef(Py_None) : PyLong_FromVoidPtr(caller));
}

static PyObject *
oracle_module_running_frame(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    return PyLong_FromVoidPtr(oracle_running_frame());
}

/* ---- where frames are --------------------------------------------------- */

static PyObject *
oracle_module_frame_of(PyObject *Py_UNUSED(module), PyObject *frame_object)
{
    if (!PyFrame_Check(frame_object)) {
        PyErr_SetString(PyExc_TypeError, "not a frame object");
        return NULL;
    }
    return PyLong_FromVoidPtr(oracle_frame_of_frame_object(frame_object));
}

static PyObject *
oracle_module_frame_of_generator(PyObject *Py_UNUSED(module), PyObject *generator)
{
    frame_t *frame = oracle_frame_of_generator(generator);
    if (frame == NULL) {
        PyErr_SetString(PyExc_TypeError, "not a generator, coroutine or async generator");
        return NULL;
    }
    return PyLong_FromVoidPtr(frame);
}

/* ---- hand-made frames --------------------------------------------------- */

static PyObject *
oracle_module_null_bits(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    return PyLong_FromVoidPtr((void *)oracle_null_bits());
}

static PyObject *
oracle_module_borrowed_bits(PyObject *Py_UNUSED(module), PyObject *object)
{
    return PyLong_FromVoidPtr((void *)oracle_borrowed_bits(object));
}

/* new_frame(executable, owner): poison but for these two; executable 0 is NULL. */
static PyObject *
oracle_module_new_frame(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *executable;
    int owner;
    if (!PyArg_ParseTuple(args, "Oi", &executable, &owner)) {
        return NULL;
    }
    Py_ssize_t nslots = PyCode_Check(executable) ? ((PyCodeObject *)executable)->co_nlocalsplus : 0;
    int is_null = PyLong_CheckExact(executable) && PyLong_AsLong(executable) == 0;
    return PyLong_FromVoidPtr(oracle_new_frame(is_null ? NULL : executable, nslots, owner));
}

/* fill_frame(address, function, slot bits, stack depth, started, finished) */
static PyObject *
oracle_module_fill_frame(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *address, *function, *bits;
    Py_ssize_t depth;
    int started, finished;
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "OOO!npp", &address, &function, &PyTuple_Type, &bits, &depth, &started, &finished)
        || !parse_python_frame(address, &frame)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(bits) != oracle_count(frame)) {
        PyErr_SetString(PyExc_ValueError, "one value a slot");
        return NULL;
    }
    oracle_set_function(frame, function == Py_None ? NULL : function);
    oracle_set_stack_depth(frame, depth);
    oracle_set_started(frame, started);
    oracle_set_generator_finished(frame, finished);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bits); i++) {
        oracle_set_slot_bits(frame, i, (uintptr_t)PyLong_AsVoidPtr(PyTuple_GET_ITEM(bits, i)));
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
oracle_module_free_frame(PyObject *Py_UNUSED(module), PyObject *arg)
{
    frame_t *frame;
    if (!address_converter(arg, &frame)) {
        return NULL;
    }
    oracle_free_frame(frame);
    Py_RETURN_NONE;
}

static PyObject *
oracle_module_suppress_immortalization(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    oracle_suppress_immortalization();
    Py_RETURN_NONE;
}

/* ---- the module --------------------------------------------------------- */

static PyMethodDef oracle_methods[] = {
    {"is_python_frame", field_is_python_frame, METH_O, NULL},
    {"owner", field_owner, METH_O, NULL},
    {"executable", field_executable, METH_O, NULL},
    {"function", field_function, METH_O, NULL},
    {"frame_obj", field_frame_obj, METH_O, NULL},
    {"namespace", field_namespace, METH_O, NULL},
    {"previous", field_previous, METH_O, NULL},
    {"instr_index", field_instr_index, METH_O, NULL},
    {"stack_depth", field_stack_depth, METH_O, NULL},
    {"prologue_ran", field_prologue_ran, METH_O, NULL},
    {"generator_finished", field_generator_finished, METH_O, NULL},
    {"slot_bits", oracle_module_slot_bits, METH_O, NULL},
    {"state", oracle_module_state, METH_O, NULL},
    {"snapshot", oracle_module_snapshot, METH_VARARGS, NULL},
    {"questions", oracle_module_questions, METH_O, NULL},
    {"running_frame", oracle_module_running_frame, METH_NOARGS, NULL},
    {"frame_of", oracle_module_frame_of, METH_O, NULL},
    {"frame_of_generator", oracle_module_frame_of_generator, METH_O, NULL},
    {"null_bits", oracle_module_null_bits, METH_NOARGS, NULL},
    {"borrowed_bits", oracle_module_borrowed_bits, METH_O, NULL},
    {"new_frame", oracle_module_new_frame, METH_VARARGS, NULL},
    {"fill_frame", oracle_module_fill_frame, METH_VARARGS, NULL},
    {"free_frame", oracle_module_free_frame, METH_O, NULL},
    {"suppress_immortalization", oracle_module_suppress_immortalization, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
oracle_exec(PyObject *module)
{
    PyObject *getter = PyCapsule_New((void *)oracle_executable, "_oracle.executable_getter", NULL);
    if (getter == NULL) {
        return -1;
    }
    int status = PyModule_AddObjectRef(module, "executable_getter", getter);
    Py_DECREF(getter);
    return status;
}

static PyModuleDef_Slot oracle_slots[] = {
    {Py_mod_exec, oracle_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef oracle_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_oracle",
    .m_methods = oracle_methods,
    .m_slots = oracle_slots,
};

PyMODINIT_FUNC
PyInit__oracle(void)
{
    return PyModuleDef_Init(&oracle_module);
}
