/* Times the ways to take a frame's locals, interleaved, in one process. */
#define PY_SSIZE_T_CLEAN
#include "peers.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "localsplus.h"

#define SLOTS 512

static struct _PyInterpreterFrame *frame;
static PyFrameObject *frame_object; /* of a started frame */
static Py_ssize_t slot;             /* for the single calls */
static PyObject *slot_name;
static PyObject *taken[SLOTS];

static inline void
drop(Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(taken[i]);
    }
}

/* Of the Rust library beside this one. */
void rust_set_frame(struct _PyInterpreterFrame *frame);
void rust_all(unsigned times);
void rust_one(size_t slot, unsigned times);

static void all_localsplus(void) { drop(localsplus_get_locals(frame, taken, SLOTS)); }
static void all_plain(void) { drop(plain_get_locals(frame, taken, SLOTS)); }
static void all_floor(void) { drop(floor_get_locals(frame, taken, SLOTS)); }

static void all_mapping(void) { mapping_borrowed(frame); }
static void all_mapping_strong(void) { mapping_strong(frame); }

static void
all_dict(void)
{
    PyObject *locals = PyFrame_GetLocals(frame_object);
    PyObject *dict = PyObject_CallOneArg((PyObject *)&PyDict_Type, locals);
    Py_DECREF(dict);
    Py_DECREF(locals);
}

#if PY_VERSION_HEX >= 0x030C0000
static void
one_getvar(void)
{
    Py_XDECREF(PyFrame_GetVar(frame_object, slot_name));
}
#endif

static void
one_localsplus(void)
{
    PyObject *value;
    localsplus_get_local(frame, slot, &value);
    Py_XDECREF(value);
}

static void
one_plain(void)
{
    PyObject *value;
    plain_get_local(frame, slot, &value);
    Py_XDECREF(value);
}

static void
each_localsplus(void)
{
    Py_ssize_t count = code_of(frame)->co_nlocalsplus;
    for (Py_ssize_t i = 0; i < count; i++) {
        localsplus_get_local(frame, i, &taken[i]);
    }
    drop(count);
}

static void
each_plain(void)
{
    Py_ssize_t count = code_of(frame)->co_nlocalsplus;
    for (Py_ssize_t i = 0; i < count; i++) {
        plain_get_local(frame, i, &taken[i]);
    }
    drop(count);
}

/* Each has a loop of its own, so that the call in it is a direct one. */
#define LOOP(name) \
    static void name##_loop(int times) \
    { \
        for (int i = 0; i < times; i++) { \
            name(); \
        } \
    }
LOOP(all_localsplus)
LOOP(all_plain)
LOOP(all_floor)
LOOP(all_mapping)
LOOP(all_mapping_strong)
LOOP(all_dict)
LOOP(each_localsplus)
LOOP(each_plain)
LOOP(one_localsplus)
LOOP(one_plain)
#if PY_VERSION_HEX >= 0x030C0000
LOOP(one_getvar)
#endif
static void all_rust_loop(int times) { rust_all((unsigned)times); }
static void one_rust_loop(int times) { rust_one((size_t)slot, (unsigned)times); }

static const struct way {
    const char *name;
    void (*run)(int times);
} ways[] = {
    {"all_localsplus", all_localsplus_loop},
    {"all_plain", all_plain_loop},
    {"all_floor", all_floor_loop},
    {"all_mapping", all_mapping_loop},
    {"all_mapping_strong", all_mapping_strong_loop},
    {"all_dict", all_dict_loop},
    {"each_localsplus", each_localsplus_loop},
    {"each_plain", each_plain_loop},
    {"one_localsplus", one_localsplus_loop},
    {"one_plain", one_plain_loop},
#if PY_VERSION_HEX >= 0x030C0000
    {"one_getvar", one_getvar_loop},
#endif
    {"all_rust", all_rust_loop},
    {"one_rust", one_rust_loop},
};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int
by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* {name: (minimum, median)} in nanoseconds, of the ways in `names`. */
static PyObject *
measure(PyObject *names, int rounds, int repeat)
{
    double *times = malloc(sizeof(double) * (size_t)rounds * WAYS);
    int wanted[WAYS];
    rust_set_frame(frame);
    for (int way = 0; way < WAYS; way++) {
        PyObject *name = PyUnicode_FromString(ways[way].name);
        wanted[way] = PySequence_Contains(names, name);
        Py_DECREF(name);
    }
    for (int round = 0; round < rounds; round++) {
        for (int way = 0; way < WAYS; way++) {
            if (wanted[way]) {
                double start = now();
                ways[way].run(repeat);
                times[way * rounds + round] = (now() - start) / repeat;
            }
        }
    }
    PyObject *result = PyDict_New();
    for (int way = 0; way < WAYS; way++) {
        if (wanted[way]) {
            double *mine = times + way * rounds;
            qsort(mine, (size_t)rounds, sizeof(double), by_size);
            PyObject *pair = Py_BuildValue("dd", mine[0], mine[rounds / 2]);
            PyDict_SetItemString(result, ways[way].name, pair);
            Py_DECREF(pair);
        }
    }
    free(times);
    return result;
}

/* ---- the frame that has not started ------------------------------------------ */

static PyObject *wanted_code, *wanted_names, *wanted_result;
static int wanted_rounds, wanted_repeat;

static PyObject *
measuring_hook(PyThreadState *tstate, struct _PyInterpreterFrame *entered, int throwflag)
{
    if (wanted_code != NULL && (PyObject *)code_of(entered) == wanted_code) {
        wanted_code = NULL;
        frame = entered;
        wanted_result = measure(wanted_names, wanted_rounds, wanted_repeat);
    }
    return _PyEval_EvalFrameDefault(tstate, entered, throwflag);
}

/* at_entry(function, args, names, slot, rounds, repeat) */
static PyObject *
at_entry(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *function, *arguments;
    if (!PyArg_ParseTuple(args, "OO!Onii", &function, &PyTuple_Type, &arguments, &wanted_names, &slot, &wanted_rounds,
                          &wanted_repeat)) {
        return NULL;
    }
    wanted_code = PyFunction_GetCode(function);
    wanted_result = NULL;
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyInterpreterState_SetEvalFrameFunc(interpreter, measuring_hook);
    PyObject *ignored = PyObject_CallObject(function, arguments);
    _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
    if (ignored == NULL) {
        Py_XDECREF(wanted_result);
        return NULL;
    }
    Py_DECREF(ignored);
    return wanted_result;
}

/* running(names, slot, rounds, repeat): about the caller's frame */
static PyObject *
running(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *names;
    int rounds, repeat;
    if (!PyArg_ParseTuple(args, "Onii", &names, &slot, &rounds, &repeat)) {
        return NULL;
    }
    frame_object = PyEval_GetFrame();
    frame = frame_of_frame_object(frame_object);
    PyObject *slot_names = localsplus_names(frame);
    slot_name = PyTuple_GetItem(slot_names, slot);
    PyObject *result = measure(names, rounds, repeat);
    Py_DECREF(slot_names);
    return result;
}

/* ---- what a hook adds to a call ---------------------------------------------- */

static PyObject *
pass_hook(PyThreadState *tstate, struct _PyInterpreterFrame *entered, int throwflag)
{
    return _PyEval_EvalFrameDefault(tstate, entered, throwflag);
}

static PyObject *
reading_hook(PyThreadState *tstate, struct _PyInterpreterFrame *entered, int throwflag)
{
    PyObject *values[64];
    Py_ssize_t count = localsplus_get_locals(entered, values, 64);
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(values[i]);
    }
    return _PyEval_EvalFrameDefault(tstate, entered, throwflag);
}

static PyObject *
mapping_hook(PyThreadState *tstate, struct _PyInterpreterFrame *entered, int throwflag)
{
    mapping_strong(entered);
    return _PyEval_EvalFrameDefault(tstate, entered, throwflag);
}

static const struct hook {
    const char *name;
    _PyFrameEvalFunction function;
} hooks[] = {
    {"none", _PyEval_EvalFrameDefault}, {"pass", pass_hook}, {"localsplus", reading_hook}, {"mapping", mapping_hook}};

/* hooked(function, args, rounds): {hook: (minimum, median)} in nanoseconds */
static PyObject *
hooked(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *function, *arguments;
    int rounds;
    if (!PyArg_ParseTuple(args, "OO!i", &function, &PyTuple_Type, &arguments, &rounds)) {
        return NULL;
    }
    double times[4][1024];
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    for (int round = 0; round < rounds && round < 1024; round++) {
        for (int h = 0; h < 4; h++) {
            _PyInterpreterState_SetEvalFrameFunc(interpreter, hooks[h].function);
            double start = now();
            PyObject *ignored = PyObject_CallObject(function, arguments);
            times[h][round] = now() - start;
            _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
            if (ignored == NULL) {
                return NULL;
            }
            Py_DECREF(ignored);
        }
    }
    PyObject *result = PyDict_New();
    for (int h = 0; h < 4; h++) {
        qsort(times[h], (size_t)rounds, sizeof(double), by_size);
        PyObject *pair = Py_BuildValue("dd", times[h][0], times[h][rounds / 2]);
        PyDict_SetItemString(result, hooks[h].name, pair);
        Py_DECREF(pair);
    }
    return result;
}

static PyObject *
init(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    double start = now();
    if (localsplus_init() < 0) {
        return NULL;
    }
    return PyFloat_FromDouble(now() - start);
}

static PyObject *
provider(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyUnicode_FromString(localsplus_provider());
}

static PyMethodDef methods[] = {
    {"at_entry", at_entry, METH_VARARGS, NULL}, {"running", running, METH_VARARGS, NULL},
    {"hooked", hooked, METH_VARARGS, NULL},     {"init", init, METH_NOARGS, NULL},
    {"provider", provider, METH_NOARGS, NULL},  {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_bench", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__bench(void)
{
    return PyModule_Create(&definition);
}
