/* Hooks of ours and of somebody else's, for test_hook.py and test_evaluate.py. They
 * count the frames of one function, and note in which order they see them. */
#define PY_SSIZE_T_CLEAN
#include <localsplus.h>

#include <string.h>

typedef struct _PyInterpreterFrame frame_t;

/* ---- counting hooks: number 0 to COUNT - 1 ------------------------------- */

enum { COUNT = 256, ORDER = 16 };

static struct counter {
    int number;
    Py_ssize_t calls;
} counters[COUNT];

/* Compared by address only. Set while nothing is hooked. */
static PyObject *watched_code;
static char order[ORDER + 1];
static int seen;

static void
note(frame_t *frame, char name, Py_ssize_t *calls)
{
    PyObject *code = localsplus_code(frame);
    if (code == NULL) {
        PyErr_Clear();
        return;
    }
    Py_DECREF(code);
    if (code != watched_code) {
        return;
    }
#ifdef Py_GIL_DISABLED
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    (void)name;
#else
    ++*calls;
    if (seen < ORDER) {
        order[seen++] = name;
    }
#endif
}

static PyObject *
counting(PyThreadState *thread, frame_t *frame, int throwflag, const localsplus_hook *hook)
{
    struct counter *counter = hook->data;
    if (throwflag == 0) {
        note(frame, (char)('a' + counter->number % 26), &counter->calls);
    }
    return hook->next(thread, frame, throwflag);
}

static struct counter *
counter_of(PyObject *number)
{
    long n = PyLong_AsLong(number);
    if (n < 0 || n >= COUNT) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_IndexError, "no such hook");
        }
        return NULL;
    }
    counters[n].number = (int)n;
    return &counters[n];
}

static PyObject *
hooks_install(PyObject *Py_UNUSED(module), PyObject *number)
{
    struct counter *counter = counter_of(number);
    int installed = counter == NULL ? -1 : localsplus_hook_install(counting, counter);
    return installed < 0 ? NULL : PyBool_FromLong(installed);
}

static PyObject *
hooks_remove(PyObject *Py_UNUSED(module), PyObject *number)
{
    struct counter *counter = counter_of(number);
    int removed = counter == NULL ? -1 : localsplus_hook_remove(counting, counter);
    return removed < 0 ? NULL : PyBool_FromLong(removed);
}

static PyObject *
hooks_calls(PyObject *Py_UNUSED(module), PyObject *number)
{
    struct counter *counter = counter_of(number);
    return counter == NULL ? NULL : PyLong_FromSsize_t(counter->calls);
}

/* watch(code): from now on, count the frames of this code object, from 0. */
static PyObject *
hooks_watch(PyObject *Py_UNUSED(module), PyObject *code)
{
    watched_code = code;
    for (int i = 0; i < COUNT; i++) {
        counters[i].calls = 0;
    }
    seen = 0;
    memset(order, 0, sizeof(order));
    Py_RETURN_NONE;
}

/* The first hooks that saw a watched frame, 'a' for number 0, 'F' for the foreign one. Not free-threaded. */
static PyObject *
hooks_order(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    PyObject *text = PyUnicode_FromString(order);
    seen = 0;
    memset(order, 0, sizeof(order));
    return text;
}

/* ---- a hook that fails --------------------------------------------------- */

static PyObject *
failing(PyThreadState *thread, frame_t *frame, int throwflag, const localsplus_hook *hook)
{
    PyObject *code = localsplus_code(frame);
    Py_XDECREF(code);
    if (code == NULL || code != watched_code || throwflag != 0) {
        return hook->next(thread, frame, throwflag);
    }
    PyErr_SetString(PyExc_ZeroDivisionError, "from the hook");
    return hook->next(thread, frame, 1);
}

static PyObject *
hooks_fail(PyObject *Py_UNUSED(module), PyObject *on)
{
    int changed = (on == Py_True ? localsplus_hook_install : localsplus_hook_remove)(failing, NULL);
    return changed < 0 ? NULL : PyBool_FromLong(changed);
}

/* ---- hooks that do something else with a frame --------------------------- */

/* {id(code): replacement}, or {id(code): (value,)} to answer that value. By identity: a copy of a code object is
 * equal to it. */
static PyObject *replacements;

static PyObject *
replacing(PyThreadState *thread, frame_t *frame, int throwflag, const localsplus_hook *hook)
{
    PyObject *pending[3];
    PyErr_Fetch(&pending[0], &pending[1], &pending[2]);
    PyObject *code = localsplus_code(frame);
    PyObject *key = PyLong_FromVoidPtr(code);
    PyObject *replacement = key == NULL ? NULL : PyDict_GetItem(replacements, key);
    Py_XDECREF(key);
    PyErr_Restore(pending[0], pending[1], pending[2]);
    Py_XDECREF(code);
    if (replacement == NULL || throwflag != 0 || localsplus_lasti(frame) > 0) {
        return hook->next(thread, frame, throwflag);
    }
    Py_INCREF(replacement);
    PyObject *result;
    if (!PyTuple_Check(replacement)) {
        result = localsplus_evaluate_in_place(frame, replacement);
    }
    else if (localsplus_consume(frame) < 0) {
        result = NULL;
    }
    else if (PyTuple_GET_SIZE(replacement) == 0) {
        PyErr_SetString(PyExc_ZeroDivisionError, "from the hook");
        result = NULL;
    }
    else {
        result = Py_NewRef(PyTuple_GET_ITEM(replacement, 0));
    }
    Py_DECREF(replacement);
    return result;
}

/* replace(dict), or replace(None) to remove the hook. */
static PyObject *
hooks_replace(PyObject *Py_UNUSED(module), PyObject *dict)
{
    int changed;
    if (PyDict_Check(dict)) {
        Py_XSETREF(replacements, Py_NewRef(dict));
        changed = localsplus_hook_install(replacing, NULL);
    }
    else {
        changed = localsplus_hook_remove(replacing, NULL);
    }
    return changed < 0 ? NULL : PyBool_FromLong(changed);
}

/* consume(address), evaluate(address, replacement): for frames that refuse it. */
static PyObject *
hooks_consume(PyObject *Py_UNUSED(module), PyObject *address)
{
    void *frame = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred() || localsplus_consume(frame) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
hooks_evaluate(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *address, *replacement;
    if (!PyArg_ParseTuple(args, "OO", &address, &replacement)) {
        return NULL;
    }
    void *frame = PyLong_AsVoidPtr(address);
    return PyErr_Occurred() ? NULL : localsplus_evaluate_in_place(frame, replacement);
}

/* ---- somebody else's hook ------------------------------------------------ */

static _PyFrameEvalFunction foreign_next;
static Py_ssize_t foreign_calls;

static PyObject *
foreign(PyThreadState *thread, frame_t *frame, int throwflag)
{
    note(frame, 'F', &foreign_calls);
    return foreign_next(thread, frame, throwflag);
}

static PyObject *
hooks_foreign(PyObject *Py_UNUSED(module), PyObject *on)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (on == Py_True) {
        foreign_next = _PyInterpreterState_GetEvalFrameFunc(interpreter);
        _PyInterpreterState_SetEvalFrameFunc(interpreter, foreign);
    }
    else {
        _PyInterpreterState_SetEvalFrameFunc(interpreter, foreign_next);
    }
    Py_RETURN_NONE;
}

/* swap(address), or swap(None) for the interpreter's own function: install that, and answer what was installed. */
static PyObject *
hooks_swap(PyObject *Py_UNUSED(module), PyObject *address)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    void *function = address == Py_None ? (void *)_PyEval_EvalFrameDefault : PyLong_AsVoidPtr(address);
    if (function == NULL) {
        return NULL;
    }
    PyObject *before = PyLong_FromVoidPtr((void *)_PyInterpreterState_GetEvalFrameFunc(interpreter));
    if (before != NULL) {
        _PyInterpreterState_SetEvalFrameFunc(interpreter, (_PyFrameEvalFunction)function);
    }
    return before;
}

/* "default", "foreign" or "other". */
static PyObject *
hooks_installed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    return PyUnicode_FromString(current == _PyEval_EvalFrameDefault ? "default"
                                : current == foreign                ? "foreign"
                                                                    : "other");
}

#if PY_VERSION_HEX >= 0x030F0000
static PyObject *
hooks_allow_specialization(PyObject *Py_UNUSED(module), PyObject *on)
{
    _PyInterpreterState_SetEvalFrameAllowSpecialization(PyInterpreterState_Get(), on == Py_True);
    Py_RETURN_NONE;
}

static PyObject *
hooks_specializes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    return PyBool_FromLong(_PyInterpreterState_IsSpecializationEnabled(PyInterpreterState_Get()));
}
#endif

static PyMethodDef methods[] = {
    {"install", hooks_install, METH_O, NULL},
    {"remove", hooks_remove, METH_O, NULL},
    {"calls", hooks_calls, METH_O, NULL},
    {"watch", hooks_watch, METH_O, NULL},
    {"order", hooks_order, METH_NOARGS, NULL},
    {"fail", hooks_fail, METH_O, NULL},
    {"replace", hooks_replace, METH_O, NULL},
    {"consume", hooks_consume, METH_O, NULL},
    {"evaluate", hooks_evaluate, METH_VARARGS, NULL},
    {"foreign", hooks_foreign, METH_O, NULL},
    {"swap", hooks_swap, METH_O, NULL},
    {"installed", hooks_installed, METH_NOARGS, NULL},
#if PY_VERSION_HEX >= 0x030F0000
    {"allow_specialization", hooks_allow_specialization, METH_O, NULL},
    {"specializes", hooks_specializes, METH_NOARGS, NULL},
#endif
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_hooks",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__hooks(void)
{
    return PyModuleDef_Init(&definition);
}
