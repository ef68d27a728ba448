/* Every function that answers about a frame, in one table: asked with any
 * arguments, good or bad, asked over and over, and asked without memory.
 *
 * A frame is given as its address. A new function of localsplus.h needs one line
 * in QUESTIONS.
 */
#define PY_SSIZE_T_CLEAN
#include "localsplus.h"

#include <string.h>

typedef struct _PyInterpreterFrame frame_t;

typedef struct {
    frame_t *frame;
    Py_ssize_t index;
    unsigned flags;
    PyObject *name;
    Py_ssize_t capacity;
    PyObject **result;
} input_t;

/* What a function hands out, and where. */
typedef enum {
    NUMBER,   /* nothing but its return value */
    LINE,     /* the same, and -1 need not be a failure */
    BORROWED, /* returns a frame */
    FRAME,    /* a frame in *result, if it returns 1 */
    OBJECT,   /* returns a new reference */
    RESULT,   /* one new reference in *result, if it returns 1 */
    RESULTS,  /* that many new references in result, or NULLs, as it returns */
    ARGUMENTS /* a localsplus_arguments in *result */
} shape_t;

static const char *const shapes[] = {"number", "line", "borrowed", "frame", "object", "result", "results", "arguments"};

/* Name, shape, the parameters it has, whether it may allocate, and the call. */
#define QUESTIONS(Q)                                                                                                \
    Q(init, NUMBER, "", 0, localsplus_init())                                                                       \
    Q(get_local, RESULT, "frame index result", 0, localsplus_get_local(with->frame, with->index, with->result))     \
    Q(get_locals, RESULTS, "frame result capacity", 0,                                                              \
      localsplus_get_locals(with->frame, with->result, with->capacity))                                             \
    Q(get_slot, RESULT, "frame index flags result", 0,                                                              \
      localsplus_get_slot(with->frame, with->index, with->flags, with->result))                                     \
    Q(count, NUMBER, "frame", 0, localsplus_count(with->frame))                                                     \
    Q(names, OBJECT, "frame", 0, localsplus_names(with->frame))                                                     \
    Q(kind, NUMBER, "frame index", 0, localsplus_kind(with->frame, with->index))                                    \
    Q(code, OBJECT, "frame", 0, localsplus_code(with->frame))                                                       \
    Q(lasti, NUMBER, "frame", 0, localsplus_lasti(with->frame))                                                     \
    Q(index, NUMBER, "frame name", 0, localsplus_index(with->frame, with->name))                                    \
    Q(indexes, OBJECT, "frame name", 1, localsplus_indexes(with->frame, with->name))                                \
    Q(get_by_name, RESULT, "frame name result", 0,                                                                  \
      localsplus_get_by_name(with->frame, with->name, with->result))                                                \
    Q(name_map, OBJECT, "frame", 1, localsplus_name_map(with->frame))                                               \
    Q(dict, OBJECT, "frame", 1, localsplus_dict(with->frame))                                                       \
    Q(function, RESULT, "frame result", 0, localsplus_function(with->frame, with->result))                          \
    Q(globals, OBJECT, "frame", 0, localsplus_globals(with->frame))                                                 \
    Q(builtins, OBJECT, "frame", 0, localsplus_builtins(with->frame))                                               \
    Q(namespace, RESULT, "frame result", 0, localsplus_namespace(with->frame, with->result))                        \
    Q(closure, RESULT, "frame result", 0, localsplus_closure(with->frame, with->result))                            \
    Q(line, LINE, "frame", 0, localsplus_line(with->frame))                                                         \
    Q(state, NUMBER, "frame", 0, localsplus_state(with->frame))                                                     \
    Q(is_generator, NUMBER, "frame", 0, localsplus_is_generator(with->frame))                                       \
    Q(frame_object, RESULT, "frame result", 0, localsplus_frame_object(with->frame, with->result))                  \
    Q(parameter_count, NUMBER, "frame", 0, localsplus_parameter_count(with->frame))                                 \
    Q(parameter, NUMBER, "frame index", 0, localsplus_parameter(with->frame, with->index))                          \
    Q(previous, FRAME, "frame result", 0, localsplus_previous(with->frame, (frame_t **)with->result))               \
    Q(current_frame, FRAME, "result", 0, localsplus_current_frame((frame_t **)with->result))                        \
    Q(frame_of_object, BORROWED, "frame_object", 0, localsplus_frame_of_object(with->name))                         \
    Q(frame_of_generator, BORROWED, "generator", 0, localsplus_frame_of_generator(with->name))                      \
    Q(arguments_get, ARGUMENTS, "frame arguments", 1,                                                               \
      localsplus_arguments_get(with->frame, (localsplus_arguments *)with->result))

/* Each returns -1 for a failure. */
#define ANSWER_NUMBER(call) (void)returned; return call
#define ANSWER_LINE(call) (void)returned; return call
#define ANSWER_FRAME(call) (void)returned; return call
#define ANSWER_BORROWED(call) *returned = (PyObject *)call; return *returned == NULL ? -1 : 1
#define ANSWER_RESULT(call) (void)returned; return call
#define ANSWER_RESULTS(call) (void)returned; return call
#define ANSWER_ARGUMENTS(call) (void)returned; return call
#define ANSWER_OBJECT(call) *returned = call; (void)with; return *returned == NULL ? -1 : 1

#define DEFINE(name, shape, takes, allocates, call)                                                                 \
    static Py_ssize_t ask_##name(const input_t *with, PyObject **returned)                                          \
    {                                                                                                               \
        (void)with;                                                                                                 \
        ANSWER_##shape(call);                                                                                       \
    }
QUESTIONS(DEFINE)

typedef struct {
    const char *name;
    shape_t shape;
    const char *takes;
    int allocates;
    Py_ssize_t (*ask)(const input_t *, PyObject **);
} question_t;

#define ROW(name, shape, takes, allocates, call) {#name, shape, takes, allocates, ask_##name},
static const question_t questions[] = {QUESTIONS(ROW)};
#define NQUESTIONS (sizeof(questions) / sizeof(questions[0]))

static int
takes(const question_t *question, const char *parameter)
{
    return strstr(question->takes, parameter) != NULL;
}

static const question_t *
find_question(const char *name)
{
    for (size_t i = 0; i < NQUESTIONS; i++) {
        if (strcmp(questions[i].name, name) == 0) {
            return &questions[i];
        }
    }
    PyErr_Format(PyExc_LookupError, "no function %s", name);
    return NULL;
}

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

/* What a result variable holds before each call. */
static char sentinel_object;
#define SENTINEL ((PyObject *)&sentinel_object)

/* Releases what was handed out. */
static void
release(const question_t *question, Py_ssize_t status, PyObject **result, PyObject *returned)
{
    if (status < 0) {
        return;
    }
    switch (question->shape) {
    case NUMBER:
    case LINE:
    case BORROWED:
    case FRAME:
        break;
    case OBJECT:
        Py_DECREF(returned);
        break;
    case RESULT:
        Py_XDECREF(result[0]);
        break;
    case RESULTS:
        for (Py_ssize_t i = 0; i < status; i++) {
            Py_XDECREF(result[i]);
        }
        break;
    case ARGUMENTS:
        localsplus_arguments_clear((localsplus_arguments *)result);
        break;
    }
}

/* {name: (shape, parameters, whether it allocates)} */
static PyObject *
faults_questions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    PyObject *all = PyDict_New();
    for (size_t i = 0; all != NULL && i < NQUESTIONS; i++) {
        const question_t *each = &questions[i];
        PyObject *row = Py_BuildValue("ssO", shapes[each->shape], each->takes, each->allocates ? Py_True : Py_False);
        if (row == NULL || PyDict_SetItemString(all, each->name, row) < 0) {
            Py_CLEAR(all);
        }
        Py_XDECREF(row);
    }
    return all;
}

/* ---- once, with any arguments ------------------------------------------------ */

enum { ROOM = 64 };

/* (value,) for an object, None for NULL, "not written", "a frame". */
static PyObject *
describe(PyObject *value, shape_t shape)
{
    if ((shape == BORROWED || shape == FRAME) && value != NULL && value != SENTINEL) {
        return PyUnicode_FromString("a frame");
    }
    if (value == NULL) {
        Py_RETURN_NONE;
    }
    return value == SENTINEL ? PyUnicode_FromString("not written") : Py_BuildValue("(N)", value);
}

/* ask(function, frame, index, flags, capacity, give_result, pending[, name]): calls it as it stands, `pending` (an
 * exception or None) being set; without a name, with NULL. Answers (returned, what is in result, exception). */
static PyObject *
faults_ask(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *function;
    input_t with = {0};
    int give_result;
    PyObject *pending;
    if (!PyArg_ParseTuple(args, "sO&nInpO|O", &function, address_converter, &with.frame, &with.index, &with.flags,
                          &with.capacity, &give_result, &pending, &with.name)) {
        return NULL;
    }
    const question_t *question = find_question(function);
    if (question == NULL) {
        return NULL;
    }
    PyObject *result[ROOM + 1];
    for (size_t i = 0; i <= ROOM; i++) {
        result[i] = SENTINEL;
    }
    if (with.capacity > ROOM) {
        PyErr_SetString(PyExc_OverflowError, "capacity");
        return NULL;
    }
    with.result = give_result ? result : NULL;
    if (pending != Py_None) {
        PyErr_SetObject((PyObject *)Py_TYPE(pending), pending);
    }
    PyObject *returned = NULL;
    Py_ssize_t status = question->ask(&with, &returned);

    PyObject *type, *exception, *traceback;
    PyErr_Fetch(&type, &exception, &traceback);
    PyErr_NormalizeException(&type, &exception, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    if (exception == NULL) {
        exception = Py_NewRef(Py_None);
    }

    size_t used = question->shape == RESULTS ? (size_t)(with.capacity > 0 ? with.capacity : 0)
                  : question->shape == ARGUMENTS ? 3
                                                 : 1;
    if (result[used] != SENTINEL) {
        Py_DECREF(exception);
        PyErr_SetString(PyExc_AssertionError, "written past the result");
        return NULL;
    }
    PyObject *answers = PyTuple_New((Py_ssize_t)used);
    if (answers == NULL) {
        Py_DECREF(exception);
        return NULL;
    }
    if (question->shape == OBJECT || question->shape == BORROWED) {
        result[0] = returned;
    }
    if (question->shape == ARGUMENTS && status == 0) {
        release(question, status, result, NULL);
    }
    for (size_t i = 0; i < used; i++) {
        PyObject *value = describe(result[i], question->shape);
        if (value == NULL) {
            Py_DECREF(answers);
            Py_DECREF(exception);
            return NULL;
        }
        PyTuple_SET_ITEM(answers, (Py_ssize_t)i, value);
    }
    return Py_BuildValue("nNN", status, answers, exception);
}

/* ---- over and over --------------------------------------------------------------- */

typedef struct {
    Py_ssize_t answers;
    Py_ssize_t failures;
} tally_t;

static int
ask_and_release(const question_t *question, input_t *with, tally_t *tally)
{
    PyObject *returned = NULL;
    Py_ssize_t status = question->ask(with, &returned);
    if (status == -1 && (question->shape != LINE || PyErr_Occurred())) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_AssertionError, "%s failed without an exception", question->name);
            return -1;
        }
        if (!PyErr_ExceptionMatches(PyExc_LookupError) && !PyErr_ExceptionMatches(PyExc_ValueError)
            && !PyErr_ExceptionMatches(PyExc_TypeError)) {
            return -1;
        }
        PyErr_Clear();
        tally->failures++;
        return 0;
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    release(question, status, with->result, returned);
    tally->answers += question->shape == RESULTS ? status : 1;
    return 0;
}

/* ask_everything(frame, name, times[, function]): all functions (or that one) about every slot and with all flags;
 * (answers, failures). What fails is IndexError, KeyError, ValueError or TypeError: a frame that has started has no arguments, and the name
 * is no frame object. */
static PyObject *
faults_ask_everything(PyObject *Py_UNUSED(module), PyObject *args)
{
    input_t with = {0};
    Py_ssize_t times;
    const char *only = NULL;
    if (!PyArg_ParseTuple(args, "O&On|s", address_converter, &with.frame, &with.name, &times, &only)) {
        return NULL;
    }
    Py_ssize_t count = localsplus_count(with.frame);
    if (count < 0) {
        return NULL;
    }
    PyObject **scratch = PyMem_New(PyObject *, (size_t)count + 3);
    if (scratch == NULL) {
        return PyErr_NoMemory();
    }
    with.result = scratch;
    with.capacity = count;
    tally_t tally = {0};
    int status = 0;
    while (status == 0 && times-- > 0) {
        for (size_t i = 0; status == 0 && i < NQUESTIONS; i++) {
            const question_t *question = &questions[i];
            if (only != NULL && strcmp(only, question->name) != 0) {
                continue;
            }
            Py_ssize_t indexes = takes(question, "index") ? count : 1;
            unsigned flags = takes(question, "flags") ? 4 : 1;
            for (with.index = 0; status == 0 && with.index < indexes; with.index++) {
                for (with.flags = 0; status == 0 && with.flags < flags; with.flags++) {
                    status = ask_and_release(question, &with, &tally);
                }
            }
        }
    }
    PyMem_Free(scratch);
    return status < 0 ? NULL : Py_BuildValue("nn", tally.answers, tally.failures);
}

/* take(frame): the frame's arguments, as a capsule that owns them, for clear(). */
static PyObject *
faults_take(PyObject *Py_UNUSED(module), PyObject *arg)
{
    frame_t *frame;
    if (!address_converter(arg, &frame)) {
        return NULL;
    }
    localsplus_arguments *arguments = PyMem_Malloc(sizeof(*arguments));
    if (arguments == NULL) {
        return PyErr_NoMemory();
    }
    if (localsplus_arguments_get(frame, arguments) < 0) {
        PyMem_Free(arguments);
        return NULL;
    }
    return PyCapsule_New(arguments, "localsplus_arguments", NULL);
}

static PyObject *
faults_clear(PyObject *Py_UNUSED(module), PyObject *arg)
{
    localsplus_arguments *arguments = PyCapsule_GetPointer(arg, "localsplus_arguments");
    if (arguments == NULL) {
        return NULL;
    }
    localsplus_arguments_clear(arguments);
    PyMem_Free(arguments);
    Py_RETURN_NONE;
}

/* ---- without memory ---------------------------------------------------------------- */

static const PyMemAllocatorDomain domains[] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
#define NDOMAINS (sizeof(domains) / sizeof(domains[0]))
static PyMemAllocatorEx wrapped[NDOMAINS];
static Py_ssize_t allocations, first_failing, last_failing;

static int
fails(void)
{
    allocations++;
    return allocations >= first_failing && allocations <= last_failing;
}

static void *
failing_malloc(void *ctx, size_t size)
{
    PyMemAllocatorEx *allocator = ctx;
    return fails() ? NULL : allocator->malloc(allocator->ctx, size);
}

static void *
failing_calloc(void *ctx, size_t nelem, size_t elsize)
{
    PyMemAllocatorEx *allocator = ctx;
    return fails() ? NULL : allocator->calloc(allocator->ctx, nelem, elsize);
}

static void *
failing_realloc(void *ctx, void *ptr, size_t size)
{
    PyMemAllocatorEx *allocator = ctx;
    return fails() ? NULL : allocator->realloc(allocator->ctx, ptr, size);
}

static void
passing_free(void *ctx, void *ptr)
{
    PyMemAllocatorEx *allocator = ctx;
    allocator->free(allocator->ctx, ptr);
}

/* without_memory(function, frame, index, flags, capacity, first, last, name): calls it while the allocations with
 * these numbers, counted from 1, fail. (Allocations asked for, the size of the answer or the exception's type). For a
 * process with one thread. */
static PyObject *
faults_without_memory(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *function;
    input_t with = {0};
    Py_ssize_t first, last;
    if (!PyArg_ParseTuple(args, "sO&nInnnO", &function, address_converter, &with.frame, &with.index, &with.flags,
                          &with.capacity, &first, &last, &with.name)) {
        return NULL;
    }
    const question_t *question = find_question(function);
    if (question == NULL) {
        return NULL;
    }
    PyObject *result[ROOM], *returned = NULL;
    if (with.capacity > ROOM) {
        PyErr_SetString(PyExc_OverflowError, "capacity");
        return NULL;
    }
    with.result = result;
    allocations = 0;
    first_failing = first;
    last_failing = last;
    for (size_t i = 0; i < NDOMAINS; i++) {
        PyMem_GetAllocator(domains[i], &wrapped[i]);
        PyMemAllocatorEx failing = {&wrapped[i], failing_malloc, failing_calloc, failing_realloc, passing_free};
        PyMem_SetAllocator(domains[i], &failing);
    }
    Py_ssize_t status = question->ask(&with, &returned);
    Py_ssize_t asked = allocations;
    for (size_t i = 0; i < NDOMAINS; i++) {
        PyMem_SetAllocator(domains[i], &wrapped[i]);
    }
    PyObject *type, *exception, *traceback;
    PyErr_Fetch(&type, &exception, &traceback);
    Py_XDECREF(exception);
    Py_XDECREF(traceback);
    if ((status == -1) != (type != NULL) && question->shape != LINE) {
        Py_XDECREF(type);
        PyErr_Format(PyExc_AssertionError, "%s answered %zd with %s exception", function, status,
                     status == -1 ? "no" : "an");
        return NULL;
    }
    Py_ssize_t size = question->shape == OBJECT && status > 0         ? PyObject_Size(returned)
                      : question->shape == ARGUMENTS && status == 0 ? PyVectorcall_NARGS((size_t)result[1])
                                                                    : status;
    if (type == NULL && question->shape == OBJECT && PyErr_Occurred()) {
        PyErr_Clear(); /* a code object has no size */
    }
    release(question, status, result, returned);
    return type == NULL ? Py_BuildValue("nn", asked, size) : Py_BuildValue("nN", asked, type);
}

static struct {
    int asked;
    Py_ssize_t status;
    PyObject *type; /* of the exception, or NULL */
} quiet;

/* quietly(function, frame, index, flags, capacity, name): calls it, and needs no memory itself. For somebody else's
 * failing allocators, who asks outcome() when they are gone. */
static PyObject *
faults_quietly(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *function;
    input_t with = {0};
    PyObject *result[ROOM], *returned = NULL;
    if (!PyArg_ParseTuple(args, "sO&nInO", &function, address_converter, &with.frame, &with.index, &with.flags,
                          &with.capacity, &with.name)) {
        return NULL;
    }
    const question_t *question = find_question(function);
    if (question == NULL) {
        return NULL;
    }
    with.result = result;
    quiet.asked = 1;
    quiet.status = question->ask(&with, &returned);
    PyObject *exception, *traceback;
    PyErr_Fetch(&quiet.type, &exception, &traceback);
    Py_XDECREF(exception);
    Py_XDECREF(traceback);
    release(question, quiet.status, result, returned);
    Py_RETURN_NONE;
}

/* (status, the exception's type or None) of quietly(), or None if it has not called anything. */
static PyObject *
faults_outcome(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    if (!quiet.asked) {
        Py_RETURN_NONE;
    }
    quiet.asked = 0;
    return Py_BuildValue("nN", quiet.status, quiet.type == NULL ? Py_NewRef(Py_None) : quiet.type);
}

/* ---- the module --------------------------------------------------------------------- */

static PyMethodDef faults_methods[] = {
    {"questions", faults_questions, METH_NOARGS, NULL},
    {"ask", faults_ask, METH_VARARGS, NULL},
    {"ask_everything", faults_ask_everything, METH_VARARGS, NULL},
    {"take", faults_take, METH_O, NULL},
    {"clear", faults_clear, METH_O, NULL},
    {"quietly", faults_quietly, METH_VARARGS, NULL},
    {"outcome", faults_outcome, METH_NOARGS, NULL},
    {"without_memory", faults_without_memory, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot faults_slots[] = {
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef faults_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_faults",
    .m_methods = faults_methods,
    .m_slots = faults_slots,
};

PyMODINIT_FUNC PyInit__faults(void);

PyMODINIT_FUNC
PyInit__faults(void)
{
    return PyModuleDef_Init(&faults_module);
}
