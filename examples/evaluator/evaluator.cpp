// A compiler of Python functions in miniature: what TorchDynamo and its kin do
// with a PEP 523 hook, without a compiler. It replaces a function by a specialised
// one whenever the values in its frame, read by slot index before the function
// starts, meet the conditions that the specialised one was made for (the guards).
//
//     evaluator.optimize(fn, specialised, types={"x": int}, values={"mode": "fast"})
//     fn(1, mode="fast")     # calls specialised(1, "fast")
//     fn(1.0, mode="fast")   # calls fn
//     evaluator.counts(fn)   # (1, 1): hits, misses
//
// specialised gets the function's parameters in CPython's order (positional,
// keyword-only, then the *args tuple and the **kwargs dict), then its free
// variables, all as positional arguments. A parameter or free variable without a
// value (a free variable that is not bound yet) is a miss.
//
// Functions are told apart by their code object, so that all closures made by one
// def are optimised together; a guard on a free variable tells them apart. Of a
// generator, coroutine or async generator function, the call that makes the
// generator is replaced, never a resumption.
//
// What tools (sys.settrace, sys.setprofile, sys.monitoring) see of a hit: the
// specialised function, nothing of the original one.
#define PY_SSIZE_T_CLEAN
#include <localsplus.hpp>
#include <localsplus_compat.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace {

using localsplus::object;

// The value in a slot must be of exactly this type.
struct type_guard {
    Py_ssize_t index;
    object type;
};

// The value in a slot must be this one.
struct value_guard {
    Py_ssize_t index;
    object value;
    bool compare_equal;  // else by identity
};

struct specialisation {
    object code;
    object function;
    std::vector<Py_ssize_t> indexes;  // of the slots that are handed to `function`
    std::vector<type_guard> types;
    std::vector<value_guard> values;
    std::atomic<std::uint64_t> hits{0};
    std::atomic<std::uint64_t> misses{0};
};

// Found by code object, in every call of every function; written rarely. No Python
// code runs under the lock, so that it cannot be taken twice by one thread, and
// nothing that it is held for waits for another thread.
std::shared_mutex lock;
// Never destroyed: at the end of the process there is no interpreter to release
// its references in.
auto &specialisations = *new std::unordered_map<PyObject *, std::shared_ptr<specialisation>>;

// What was installed before us; frames that we do not replace go there.
std::atomic<_PyFrameEvalFunction> previous{_PyEval_EvalFrameDefault};

// What an original function is unwound with. Never seen by Python code.
PyObject *Replaced;

std::shared_ptr<specialisation> find(PyObject *code)
{
    std::shared_lock<std::shared_mutex> guard(lock);
    auto found = specialisations.find(code);
    return found == specialisations.end() ? nullptr : found->second;
}

// Whether the frame has run nothing yet. A resumed generator's has: its function
// has begun by making the generator.
bool is_unstarted(localsplus::frame frame)
{
    int lasti = frame.lasti();
    // Since 3.13 the interpreter keeps the instruction that comes next.
    return PY_VERSION_HEX >= 0x030D0000 ? lasti == 0 : lasti < 0;
}

// Whether the values in the frame are what the specialised function was made for.
// Runs no Python code.
bool guards_hold(const specialisation &special, localsplus::frame frame)
{
    for (const type_guard &guard : special.types) {
        object value = frame.get_local(guard.index);
        if (!value || reinterpret_cast<PyObject *>(Py_TYPE(value.get())) != guard.type.get()) {
            return false;
        }
    }
    for (const value_guard &guard : special.values) {
        object value = frame.get_local(guard.index);
        if (value.get() == guard.value.get()) {
            continue;
        }
        if (!value || !guard.compare_equal || Py_TYPE(value.get()) != Py_TYPE(guard.value.get())) {
            return false;
        }
        int equal = PyObject_RichCompareBool(value.get(), guard.value.get(), Py_EQ);
        if (equal < 0) {
            throw localsplus::error();
        }
        if (equal == 0) {
            return false;
        }
    }
    return true;
}

// Reads the arguments of the specialised function; false if one has no value.
bool read_arguments(const specialisation &special, localsplus::frame frame, std::vector<object> &arguments)
{
    arguments.reserve(special.indexes.size());
    for (Py_ssize_t index : special.indexes) {
        object value = frame.get_local(index);
        if (!value) {
            return false;
        }
        arguments.push_back(std::move(value));
    }
    return true;
}

// Disposes of a frame that will not run. True, or false with an exception set.
bool dispose(PyThreadState *tstate, struct _PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX < 0x030C0000
    // The interpreter clears the frame once the hook has returned.
    (void)tstate, (void)frame;
    return true;
#else
    // Since 3.12 the hook owns the frame. Resumed with an exception, the
    // interpreter unwinds it before its first instruction, and clears and pops it
    // on the way out. Tools are not to see a function fail that nobody called.
    PyThreadState_EnterTracing(tstate);
    PyErr_SetNone(Replaced);
    PyObject *result = _PyEval_EvalFrameDefault(tstate, frame, 1);
    PyThreadState_LeaveTracing(tstate);
    if (result != nullptr) {
        // Code that catches exceptions before its first instruction: not
        // something that the compiler makes.
        Py_DECREF(result);
        PyErr_SetString(PyExc_SystemError, "evaluator: a replaced function ran all the same");
        return false;
    }
    if (!PyErr_ExceptionMatches(Replaced)) {
        // The frame is gone, but something else went wrong: RecursionError, say.
        return false;
    }
    PyErr_Clear();
    return true;
#endif
}

PyObject *call(const specialisation &special, const std::vector<object> &arguments)
{
    std::vector<PyObject *> pointers;
    pointers.reserve(arguments.size() + 1);
    pointers.push_back(nullptr);  // room for vectorcall to put a self into
    for (const object &argument : arguments) {
        pointers.push_back(argument.get());
    }
    return PyObject_Vectorcall(special.function.get(), pointers.data() + 1,
                               arguments.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

PyObject *evaluate(PyThreadState *tstate, struct _PyInterpreterFrame *pointer, int throwflag)
{
    const auto go_on = previous.load(std::memory_order_relaxed);
    // With an exception pending, a generator is resumed to raise it.
    if (throwflag != 0) {
        return go_on(tstate, pointer, throwflag);
    }
    std::shared_ptr<specialisation> special;
    std::vector<object> arguments;
    try {
        localsplus::frame frame(pointer);
        special = find(frame.code().get());
        if (special == nullptr || !is_unstarted(frame)) {
            return go_on(tstate, pointer, throwflag);
        }
        if (!guards_hold(*special, frame) || !read_arguments(*special, frame, arguments)) {
            special->misses.fetch_add(1, std::memory_order_relaxed);
            // The values are the function's alone again.
            arguments.clear();
            return go_on(tstate, pointer, throwflag);
        }
    } catch (const std::exception &failure) {
        if (dynamic_cast<const localsplus::error *>(&failure) == nullptr) {
            PyErr_NoMemory();
        }
        // The exception is as if raised by the function's first instruction.
        return _PyEval_EvalFrameDefault(tstate, pointer, 1);
    }
    special->hits.fetch_add(1, std::memory_order_relaxed);
    if (!dispose(tstate, pointer)) {
        return nullptr;
    }
    return call(*special, arguments);
}

// The function below a method; borrowed, or NULL with an exception.
PyObject *function_of(PyObject *callable)
{
    if (PyMethod_Check(callable)) {
        callable = PyMethod_GET_FUNCTION(callable);
    }
    if (!PyFunction_Check(callable)) {
        PyErr_Format(PyExc_TypeError, "expected a Python function or method, not %.200s", Py_TYPE(callable)->tp_name);
        return nullptr;
    }
    return callable;
}

Py_ssize_t integer_attribute(PyObject *code, const char *name)
{
    object value = localsplus::detail::checked(PyObject_GetAttrString(code, name));
    Py_ssize_t number = PyLong_AsSsize_t(value.get());
    if (number == -1 && PyErr_Occurred()) {
        throw localsplus::error();
    }
    return number;
}

// The slots that have a value when a function is entered: its parameters come
// first, its free variables last.
std::vector<Py_ssize_t> slots_at_entry(PyObject *code, Py_ssize_t count)
{
    Py_ssize_t flags = integer_attribute(code, "co_flags");
    Py_ssize_t parameters = integer_attribute(code, "co_argcount") + integer_attribute(code, "co_kwonlyargcount")
        + ((flags & CO_VARARGS) != 0) + ((flags & CO_VARKEYWORDS) != 0);
    object free = localsplus::detail::checked(PyObject_GetAttrString(code, "co_freevars"));
    std::vector<Py_ssize_t> indexes;
    for (Py_ssize_t index = 0; index < parameters; index++) {
        indexes.push_back(index);
    }
    for (Py_ssize_t index = count - PyTuple_GET_SIZE(free.get()); index < count; index++) {
        indexes.push_back(index);
    }
    return indexes;
}

Py_ssize_t index_of(PyObject *names, const std::vector<Py_ssize_t> &indexes, PyObject *name)
{
    for (Py_ssize_t index : indexes) {
        int equal = PyObject_RichCompareBool(PyTuple_GET_ITEM(names, index), name, Py_EQ);
        if (equal < 0) {
            throw localsplus::error();
        }
        if (equal > 0) {
            return index;
        }
    }
    PyErr_Format(PyExc_ValueError, "%R is neither a parameter nor a free variable", name);
    throw localsplus::error();
}

// Comparing these runs no Python code.
bool is_plain(PyObject *value)
{
    return PyLong_CheckExact(value) || PyBool_Check(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value)
        || PyBytes_CheckExact(value);
}

std::shared_ptr<specialisation> make(PyObject *function, PyObject *specialised, PyObject *types, PyObject *values)
{
    auto special = std::make_shared<specialisation>();
    PyObject *code = PyFunction_GET_CODE(function);
    object names =
        localsplus::detail::checked(PyUnstable_Code_GetLocalPlusNames(reinterpret_cast<PyCodeObject *>(code)));
    special->code = object::borrow(code);
    special->function = object::borrow(specialised);
    special->indexes = slots_at_entry(code, PyTuple_GET_SIZE(names.get()));

    PyObject *name;
    PyObject *wanted;
    for (Py_ssize_t position = 0; types != nullptr && PyDict_Next(types, &position, &name, &wanted);) {
        if (!PyType_Check(wanted)) {
            PyErr_Format(PyExc_TypeError, "types[%R] is not a type", name);
            throw localsplus::error();
        }
        special->types.push_back({index_of(names.get(), special->indexes, name), object::borrow(wanted)});
    }
    for (Py_ssize_t position = 0; values != nullptr && PyDict_Next(values, &position, &name, &wanted);) {
        special->values.push_back(
            {index_of(names.get(), special->indexes, name), object::borrow(wanted), is_plain(wanted)});
    }
    return special;
}

PyObject *optimize(PyObject *, PyObject *args, PyObject *kwargs)
{
    static const char *const keywords[] = {"fn", "specialised", "types", "values", nullptr};
    PyObject *callable;
    PyObject *specialised;
    PyObject *types = nullptr;
    PyObject *values = nullptr;
    // Its declaration had no const before 3.13.
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$O!O!:optimize", const_cast<char **>(keywords), &callable,
                                     &specialised, &PyDict_Type, &types, &PyDict_Type, &values)) {
        return nullptr;
    }
    PyObject *function = function_of(callable);
    if (function == nullptr) {
        return nullptr;
    }
    try {
        // Here is the place to learn that this interpreter is refused.
        localsplus::init();
        std::shared_ptr<specialisation> special = make(function, specialised, types, values);
        // What it replaces is let go of outside the lock: that may run Python code.
        std::shared_ptr<specialisation> replaced = special;
        {
            std::unique_lock<std::shared_mutex> guard(lock);
            specialisations[special->code.get()].swap(replaced);
        }
    } catch (const localsplus::error &) {
        return nullptr;
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

PyObject *forget(PyObject *, PyObject *callable)
{
    PyObject *function = function_of(callable);
    if (function == nullptr) {
        return nullptr;
    }
    std::shared_ptr<specialisation> forgotten;
    {
        std::unique_lock<std::shared_mutex> guard(lock);
        auto found = specialisations.find(PyFunction_GET_CODE(function));
        if (found != specialisations.end()) {
            forgotten = std::move(found->second);
            specialisations.erase(found);
        }
    }
    Py_RETURN_NONE;
}

PyObject *counts(PyObject *, PyObject *callable)
{
    PyObject *function = function_of(callable);
    if (function == nullptr) {
        return nullptr;
    }
    std::shared_ptr<specialisation> special = find(PyFunction_GET_CODE(function));
    if (special == nullptr) {
        PyErr_Format(PyExc_LookupError, "%R is not optimised", callable);
        return nullptr;
    }
    return Py_BuildValue("KK", static_cast<unsigned long long>(special->hits.load()),
                         static_cast<unsigned long long>(special->misses.load()));
}

PyObject *enable(PyObject *, PyObject *)
{
    if (localsplus_init() < 0) {
        return nullptr;
    }
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction installed = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (installed != evaluate) {
        previous.store(installed);
        _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
    }
    Py_RETURN_NONE;
}

PyObject *disable(PyObject *, PyObject *)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate) {
        _PyInterpreterState_SetEvalFrameFunc(interpreter, previous.load());
        Py_RETURN_NONE;
    }
    PyErr_SetString(PyExc_RuntimeError, "evaluator: not enabled, or another hook has been installed since");
    return nullptr;
}

PyObject *provider(PyObject *, PyObject *)
{
    const char *name = localsplus::provider();
    return name == nullptr ? Py_NewRef(Py_None) : PyUnicode_FromString(name);
}

PyDoc_STRVAR(optimize_doc,
             "optimize(fn, specialised, *, types={}, values={})\n--\n\n"
             "Call specialised instead of fn when the values named by types are exactly of those types, and the\n"
             "values named by values are those values: equal for int, bool, float, str and bytes, else the same object.");

PyMethodDef methods[] = {
    {"optimize", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(optimize)),
     METH_VARARGS | METH_KEYWORDS, optimize_doc},
    {"forget", forget, METH_O, "forget(fn)\n--\n\nRun fn itself again."},
    {"counts", counts, METH_O, "counts(fn)\n--\n\n(hits, misses) since fn was optimised."},
    {"enable", enable, METH_NOARGS, "enable()\n--\n\nInstall the evaluator in this interpreter."},
    {"disable", disable, METH_NOARGS, "disable()\n--\n\nPut back what enable() found."},
    {"provider", provider, METH_NOARGS, "provider()\n--\n\nWhat reads the frames: localsplus_provider()."},
    {nullptr, nullptr, 0, nullptr},
};

int execute(PyObject *module)
{
    if (Replaced == nullptr) {
        Replaced = PyErr_NewException("evaluator._Replaced", PyExc_BaseException, nullptr);
    }
    return Replaced == nullptr ? -1 : PyModule_AddIntConstant(module, "LOCALSPLUS_ABI_VERSION", localsplus_abi_version());
}

// ISO C++ lets no function pointer become a void pointer without a warning, but
// module slots are made of them.
void *as_slot(int (*function)(PyObject *))
{
    void *slot;
    static_assert(sizeof(slot) == sizeof(function));
    std::memcpy(&slot, &function, sizeof(slot));
    return slot;
}

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, as_slot(execute)},
#if PY_VERSION_HEX >= 0x030C0000
    // The specialisations are one table for the process.
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "evaluator", "Replaces functions by specialised ones, by the values in their frames.",
    0, methods, slots, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit_evaluator() { return PyModuleDef_Init(&definition); }
