/* Every function that can fail, in one table: those that answer about a frame, and
 * those that do something. Asked with any arguments, good or bad, asked over and
 * over, and asked without memory.
 *
 * A frame is given as its address. A new function of localsplus.h needs one line
 * in FUNCTIONS.
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
    localsplus_hook_function hook;
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

/* What a function may do besides answering. */
typedef enum {
    NOTHING,
    ALLOCATE,
    ACT /* on the frame, or on the interpreter: asking twice is not asking once */
} effect_t;

static const char *const shapes[] = {"number", "line", "borrowed", "frame", "object", "result", "results", "arguments"};

/* Name, shape, the parameters it has, its effect, and the call. */
#define FUNCTIONS(Q)                                                                                                \
    Q(init, NUMBER, "", NOTHING, localsplus_init())                                                                 \
    Q(get_local, RESULT, "frame index result", NOTHING, localsplus_get_local(with->frame, with->index, with->result))\
    Q(get_locals, RESULTS, "frame result capacity", NOTHING,                                                        \
      localsplus_get_locals(with->frame, with->result, with->capacity))                                             \
    Q(get_slot, RESULT, "frame index flags result", NOTHING,                                                        \
      localsplus_get_slot(with->frame, with->index, with->flags, with->result))                                     \
    Q(count, NUMBER, "frame", NOTHING, localsplus_count(with->frame))                                               \
    Q(names, OBJECT, "frame", NOTHING, localsplus_names(with->frame))                                               \
    Q(kind, NUMBER, "frame index", NOTHING, localsplus_kind(with->frame, with->index))                              \
    Q(code, OBJECT, "frame", NOTHING, localsplus_code(with->frame))                                                 \
    Q(lasti, NUMBER, "frame", NOTHING, localsplus_lasti(with->frame))                                               \
    Q(index, NUMBER, "frame name", NOTHING, localsplus_index(with->frame, with->name))                              \
    Q(indexes, OBJECT, "frame name", ALLOCATE, localsplus_indexes(with->frame, with->name))                         \
    Q(get_by_name, RESULT, "frame name result", NOTHING,                                                            \
      localsplus_get_by_name(with->frame, with->name, with->result))                                                \
    Q(name_map, OBJECT, "frame", ALLOCATE, localsplus_name_map(with->frame))                                        \
    Q(dict, OBJECT, "frame", ALLOCATE, localsplus_dict(with->frame))                                                \
    Q(function, RESULT, "frame result", NOTHING, localsplus_function(with->frame, with->result))                    \
    Q(globals, OBJECT, "frame", NOTHING, localsplus_globals(with->frame))                                           \
    Q(builtins, OBJECT, "frame", NOTHING, localsplus_builtins(with->frame))                                         \
    Q(namespace, RESULT, "frame result", NOTHING, localsplus_namespace(with->frame, with->result))                  \
    Q(closure, RESULT, "frame result", NOTHING, localsplus_closure(with->frame, with->result))                      \
    Q(line, LINE, "frame", NOTHING, localsplus_line(with->frame))                                                   \
    Q(state, NUMBER, "frame", NOTHING, localsplus_state(with->frame))                                               \
    Q(is_generator, NUMBER, "frame", NOTHING, localsplus_is_generator(with->frame))                                 \
    Q(frame_object, RESULT, "frame result", NOTHING, localsplus_frame_object(with->frame, with->result))            \
    Q(parameter_count, NUMBER, "frame", NOTHING, localsplus_parameter_count(with->frame))                           \
    Q(parameter, NUMBER, "frame index", NOTHING, localsplus_parameter(with->frame, with->index))                    \
    Q(previous, FRAME, "frame result", NOTHING, localsplus_previous(with->frame, (frame_t **)with->result))         \
    Q(current_frame, FRAME, "result", NOTHING, localsplus_current_frame((frame_t **)with->result))                  \
    Q(frame_of_object, BORROWED, "frame_object", NOTHING, localsplus_frame_of_object(with->name))                   \
    Q(frame_of_generator, BORROWED, "generator", NOTHING, localsplus_frame_of_generator(with->name))                \
    Q(arguments_get, ARGUMENTS, "frame arguments", ALLOCATE,                                                        \
      localsplus_arguments_get(with->frame, (localsplus_arguments *)with->result))                                  \
    Q(hook_install, NUMBER, "function data", ACT, localsplus_hook_install(with->hook, with->name))                  \
    Q(hook_remove, NUMBER, "function data", ACT, localsplus_hook_remove(with->hook, with->name))                    \
    Q(consume, NUMBER, "frame", ACT, localsplus_consume(with->frame))                                               \
    Q(evaluate_in_place, OBJECT, "frame replacement", ACT, localsplus_evaluate_in_place(with->frame, with->name))

/* Each returns -1 for a failure. */
#define ANSWER_NUMBER(call) (void)returned; return call
#define ANSWER_LINE(call) (void)returned; return call
#define ANSWER_FRAME(call) (void)returned; return call
#define ANSWER_BORROWED(call) *returned = (PyObject *)call; return *returned == NULL ? -1 : 1
#define ANSWER_RESULT(call) (void)returned; return call
#define ANSWER_RESULTS(call) (void)returned; return call
#define ANSWER_ARGUMENTS(call) (void)returned; return call
#define ANSWER_OBJECT(call) *returned = call; (void)with; return *returned == NULL ? -1 : 1

#define DEFINE(name, shape, takes, effect, call)                                                                    \
    static Py_ssize_t ask_##name(const input_t *with, PyObject **returned)                                          \
    {                                                                                                               \
        (void)with;                                                                                                 \
        ANSWER_##shape(call);                                                                                       \
    }
FUNCTIONS(DEFINE)

typedef struct {
    const char *name;
    shape_t shape;
    const char *takes;
    effect_t effect;
    Py_ssize_t (*ask)(const input_t *, PyObject **);
} function_t;

#define ROW(name, shape, takes, effect, call) {#name, shape, takes, effect, ask_##name},
static const function_t functions[] = {FUNCTIONS(ROW)};
#define NFUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static int
takes(const function_t *question, const char *parameter)
{
    return strstr(question->takes, parameter) != NULL;
}

static const function_t *
find_function(const char *name)
{
    for (size_t i = 0; i < NFUNCTIONS; i++) {
        if (strcmp(functions[i].name, name) == 0) {
            return &functions[i];
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
release(const function_t *question, Py_ssize_t status, PyObject **result, PyObject *returned)
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

/* {name: (shape, parameters, whether it allocates)}, of those that act or of the others. */
static PyObject *
table(int acting)
{
    PyObject *all = PyDict_New();
    for (size_t i = 0; all != NULL && i < NFUNCTIONS; i++) {
        const function_t *each = &functions[i];
        if ((each->effect == ACT) != acting) {
            continue;
        }
        PyObject *allocates = each->effect == NOTHING ? Py_False : Py_True;
        PyObject *row = Py_BuildValue("ssO", shapes[each->shape], each->takes, allocates);
        if (row == NULL || PyDict_SetItemString(all, each->name, row) < 0) {
            Py_CLEAR(all);
        }
        Py_XDECREF(row);
    }
    return all;
}

static PyObject *
faults_questions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    return table(0);
}

static PyObject *
faults_actions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    return table(1);
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

/* Passes everything on. */
static PyObject *
passing(PyThreadState *thread, frame_t *frame, int throwflag, const localsplus_hook *hook)
{
    return hook->next(thread, frame, throwflag);
}

/* The exception that is set, as an object, or None. */
static PyObject *
take_exception(void)
{
    PyObject *type, *exception, *traceback;
    PyErr_Fetch(&type, &exception, &traceback);
    PyErr_NormalizeException(&type, &exception, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return exception == NULL ? Py_NewRef(Py_None) : exception;
}

/* ask(function, frame, index, flags, capacity, give_result, pending[, name]): calls it as it stands, `pending` (an
 * exception or None) being set; without a name, with NULL; without a result, with no hook. Answers (returned, what is
 * in result, exception). */
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
    const function_t *question = find_function(function);
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
    with.hook = give_result ? passing : NULL;
    if (pending != Py_None) {
        PyErr_SetObject((PyObject *)Py_TYPE(pending), pending);
    }
    PyObject *returned = NULL;
    Py_ssize_t status = question->ask(&with, &returned);
    PyObject *exception = take_exception();

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
ask_and_release(const function_t *question, input_t *with, tally_t *tally)
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
        for (size_t i = 0; status == 0 && i < NFUNCTIONS; i++) {
            const function_t *question = &functions[i];
            if (question->effect == ACT || (only != NULL && strcmp(only, question->name) != 0)) {
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

/* From now on the allocations with these numbers, counted from 1, fail. For a process with one thread. */
static void
take_memory(Py_ssize_t first, Py_ssize_t last)
{
    allocations = 0;
    first_failing = first;
    last_failing = last;
    for (size_t i = 0; i < NDOMAINS; i++) {
        PyMem_GetAllocator(domains[i], &wrapped[i]);
        PyMemAllocatorEx failing = {&wrapped[i], failing_malloc, failing_calloc, failing_realloc, passing_free};
        PyMem_SetAllocator(domains[i], &failing);
    }
}

/* How many were asked for. */
static Py_ssize_t
give_memory_back(void)
{
    for (size_t i = 0; i < NDOMAINS; i++) {
        PyMem_SetAllocator(domains[i], &wrapped[i]);
    }
    return allocations;
}

/* without_memory(function, frame, index, flags, capacity, first, last, name): calls it while the allocations with
 * these numbers, counted from 1, fail. (Allocations asked for, the size of the answer or the exception's type). */
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
    const function_t *question = find_function(function);
    if (question == NULL) {
        return NULL;
    }
    PyObject *result[ROOM], *returned = NULL;
    if (with.capacity > ROOM) {
        PyErr_SetString(PyExc_OverflowError, "capacity");
        return NULL;
    }
    with.result = result;
    with.hook = passing;
    take_memory(first, last);
    Py_ssize_t status = question->ask(&with, &returned);
    Py_ssize_t asked = give_memory_back();
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
    const function_t *question = find_function(function);
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

/* ---- in a hook, on the frame that it was given ----------------------------------- */

typedef struct {
    const function_t *function; /* NULL once it was called */
    input_t with;
    PyObject *code; /* whose frame */
    PyObject *pending;
    Py_ssize_t first, last;
    /* What came of it. */
    Py_ssize_t asked;
    PyObject *exception;
} action_t;

/* Whether a frame is as it was after this exception. */
static int
is_about_frame(PyObject *exception)
{
    PyObject *text = PyObject_Str(exception);
    const char *words = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    int names_frame = words != NULL && strstr(words, "'frame'") != NULL;
    Py_XDECREF(text);
    return PyErr_GivenExceptionMatches(exception, PyExc_RuntimeError)
           || (PyErr_GivenExceptionMatches(exception, PyExc_ValueError) && names_frame);
}

static PyObject *
acting(PyThreadState *thread, frame_t *frame, int throwflag, const localsplus_hook *hook)
{
    action_t *action = hook->data;
    PyObject *code = throwflag == 0 && action->function != NULL ? localsplus_code(frame) : NULL;
    Py_XDECREF(code);
    if (code == NULL || code != action->code) {
        return hook->next(thread, frame, throwflag);
    }
    const function_t *function = action->function;
    action->function = NULL;
    action->with.frame = frame;
    if (action->pending != Py_None) {
        PyErr_SetObject((PyObject *)Py_TYPE(action->pending), action->pending);
    }
    PyObject *returned = NULL;
    take_memory(action->first, action->last);
    Py_ssize_t status = function->ask(&action->with, &returned);
    action->asked = give_memory_back();
    action->exception = take_exception();
    if (status >= 0) {
        return returned == NULL ? Py_NewRef(Py_None) : returned;
    }
    if (is_about_frame(action->exception)) {
        return hook->next(thread, frame, 0);
    }
    PyErr_SetObject((PyObject *)Py_TYPE(action->exception), action->exception);
    return NULL;
}

/* act(function, replacement, pending, first, last, code, call): calls `call`, in which a frame of `code` is run, on
 * which a hook calls the function while these allocations fail (as in without_memory). A replacement of () is NULL.
 * The hook does with the frame what the header says then. (Allocations asked for, the exception that was set
 * afterwards or None, what `call` returned or NULL's stand-in, the exception). */
static PyObject *
faults_act(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *function;
    action_t action = {0};
    PyObject *call;
    if (!PyArg_ParseTuple(args, "sOOnnOO", &function, &action.with.name, &action.pending, &action.first, &action.last,
                          &action.code, &call)) {
        return NULL;
    }
    action.function = find_function(function);
    if (PyTuple_Check(action.with.name)) {
        action.with.name = NULL;
    }
    if (action.function == NULL || localsplus_hook_install(acting, &action) < 0) {
        return NULL;
    }
    PyObject *answer = PyObject_CallNoArgs(call);
    PyObject *raised = take_exception();
    if (localsplus_hook_remove(acting, &action) != 1 || action.function != NULL) {
        PyErr_SetString(PyExc_AssertionError, "the hook has not seen the frame");
        return NULL;
    }
    return Py_BuildValue("nNNN", action.asked, action.exception, answer == NULL ? Py_NewRef(Py_NotImplemented) : answer,
                         raised);
}

/* ---- the module --------------------------------------------------------------------- */

static PyMethodDef faults_methods[] = {
    {"questions", faults_questions, METH_NOARGS, NULL},
    {"actions", faults_actions, METH_NOARGS, NULL},
    {"act", faults_act, METH_VARARGS, NULL},
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
