/* localsplus as a C extension uses it: the public C API and its header, no
 * internal CPython header. The case suite drives the library through this
 * module.
 *
 * A frame is given as a frame object or as an address (an int; 0 is NULL). The
 * caller guarantees that the address is alive.
 */
#define PY_SSIZE_T_CLEAN
#include "localsplus.h"

#include <frameobject.h> /* PyFrame_New */

#include <dlfcn.h>
#include <string.h>

typedef struct _PyInterpreterFrame frame_t;

/* What a result variable holds before each call. */
static char sentinel_object;
#define SENTINEL ((PyObject *)&sentinel_object)

typedef struct {
    PyObject *no_value; /* stands for a slot without a value */
} module_state;

static PyObject *
new_no_value(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    return Py_NewRef(state->no_value);
}

static int
frame_converter(PyObject *object, void *address)
{
    if (PyFrame_Check(object)) {
        /* PyFrameObject: object header, f_back, f_frame. */
        memcpy(address, (char *)object + sizeof(PyObject) + sizeof(void *), sizeof(void *));
        return 1;
    }
    void *pointer = PyLong_AsVoidPtr(object);
    if (pointer == NULL && PyErr_Occurred()) {
        return 0;
    }
    *(void **)address = pointer;
    return 1;
}

static PyObject *
take_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL) {
        return NULL;
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* Steals the reference; NULL clears. */
static void
restore_exception(PyObject *exception)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(exception);
#else
    if (exception == NULL) {
        PyErr_Clear();
        return;
    }
    PyErr_Restore(Py_NewRef(Py_TYPE(exception)), exception, PyException_GetTraceback(exception));
#endif
}

/* ---- one question, answered the Python way ------------------------------ */

/* Turns (return value, *result) into a new reference, and checks on the way that
 * the two agree with each other and with the error indicator. */
static PyObject *
checked_answer(PyObject *module, int found, PyObject *result)
{
    int failed = PyErr_Occurred() != NULL;
    if (found == 1 && result != NULL && result != SENTINEL && !failed) {
        return result;
    }
    if (found == 0 && result == NULL && !failed) {
        return new_no_value(module);
    }
    if (found == -1 && result == NULL && failed) {
        return NULL;
    }
    PyErr_Format(PyExc_AssertionError, "answered %d with *result %s and %s exception", found,
                 result == NULL ? "NULL" : (result == SENTINEL ? "not written" : "an object"),
                 failed ? "an" : "no");
    return NULL;
}

static PyObject *
get_kind(frame_t *frame, Py_ssize_t index)
{
    int kind = localsplus_kind(frame, index);
    return kind < 0 ? NULL : PyLong_FromLong(kind);
}

static PyObject *
get_local(PyObject *module, frame_t *frame, Py_ssize_t index)
{
    PyObject *result = SENTINEL;
    int found = localsplus_get_local(frame, index, &result);
    return checked_answer(module, found, result);
}

static PyObject *
get_slot(PyObject *module, frame_t *frame, Py_ssize_t index, unsigned flags)
{
    PyObject *result = SENTINEL;
    int found = localsplus_get_slot(frame, index, flags, &result);
    return checked_answer(module, found, result);
}

static PyObject *
get_locals(PyObject *module, frame_t *frame)
{
    Py_ssize_t count = localsplus_count(frame);
    if (count < 0) {
        return NULL;
    }
    PyObject *values = NULL;
    PyObject **result = PyMem_New(PyObject *, (size_t)count + 1);
    if (result == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i <= count; i++) {
        result[i] = SENTINEL;
    }
    Py_ssize_t filled = localsplus_get_locals(frame, result, count);
    if (filled < 0) {
        goto done;
    }
    if (filled != count || result[count] != SENTINEL) {
        PyErr_Format(PyExc_AssertionError, "get_locals filled %zd of %zd slots", filled, count);
        goto done;
    }
    values = PyTuple_New(count);
    if (values == NULL) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = checked_answer(module, result[i] != NULL, result[i]);
        if (value == NULL) {
            Py_CLEAR(values);
            goto done;
        }
        PyTuple_SET_ITEM(values, i, value);
    }
done:
    PyMem_Free(result);
    return values;
}

static PyObject *
cases_init(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    int status = localsplus_init();
    if (status < 0) {
        return NULL;
    }
    return PyLong_FromLong(status);
}

static PyObject *
cases_provider(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    const char *provider = localsplus_provider();
    if (provider == NULL) {
        if (PyErr_Occurred()) {
            return NULL;
        }
        Py_RETURN_NONE;
    }
    return PyUnicode_FromString(provider);
}

static PyObject *
cases_abi_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    return PyLong_FromLong(localsplus_abi_version());
}

static PyObject *
cases_count(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_converter, &frame)) {
        return NULL;
    }
    Py_ssize_t count = localsplus_count(frame);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

static PyObject *
cases_names(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_converter, &frame)) {
        return NULL;
    }
    return localsplus_names(frame);
}

static PyObject *
cases_kind(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "O&n", frame_converter, &frame, &index)) {
        return NULL;
    }
    return get_kind(frame, index);
}

static PyObject *
cases_get_local(PyObject *module, PyObject *args)
{
    frame_t *frame;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "O&n", frame_converter, &frame, &index)) {
        return NULL;
    }
    return get_local(module, frame, index);
}

static PyObject *
cases_get_slot(PyObject *module, PyObject *args)
{
    frame_t *frame;
    Py_ssize_t index;
    unsigned flags;
    if (!PyArg_ParseTuple(args, "O&nI", frame_converter, &frame, &index, &flags)) {
        return NULL;
    }
    return get_slot(module, frame, index, flags);
}

static PyObject *
cases_get_locals(PyObject *module, PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_converter, &frame)) {
        return NULL;
    }
    return get_locals(module, frame);
}

/* A slot of the calling Python function: one C call, so that nothing else runs
 * between the caller's last instruction and the read. */
static PyObject *
cases_caller_local(PyObject *module, PyObject *args)
{
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "n", &index)) {
        return NULL;
    }
    frame_t *frame;
    if (!frame_converter((PyObject *)PyEval_GetFrame(), &frame)) {
        return NULL;
    }
    return get_local(module, frame, index);
}

static PyObject *
cases_address(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_converter, &frame)) {
        return NULL;
    }
    return PyLong_FromVoidPtr(frame);
}

/* ---- everything at once ------------------------------------------------- */

#define FLAG_COMBINATIONS 4 /* LOCALSPLUS_HIDDEN and LOCALSPLUS_RAW_CELL, with and without */

/* Keeps an answer, or None for a question that localsplus refuses: on a version
 * without a layout the official function answers, and has no kinds and no flags. */
static PyObject *
unless_refused(PyObject *answer)
{
    if (answer == NULL && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return answer;
}

/* (count, names, kinds, values by get_local, values by get_locals,
 *  values by get_slot for each combination of flags). */
static PyObject *
snapshot(PyObject *module, frame_t *frame)
{
    PyObject *names = NULL, *kinds = NULL, *singly = NULL, *together = NULL, *flagged = NULL;
    PyObject *result = NULL;
    Py_ssize_t count = localsplus_count(frame);
    if (count < 0) {
        return NULL;
    }
    names = localsplus_names(frame);
    kinds = PyTuple_New(count);
    singly = PyTuple_New(count);
    together = get_locals(module, frame);
    flagged = PyTuple_New(FLAG_COMBINATIONS);
    if (names == NULL || kinds == NULL || singly == NULL || together == NULL || flagged == NULL) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *kind = unless_refused(get_kind(frame, i));
        if (kind == NULL) {
            goto done;
        }
        PyTuple_SET_ITEM(kinds, i, kind);
        PyObject *value = get_local(module, frame, i);
        if (value == NULL) {
            goto done;
        }
        PyTuple_SET_ITEM(singly, i, value);
    }
    for (unsigned flags = 0; flags < FLAG_COMBINATIONS; flags++) {
        PyObject *values = PyTuple_New(count);
        if (values == NULL) {
            goto done;
        }
        PyTuple_SET_ITEM(flagged, flags, values);
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *value = unless_refused(get_slot(module, frame, i, flags));
            if (value == NULL) {
                goto done;
            }
            PyTuple_SET_ITEM(values, i, value);
        }
    }
    result = Py_BuildValue("nOOOOO", count, names, kinds, singly, together, flagged);
done:
    Py_XDECREF(names);
    Py_XDECREF(kinds);
    Py_XDECREF(singly);
    Py_XDECREF(together);
    Py_XDECREF(flagged);
    return result;
}

static PyObject *
cases_snapshot(PyObject *module, PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_converter, &frame)) {
        return NULL;
    }
    return snapshot(module, frame);
}

/* Asks every question about every slot once and drops the answers. `scratch`
 * holds `count` pointers. */
static int
ask_everything(frame_t *frame, Py_ssize_t count, PyObject **scratch)
{
    if (localsplus_count(frame) != count || localsplus_get_locals(frame, scratch, count) != count) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(scratch[i]);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value;
        if (localsplus_kind(frame, i) < 0 || localsplus_get_local(frame, i, &value) < 0) {
            return -1;
        }
        Py_XDECREF(value);
        for (unsigned flags = 0; flags < FLAG_COMBINATIONS; flags++) {
            if (localsplus_get_slot(frame, i, flags, &value) < 0) {
                return -1;
            }
            Py_XDECREF(value);
        }
    }
    return 0;
}

static PyObject *
cases_read_repeatedly(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    Py_ssize_t times;
    if (!PyArg_ParseTuple(args, "O&n", frame_converter, &frame, &times)) {
        return NULL;
    }
    Py_ssize_t count = localsplus_count(frame);
    if (count < 0) {
        return NULL;
    }
    PyObject **scratch = PyMem_New(PyObject *, (size_t)count + 1);
    if (scratch == NULL) {
        return PyErr_NoMemory();
    }
    int status = 0;
    while (status == 0 && times-- > 0) {
        status = ask_everything(frame, count, scratch);
    }
    PyMem_Free(scratch);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- allocation counting ------------------------------------------------ */

static const PyMemAllocatorDomain domains[] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
#define NDOMAINS (sizeof(domains) / sizeof(domains[0]))
static PyMemAllocatorEx wrapped[NDOMAINS];
static Py_ssize_t allocations;

static void *
counting_malloc(void *ctx, size_t size)
{
    PyMemAllocatorEx *allocator = ctx;
    allocations++;
    return allocator->malloc(allocator->ctx, size);
}

static void *
counting_calloc(void *ctx, size_t nelem, size_t elsize)
{
    PyMemAllocatorEx *allocator = ctx;
    allocations++;
    return allocator->calloc(allocator->ctx, nelem, elsize);
}

static void *
counting_realloc(void *ctx, void *ptr, size_t size)
{
    PyMemAllocatorEx *allocator = ctx;
    allocations++;
    return allocator->realloc(allocator->ctx, ptr, size);
}

static void
uncounted_free(void *ctx, void *ptr)
{
    PyMemAllocatorEx *allocator = ctx;
    allocator->free(allocator->ctx, ptr);
}

/* How often the interpreter's allocators, and malloc() where count_malloc.c is
 * preloaded, are asked while everything but the names is read once: (interpreter,
 * malloc or None). For a process with one thread. */
static PyObject *
cases_allocations_while_reading(PyObject *Py_UNUSED(module), PyObject *args)
{
    frame_t *frame;
    if (!PyArg_ParseTuple(args, "O&", frame_converter, &frame)) {
        return NULL;
    }
    Py_ssize_t count = localsplus_count(frame);
    if (count < 0) {
        return NULL;
    }
    PyObject **scratch = PyMem_New(PyObject *, (size_t)count + 1);
    if (scratch == NULL) {
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < NDOMAINS; i++) {
        PyMem_GetAllocator(domains[i], &wrapped[i]);
        PyMemAllocatorEx counting = {&wrapped[i], counting_malloc, counting_calloc, counting_realloc, uncounted_free};
        PyMem_SetAllocator(domains[i], &counting);
    }
    long *malloc_calls = dlsym(RTLD_DEFAULT, "malloc_calls");
    long malloc_before = malloc_calls == NULL ? 0 : *malloc_calls;
    allocations = 0;
    int status = ask_everything(frame, count, scratch);
    Py_ssize_t counted = allocations;
    long counted_malloc = malloc_calls == NULL ? 0 : *malloc_calls - malloc_before;
    for (size_t i = 0; i < NDOMAINS; i++) {
        PyMem_SetAllocator(domains[i], &wrapped[i]);
    }
    PyMem_Free(scratch);
    if (status < 0) {
        return NULL;
    }
    return malloc_calls == NULL ? Py_BuildValue("nO", counted, Py_None) : Py_BuildValue("nl", counted, counted_malloc);
}

/* ---- the C boundary, unchecked ------------------------------------------ */

static PyObject *
describe_result(PyObject *module, PyObject *result)
{
    if (result == SENTINEL) {
        return PyUnicode_FromString("not written");
    }
    return result == NULL ? new_no_value(module) : result;
}

/* call(function, frame, index, flags, capacity, null_result, pending): calls the
 * C function as it stands, bad arguments included, with `pending` as the current
 * exception. The answer is (return value, result, exception): result as in
 * *result (get_locals: a list of `capacity` such), exception what is set
 * afterwards. */
static PyObject *
cases_call(PyObject *module, PyObject *args)
{
    const char *function;
    frame_t *frame;
    Py_ssize_t index, capacity;
    unsigned flags;
    int null_result;
    PyObject *pending;
    if (!PyArg_ParseTuple(args, "sO&nInpO", &function, frame_converter, &frame, &index, &flags, &capacity,
                          &null_result, &pending)) {
        return NULL;
    }

    enum { MANY = 64 };
    PyObject *many[MANY];
    if (capacity >= MANY) {
        PyErr_SetString(PyExc_OverflowError, "capacity");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < MANY; i++) {
        many[i] = SENTINEL;
    }
    PyObject **result = null_result ? NULL : many;

    if (pending != Py_None) {
        restore_exception(Py_NewRef(pending));
    }
    Py_ssize_t status;
    if (strcmp(function, "get_local") == 0) {
        status = localsplus_get_local(frame, index, result);
    }
    else if (strcmp(function, "get_slot") == 0) {
        status = localsplus_get_slot(frame, index, flags, result);
    }
    else if (strcmp(function, "get_locals") == 0) {
        status = localsplus_get_locals(frame, result, capacity);
    }
    else if (strcmp(function, "count") == 0) {
        status = localsplus_count(frame);
    }
    else if (strcmp(function, "kind") == 0) {
        status = localsplus_kind(frame, index);
    }
    else if (strcmp(function, "names") == 0) {
        many[0] = localsplus_names(frame);
        status = many[0] == NULL ? -1 : 1;
    }
    else if (strcmp(function, "init") == 0) {
        status = localsplus_init();
    }
    else if (strcmp(function, "provider") == 0) {
        status = localsplus_provider() == NULL ? -1 : 1;
    }
    else {
        PyErr_Format(PyExc_LookupError, "no function %s", function);
        return NULL;
    }
    PyObject *exception = take_exception();
    if (exception == NULL) {
        exception = Py_NewRef(Py_None);
    }

    PyObject *answer;
    if (strcmp(function, "get_locals") == 0) {
        Py_ssize_t length = capacity < 0 ? 0 : capacity;
        answer = PyList_New(length);
        for (Py_ssize_t i = 0; answer != NULL && i < length; i++) {
            PyList_SET_ITEM(answer, i, describe_result(module, many[i]));
        }
        if (answer != NULL && many[length] != SENTINEL) {
            PyErr_SetString(PyExc_AssertionError, "get_locals wrote past its capacity");
            Py_CLEAR(answer);
        }
    }
    else {
        answer = describe_result(module, many[0]);
    }
    if (answer == NULL) {
        Py_DECREF(exception);
        return NULL;
    }
    return Py_BuildValue("nNN", status, answer, exception);
}

/* ---- eval-frame hooks --------------------------------------------------- */

/* _PyInterpreterFrame.f_executable: no public function tells it on 3.11, so the
 * oracle lends its own. Only used to select frames by name. */
typedef PyObject *(*executable_getter)(frame_t *);

static struct {
    executable_getter executable_of;
    PyObject *module;
    PyObject *names;    /* set of co_name, or NULL for all */
    PyObject *callback; /* or NULL */
    PyObject *records;
    PyObject *error; /* the first exception of the hook itself */
} hook;

/* The callback's own frames are not recorded. */
static _Thread_local int is_recording;

static int
is_selected(frame_t *frame)
{
    if (is_recording) {
        return 0;
    }
    PyObject *code = hook.executable_of(frame);
    if (code == NULL || !PyCode_Check(code)) {
        return 0;
    }
    return hook.names == NULL || PySet_Contains(hook.names, ((PyCodeObject *)code)->co_name) == 1;
}

static int
record_entry(frame_t *frame, int throwflag)
{
    PyObject *everything = snapshot(hook.module, frame);
    if (everything == NULL) {
        return -1;
    }
    PyObject *code = hook.executable_of(frame);
    PyObject *record =
        Py_BuildValue("OiNN", ((PyCodeObject *)code)->co_name, throwflag, PyLong_FromVoidPtr(frame), everything);
    if (record == NULL) {
        return -1;
    }
    int status;
    if (hook.callback == NULL) {
        status = PyList_Append(hook.records, record);
    }
    else {
        PyObject *result = PyObject_Call(hook.callback, record, NULL);
        status = result == NULL ? -1 : 0;
        Py_XDECREF(result);
    }
    Py_DECREF(record);
    return status;
}

static PyObject *
recording_hook(PyThreadState *tstate, frame_t *frame, int throwflag)
{
    if (is_selected(frame)) {
        is_recording = 1;
        PyObject *pending = take_exception();
        if (record_entry(frame, throwflag) < 0) {
            PyObject *error = take_exception();
            if (hook.error == NULL) {
                hook.error = error;
            }
            else {
                Py_XDECREF(error);
            }
        }
        restore_exception(pending);
        is_recording = 0;
    }
    return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
}

/* install_hook(names, callback=None): from now on, what localsplus answers at
 * the entry (and every resumption) of functions with one of these names (None:
 * of all functions) is recorded as (co_name, throwflag, address, snapshot), and
 * callback, if there is one, is called with the same instead, before the frame
 * runs. */
static PyObject *
cases_install_hook(PyObject *module, PyObject *args)
{
    PyObject *names, *callback = Py_None;
    if (!PyArg_ParseTuple(args, "O|O", &names, &callback)) {
        return NULL;
    }
    if (hook.executable_of == NULL) {
        hook.executable_of = (executable_getter)PyCapsule_Import("_oracle.executable_getter", 0);
        if (hook.executable_of == NULL) {
            return NULL;
        }
    }
    PyObject *records = PyList_New(0);
    if (records == NULL) {
        return NULL;
    }
    Py_XSETREF(hook.module, Py_NewRef(module));
    Py_XSETREF(hook.names, names == Py_None ? NULL : Py_NewRef(names));
    Py_XSETREF(hook.callback, callback == Py_None ? NULL : Py_NewRef(callback));
    Py_XSETREF(hook.records, records);
    Py_CLEAR(hook.error);
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), recording_hook);
    Py_RETURN_NONE;
}

/* Back to the interpreter's own evaluation; answers the records, or raises the
 * first exception of the hook or its callback. */
static PyObject *
cases_remove_hook(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), _PyEval_EvalFrameDefault);
    Py_CLEAR(hook.names);
    Py_CLEAR(hook.callback);
    Py_CLEAR(hook.module);
    PyObject *records = hook.records;
    hook.records = NULL;
    if (hook.error != NULL) {
        Py_XDECREF(records);
        restore_exception(hook.error);
        hook.error = NULL;
        return NULL;
    }
    return records;
}

/* Another library's hook: counts the frames it evaluates, and how localsplus
 * answers when it is asked about them. */
static struct {
    Py_ssize_t frames;
    Py_ssize_t answered;
    Py_ssize_t refused; /* RuntimeError */
    Py_ssize_t other;
} counted;

static PyObject *
counting_hook(PyThreadState *tstate, frame_t *frame, int throwflag)
{
    PyObject *pending = take_exception();
    counted.frames++;
    if (localsplus_count(frame) >= 0) {
        counted.answered++;
    }
    else if (PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        counted.refused++;
    }
    else {
        counted.other++;
    }
    restore_exception(pending);
    return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
}

static PyObject *
cases_install_counter(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    memset(&counted, 0, sizeof(counted));
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), counting_hook);
    Py_RETURN_NONE;
}

static PyObject *
cases_remove_counter(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), _PyEval_EvalFrameDefault);
    return Py_BuildValue("{snsnsnsn}", "frames", counted.frames, "answered", counted.answered, "refused",
                         counted.refused, "other", counted.other);
}

/* Which evaluator is installed: "default", "recorder", "counter" or "other". */
static PyObject *
cases_installed_hook(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    const char *name = current == _PyEval_EvalFrameDefault ? "default"
                       : current == recording_hook         ? "recorder"
                       : current == counting_hook          ? "counter"
                                                           : "other";
    return PyUnicode_FromString(name);
}

/* ---- the rest ----------------------------------------------------------- */

/* A function with any closure, also one that its code does not fit. */
static PyObject *
cases_function_with_closure(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *code, *globals, *closure;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyCode_Type, &code, &PyDict_Type, &globals, &closure)) {
        return NULL;
    }
    PyObject *function = PyFunction_New(code, globals);
    if (function != NULL && closure != Py_None && PyFunction_SetClosure(function, closure) < 0) {
        Py_CLEAR(function);
    }
    return function;
}

/* A frame object that never runs, as tools make them for their tracebacks. */
static PyObject *
cases_new_frame_object(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *code, *globals;
    if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, &PyDict_Type, &globals)) {
        return NULL;
    }
    return (PyObject *)PyFrame_New(PyThreadState_Get(), (PyCodeObject *)code, globals, NULL);
}

/* Whether a symbol is visible process-wide. RTLD_DEFAULT would also look where
 * this extension alone can see. */
static PyObject *
cases_has_symbol(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name)) {
        return NULL;
    }
    void *process = dlopen(NULL, RTLD_LAZY);
    int found = process != NULL && dlsym(process, name) != NULL;
    if (process != NULL) {
        dlclose(process);
    }
    return PyBool_FromLong(found);
}

/* Where the loaded library lies: it must be the file under test. */
static PyObject *
cases_library_path(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    Dl_info info;
    int (*function)(void) = localsplus_abi_version;
    void *address;
    memcpy(&address, &function, sizeof(address));
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeFSDefault(info.dli_fname);
}

static PyMethodDef cases_methods[] = {
    {"init", cases_init, METH_NOARGS, NULL},
    {"provider", cases_provider, METH_NOARGS, NULL},
    {"abi_version", cases_abi_version, METH_NOARGS, NULL},
    {"count", cases_count, METH_VARARGS, NULL},
    {"names", cases_names, METH_VARARGS, NULL},
    {"kind", cases_kind, METH_VARARGS, NULL},
    {"get_local", cases_get_local, METH_VARARGS, NULL},
    {"get_slot", cases_get_slot, METH_VARARGS, NULL},
    {"get_locals", cases_get_locals, METH_VARARGS, NULL},
    {"caller_local", cases_caller_local, METH_VARARGS, NULL},
    {"address", cases_address, METH_VARARGS, NULL},
    {"snapshot", cases_snapshot, METH_VARARGS, NULL},
    {"read_repeatedly", cases_read_repeatedly, METH_VARARGS, NULL},
    {"allocations_while_reading", cases_allocations_while_reading, METH_VARARGS, NULL},
    {"call", cases_call, METH_VARARGS, NULL},
    {"install_hook", cases_install_hook, METH_VARARGS, NULL},
    {"remove_hook", cases_remove_hook, METH_NOARGS, NULL},
    {"install_counter", cases_install_counter, METH_NOARGS, NULL},
    {"remove_counter", cases_remove_counter, METH_NOARGS, NULL},
    {"installed_hook", cases_installed_hook, METH_NOARGS, NULL},
    {"function_with_closure", cases_function_with_closure, METH_VARARGS, NULL},
    {"new_frame_object", cases_new_frame_object, METH_VARARGS, NULL},
    {"has_symbol", cases_has_symbol, METH_VARARGS, NULL},
    {"library_path", cases_library_path, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
cases_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    /* A str for its repr; only ever compared by identity. */
    state->no_value = PyUnicode_FromString("<no value>");
    if (state->no_value == NULL || PyModule_AddObjectRef(module, "NO_VALUE", state->no_value) < 0) {
        return -1;
    }
#ifdef Py_DEBUG
    int debug = 1;
#else
    int debug = 0;
#endif
#ifdef Py_GIL_DISABLED
    int free_threaded = 1;
#else
    int free_threaded = 0;
#endif
    if (PyModule_AddIntConstant(module, "Py_DEBUG", debug) < 0
        || PyModule_AddIntConstant(module, "Py_GIL_DISABLED", free_threaded) < 0
        || PyModule_AddIntConstant(module, "HEADER_ABI_VERSION", LOCALSPLUS_ABI_VERSION) < 0
        || PyModule_AddIntConstant(module, "HIDDEN", LOCALSPLUS_HIDDEN) < 0
        || PyModule_AddIntConstant(module, "RAW_CELL", LOCALSPLUS_RAW_CELL) < 0
        || PyModule_AddIntConstant(module, "KIND_ARG", LOCALSPLUS_KIND_ARG) < 0
        || PyModule_AddIntConstant(module, "KIND_HIDDEN", LOCALSPLUS_KIND_HIDDEN) < 0
        || PyModule_AddIntConstant(module, "KIND_LOCAL", LOCALSPLUS_KIND_LOCAL) < 0
        || PyModule_AddIntConstant(module, "KIND_CELL", LOCALSPLUS_KIND_CELL) < 0
        || PyModule_AddIntConstant(module, "KIND_FREE", LOCALSPLUS_KIND_FREE) < 0) {
        return -1;
    }
    return 0;
}

static int
cases_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->no_value);
    return 0;
}

static int
cases_clear(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->no_value);
    return 0;
}

static PyModuleDef_Slot cases_slots[] = {
    {Py_mod_exec, cases_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef cases_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_cases",
    .m_size = sizeof(module_state),
    .m_methods = cases_methods,
    .m_slots = cases_slots,
    .m_traverse = cases_traverse,
    .m_clear = cases_clear,
};

PyMODINIT_FUNC
PyInit__cases(void)
{
    return PyModuleDef_Init(&cases_module);
}
