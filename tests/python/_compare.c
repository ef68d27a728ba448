/* localsplus beside the oracle (shims/oracle.h) in C: fast enough for every
 * frame of a long run, and without a line of Python between the two readings.
 *
 * What differs is written down and does not stop the program, since a hook or a
 * trace function cannot raise without changing what it watches:
 * take_mismatches() tells.
 */
#define PY_SSIZE_T_CLEAN
#include "localsplus.h"

#include "oracle.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct _PyInterpreterFrame frame_t;

enum {
    FLAG_COMBINATIONS = 4,
    MISMATCHES_KEPT = 20,
    TEXT_SIZE = 600,
    /* Callers that are read at every entry, when asked for. */
    CALLERS = 8,
#ifdef Py_GIL_DISABLED
    /* Another thread may set a shared cell between the two readings. */
    TRIES = 1000,
#else
    TRIES = 1,
#endif
};

static struct {
    atomic_long frames;
    atomic_long values;
    atomic_long f_locals;
    atomic_long mismatches;
    atomic_long entries;
} counted;

static char texts[MISMATCHES_KEPT][TEXT_SIZE];

static void
mismatch(frame_t *frame, const char *where, const char *format, ...)
{
    long number = atomic_fetch_add(&counted.mismatches, 1);
    if (number >= MISMATCHES_KEPT) {
        return;
    }
    char *text = texts[number];
    PyCodeObject *code = (PyCodeObject *)oracle_executable(frame);
    /* The text, where it is kept already: nothing is allocated here. */
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(code->co_qualname, &length);
    int used = snprintf(text, TEXT_SIZE, "%s: %s line %d, instruction %zd, stack %zd: ", where,
                        name == NULL ? "?" : name, code->co_firstlineno, oracle_instr_index(frame),
                        oracle_stack_depth(frame));
    if (used >= 0 && used < TEXT_SIZE) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text + used, (size_t)(TEXT_SIZE - used), format, arguments);
        va_end(arguments);
    }
}

static const char *
type_name(PyObject *object)
{
    return object == NULL ? "no value" : Py_TYPE(object)->tp_name;
}

static const char *
slot_name(frame_t *frame, Py_ssize_t index)
{
    const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(oracle_names(frame), index));
    return name == NULL ? "?" : name;
}

/* Compares what localsplus answered (`ours`, a reference that is taken over) with
 * what the oracle reads now. */
static void
compare_value(frame_t *frame, const char *where, const char *function, Py_ssize_t index, unsigned flags,
              PyObject *ours)
{
    PyObject *theirs;
    for (int tries = TRIES;; tries--) {
        oracle_get_slot(frame, index, flags, &theirs);
        if (ours == theirs || tries <= 1 || !(oracle_kind(frame, index) & (ORACLE_KIND_CELL | ORACLE_KIND_FREE))) {
            break;
        }
        Py_XDECREF(theirs);
        Py_XDECREF(ours);
        if (localsplus_get_slot(frame, index, flags, &ours) < 0) {
            PyErr_Clear();
        }
    }
    if (ours != theirs) {
        mismatch(frame, where, "%s of slot %zd, %s (kind 0x%x, flags %u): %s at %p; the oracle: %s at %p", function,
                 index, slot_name(frame, index), oracle_kind(frame, index), flags, type_name(ours), (void *)ours,
                 type_name(theirs), (void *)theirs);
    }
    Py_XDECREF(ours);
    Py_XDECREF(theirs);
}

static void
failed(frame_t *frame, const char *where, const char *function)
{
    PyObject *error = PyErr_Occurred();
    mismatch(frame, where, "%s failed with %s", function,
             error == NULL ? "no exception" : ((PyTypeObject *)error)->tp_name);
    PyErr_Clear();
}

/* What a read must not change. */
typedef struct {
    int owner;
    PyObject *executable, *function, *frame_obj;
    frame_t *previous;
    Py_ssize_t instr_index, stack_depth;
    uintptr_t bits; /* of all slots, mixed */
} frame_state;

static void
get_state(frame_t *frame, frame_state *state)
{
    /* Zeroed with its padding, since two of them are compared as memory. */
    memset(state, 0, sizeof(*state));
    state->owner = oracle_owner(frame);
    state->executable = oracle_executable(frame);
    state->function = oracle_function(frame);
    state->frame_obj = oracle_frame_obj(frame);
    state->previous = oracle_previous(frame);
    state->instr_index = oracle_instr_index(frame);
    state->stack_depth = oracle_stack_depth(frame);
    for (Py_ssize_t i = 0; i < oracle_count(frame); i++) {
        state->bits = state->bits * 31 + oracle_slot_bits(frame, i);
    }
}

/* Every question about every slot, each beside the oracle's answer. */
static void
compare_thoroughly(frame_t *frame, const char *where)
{
    frame_state before, after;
    get_state(frame, &before);
    Py_ssize_t count = oracle_count(frame);
    PyObject *names = localsplus_names(frame);
    if (names == NULL) {
        failed(frame, where, "names");
    }
    else if (names != oracle_names(frame)) {
        mismatch(frame, where, "names is another object than the oracle's");
    }
    Py_XDECREF(names);
    for (Py_ssize_t i = 0; i < count; i++) {
        int kind = localsplus_kind(frame, i);
        if (kind < 0) {
            failed(frame, where, "kind");
        }
        else if (kind != oracle_kind(frame, i)) {
            mismatch(frame, where, "kind of slot %zd, %s: 0x%x; the oracle: 0x%x", i, slot_name(frame, i), kind,
                     oracle_kind(frame, i));
        }
        PyObject *value;
        if (localsplus_get_local(frame, i, &value) < 0) {
            failed(frame, where, "get_local");
        }
        else {
            compare_value(frame, where, "get_local", i, 0, value);
        }
        for (unsigned flags = 0; flags < FLAG_COMBINATIONS; flags++) {
            if (localsplus_get_slot(frame, i, flags, &value) < 0) {
                failed(frame, where, "get_slot");
            }
            else {
                compare_value(frame, where, "get_slot", i, flags, value);
            }
        }
    }
    get_state(frame, &after);
    if (memcmp(&before, &after, sizeof(before)) != 0) {
        mismatch(frame, where, "reading changed the frame");
    }
}

/* Compares one reading of all slots with the oracle, if it is a frame of
 * Python code. An exception that is set stays set. */
static void
compare(frame_t *frame, const char *where, int thoroughly)
{
    if (!oracle_is_python_frame(frame)) {
        return;
    }
    PyObject *pending = PyErr_Occurred();
    atomic_fetch_add(&counted.frames, 1);
    Py_ssize_t count = oracle_count(frame);
    enum { USUAL = 64 };
    PyObject *usual[USUAL];
    PyObject **values = count <= USUAL ? usual : malloc((size_t)count * sizeof(PyObject *));
    if (values == NULL) {
        mismatch(frame, where, "no memory for %zd values", count);
        return;
    }
    Py_ssize_t filled = localsplus_get_locals(frame, values, count);
    if (filled < 0) {
        failed(frame, where, "get_locals");
    }
    else if (filled != count || localsplus_count(frame) != count) {
        mismatch(frame, where, "%zd slots; the oracle: %zd", filled, count);
    }
    else {
        long present = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            present += values[i] != NULL;
            compare_value(frame, where, "get_locals", i, 0, values[i]);
        }
        atomic_fetch_add(&counted.values, present);
    }
    if (values != usual) {
        free(values);
    }
    if (thoroughly) {
        compare_thoroughly(frame, where);
    }
    if (PyErr_Occurred() != pending) {
        mismatch(frame, where, "the exception that was set is another one now");
    }
}

/* ---- CPython's own answer ----------------------------------------------- */

/* gh-128396: f_locals and locals() take what a cell slot holds for a cell. */
#define TRUSTS_CELL_SLOTS (PY_VERSION_HEX >= 0x030D0000 && PY_VERSION_HEX < 0x030D0300)

static int
f_locals_is_right(frame_t *frame)
{
    PyCodeObject *code = (PyCodeObject *)oracle_executable(frame);
    /* In class bodies and modules it is the namespace, which has no slots. */
    if (!(code->co_flags & CO_OPTIMIZED) || !oracle_prologue_ran(frame)) {
        return 0;
    }
    if (TRUSTS_CELL_SLOTS) {
        for (Py_ssize_t i = 0; i < oracle_count(frame); i++) {
            PyObject *raw;
            oracle_get_slot(frame, i, ORACLE_RAW_CELL, &raw);
            int is_trap = (oracle_kind(frame, i) & ORACLE_KIND_CELL) && raw != NULL && !PyCell_Check(raw);
            Py_XDECREF(raw);
            if (is_trap) {
                return 0;
            }
        }
    }
    return 1;
}

static int
is_twin(frame_t *frame, Py_ssize_t index)
{
    PyObject *names = oracle_names(frame);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        if (i != index && PyUnicode_Compare(PyTuple_GET_ITEM(names, i), PyTuple_GET_ITEM(names, index)) == 0) {
            return 1;
        }
    }
    return 0;
}

/* `mapping` (f_locals or locals()) must have every value that localsplus reads,
 * and no other. A name that two slots carry is left out: a mapping has only one
 * place for it. */
static int
compare_mapping(frame_t *frame, PyObject *mapping, const char *where)
{
    Py_ssize_t count = oracle_count(frame);
    Py_ssize_t twins = 0, present = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (is_twin(frame, i)) {
            twins++;
            continue;
        }
        PyObject *name = PyTuple_GET_ITEM(oracle_names(frame), i);
        PyObject *theirs = PyObject_GetItem(mapping, name);
        if (theirs == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
                return -1;
            }
            PyErr_Clear();
        }
        PyObject *ours;
        if (localsplus_get_local(frame, i, &ours) < 0) {
            Py_XDECREF(theirs);
            return -1;
        }
        present += ours != NULL;
        if (ours != theirs) {
            mismatch(frame, where, "slot %zd, %s (kind 0x%x): %s at %p; CPython's mapping: %s at %p", i,
                     slot_name(frame, i), oracle_kind(frame, i), type_name(ours), (void *)ours, type_name(theirs),
                     (void *)theirs);
        }
        Py_XDECREF(ours);
        Py_XDECREF(theirs);
    }
    Py_ssize_t size = PyObject_Size(mapping);
    if (size < 0) {
        return -1;
    }
    /* Before 3.13 it is a dict that exec() and others leave names in. */
    if (PY_VERSION_HEX >= 0x030D0000 && twins == 0 && size != present) {
        mismatch(frame, where, "%zd values; CPython's mapping: %zd", present, size);
    }
    atomic_fetch_add(&counted.f_locals, present);
    return 0;
}

static int
compare_f_locals(frame_t *frame, PyObject *frame_object, const char *where)
{
    if (!f_locals_is_right(frame)) {
        return 0;
    }
    PyObject *mapping = PyObject_GetAttrString(frame_object, "f_locals");
    if (mapping == NULL) {
        return -1;
    }
    int status = compare_mapping(frame, mapping, where);
    Py_DECREF(mapping);
    return status;
}

static int
compare_frame_object(PyObject *frame_object, const char *where, int with_f_locals)
{
    frame_t *frame = oracle_frame_of_frame_object(frame_object);
    compare(frame, where, 1);
    return with_f_locals ? compare_f_locals(frame, frame_object, where) : 0;
}

/* ---- from Python code --------------------------------------------------- */

/* look(mapping=None): reads the calling function's frame; with its locals(),
 * that is compared too (where locals() can crash, programs have another one). */
static PyObject *
compare_look(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *mapping = Py_None;
    if (!PyArg_ParseTuple(args, "|O", &mapping)) {
        return NULL;
    }
    PyObject *caller = (PyObject *)PyEval_GetFrame();
    frame_t *frame = oracle_frame_of_frame_object(caller);
    if (mapping != Py_None && !TRUSTS_CELL_SLOTS && f_locals_is_right(frame) && compare_mapping(frame, mapping, "locals()") < 0) {
        return NULL;
    }
    if (compare_frame_object(caller, "look", 1) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* A tuple for each slot: of its value, or empty. */
static PyObject *
values_of(frame_t *frame)
{
    Py_ssize_t count = oracle_count(frame);
    PyObject *values = PyTuple_New(count);
    for (Py_ssize_t i = 0; values != NULL && i < count; i++) {
        PyObject *value;
        if (localsplus_get_local(frame, i, &value) < 0) {
            Py_CLEAR(values);
            break;
        }
        PyObject *item = value == NULL ? PyTuple_New(0) : PyTuple_Pack(1, value);
        Py_XDECREF(value);
        if (item == NULL) {
            Py_CLEAR(values);
            break;
        }
        PyTuple_SET_ITEM(values, i, item);
    }
    return values;
}

/* frame(frame object, where, with f_locals): its values, compared. */
static PyObject *
compare_frame(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frame_object;
    const char *where;
    int with_f_locals;
    if (!PyArg_ParseTuple(args, "O!sp", &PyFrame_Type, &frame_object, &where, &with_f_locals)
        || compare_frame_object(frame_object, where, with_f_locals) < 0) {
        return NULL;
    }
    return values_of(oracle_frame_of_frame_object(frame_object));
}

/* generator(generator, coroutine or async generator, where): its frame's values,
 * compared; no frame object is made. */
static PyObject *
compare_generator(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *generator;
    const char *where;
    if (!PyArg_ParseTuple(args, "Os", &generator, &where)) {
        return NULL;
    }
    frame_t *frame = oracle_frame_of_generator(generator);
    if (frame == NULL) {
        PyErr_SetString(PyExc_TypeError, "not a generator, coroutine or async generator");
        return NULL;
    }
    compare(frame, where, 1);
    return values_of(frame);
}

/* ---- callbacks ---------------------------------------------------------- */

static PyObject *program_file; /* co_filename of the frames that callbacks read */

static int
is_of_program(PyObject *frame_object)
{
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame_object);
    int answer = program_file != NULL && PyUnicode_Compare(code->co_filename, program_file) == 0;
    Py_DECREF(code);
    return answer;
}

/* For sys.settrace. */
static PyObject *
compare_trace(PyObject *module, PyObject *args)
{
    PyObject *frame_object, *event, *argument;
    if (!PyArg_ParseTuple(args, "O!OO", &PyFrame_Type, &frame_object, &event, &argument)) {
        return NULL;
    }
    if (!is_of_program(frame_object)) {
        Py_RETURN_NONE;
    }
    /* From 3.12 on, sys.monitoring tells instructions. */
    if (PY_VERSION_HEX < 0x030C0000 && PyUnicode_CompareWithASCIIString(event, "call") == 0
        && PyObject_SetAttrString(frame_object, "f_trace_opcodes", Py_True) < 0) {
        return NULL;
    }
    if (compare_frame_object(frame_object, "trace", 1) < 0) {
        return NULL;
    }
    return PyObject_GetAttrString(module, "trace");
}

/* For sys.monitoring: the frame is the one that runs. */
static PyObject *
compare_monitor(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    PyObject *frame_object = (PyObject *)PyEval_GetFrame();
    if (frame_object != NULL && is_of_program(frame_object)
        && compare_frame_object(frame_object, "monitoring", 1) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
compare_set_program_file(PyObject *Py_UNUSED(module), PyObject *name)
{
    Py_XSETREF(program_file, Py_NewRef(name));
    Py_RETURN_NONE;
}

/* ---- the hook ----------------------------------------------------------- */

static struct {
    int reads;
    int callers;
    PyObject *last_caller;   /* code of the last caller to read */
    PyObject *expected_code; /* whose next entry is appended to ... */
    PyObject *entries;       /* ... this list */
} hook;

static void
keep_entry(frame_t *frame)
{
    PyObject *entries = hook.entries;
    hook.entries = NULL;
    hook.expected_code = NULL;
    PyObject *values = values_of(frame);
    if (values == NULL || PyList_Append(entries, values) < 0) {
        PyErr_Clear();
        mismatch(frame, "entry", "the values could not be kept");
    }
    Py_XDECREF(values);
    Py_DECREF(entries);
}

static PyObject *
comparing_hook(PyThreadState *tstate, frame_t *frame, int throwflag)
{
    atomic_fetch_add(&counted.entries, 1);
    if (hook.reads) {
        compare(frame, "entry", hook.callers);
        if (hook.callers) {
            frame_t *caller = oracle_current_frame();
            for (int i = 0; caller != NULL && i < CALLERS; i++, caller = oracle_previous(caller)) {
                compare(caller, "caller", 0);
                if (oracle_is_python_frame(caller) && oracle_executable(caller) == hook.last_caller) {
                    break;
                }
            }
        }
        if (hook.entries != NULL && oracle_executable(frame) == hook.expected_code) {
            keep_entry(frame);
        }
    }
    return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
}

/* install(reads, last_caller=None): a hook for every frame. Without `reads` it
 * does nothing but evaluate; with `last_caller`, a code object, it asks every
 * question, also about the frames that are waiting for this one up to that. */
static PyObject *
compare_install(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *last_caller = Py_None;
    if (!PyArg_ParseTuple(args, "p|O", &hook.reads, &last_caller)) {
        return NULL;
    }
    hook.callers = last_caller != Py_None;
    Py_XSETREF(hook.last_caller, Py_NewRef(last_caller));
    /* Chosen now, and not by a test that counts or limits something. */
    if (localsplus_init() < 0) {
        return NULL;
    }
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), comparing_hook);
    Py_RETURN_NONE;
}

static PyObject *
compare_remove(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), _PyEval_EvalFrameDefault);
    Py_CLEAR(hook.entries);
    hook.expected_code = NULL;
    Py_RETURN_NONE;
}

/* expect(code, list): the values at the next entry of this code go to the list. */
static PyObject *
compare_expect(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *code, *entries;
    if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, &PyList_Type, &entries)) {
        return NULL;
    }
    /* Only compared; the caller is about to run it. */
    hook.expected_code = code;
    Py_XSETREF(hook.entries, Py_NewRef(entries));
    Py_RETURN_NONE;
}

static PyObject *
compare_counts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    return Py_BuildValue("{slslslslsl}", "entries", atomic_load(&counted.entries), "frames",
                         atomic_load(&counted.frames), "values", atomic_load(&counted.values), "f_locals",
                         atomic_load(&counted.f_locals), "mismatches", atomic_load(&counted.mismatches));
}

/* The mismatches since the last call, the first ones with what they are. */
static PyObject *
compare_take_mismatches(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    long number = atomic_exchange(&counted.mismatches, 0);
    PyObject *list = PyList_New(0);
    for (long i = 0; list != NULL && i < number && i < MISMATCHES_KEPT; i++) {
        PyObject *text = PyUnicode_DecodeUTF8(texts[i], (Py_ssize_t)strlen(texts[i]), "replace");
        if (text == NULL || PyList_Append(list, text) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
    }
    return list;
}

static PyMethodDef compare_methods[] = {
    {"look", compare_look, METH_VARARGS, NULL},
    {"frame", compare_frame, METH_VARARGS, NULL},
    {"generator", compare_generator, METH_VARARGS, NULL},
    {"trace", compare_trace, METH_VARARGS, NULL},
    {"monitor", compare_monitor, METH_VARARGS, NULL},
    {"set_program_file", compare_set_program_file, METH_O, NULL},
    {"install", compare_install, METH_VARARGS, NULL},
    {"remove", compare_remove, METH_NOARGS, NULL},
    {"expect", compare_expect, METH_VARARGS, NULL},
    {"counts", compare_counts, METH_NOARGS, NULL},
    {"take_mismatches", compare_take_mismatches, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot compare_slots[] = {
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef compare_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_compare",
    .m_methods = compare_methods,
    .m_slots = compare_slots,
};

PyMODINIT_FUNC
PyInit__compare(void)
{
    return PyModuleDef_Init(&compare_module);
}
