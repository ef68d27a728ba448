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
// Or it hands the code of every function that is called to a compiler of yours, once,
// and runs what that answers in place of it:
//
//     evaluator.compile_with(lambda code: code.replace(...))   # or None: as it is
//
// What tools (sys.settrace, sys.setprofile, sys.monitoring) see of a hit: the
// specialised function or compiled code, nothing of the original one.
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

// What the compiler has made of a code object.
struct compilation {
    object code;
    object compiled;  // empty: the code runs as it is
};

// Under the same lock. What was compiled has an entry of its own, without anything.
auto &compilations = *new std::unordered_map<PyObject *, std::shared_ptr<compilation>>;
auto &compiler = *new object;

// Set while the compiler runs in this thread: what it calls runs as it is.
thread_local bool is_compiling = false;

std::shared_ptr<specialisation> find(PyObject *code)
{
    std::shared_lock<std::shared_mutex> guard(lock);
    auto found = specialisations.find(code);
    return found == specialisations.end() ? nullptr : found->second;
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

// What is to run in place of the code of a function; empty if that itself.
object compiled(const object &code)
{
    object call;
    {
        std::shared_lock<std::shared_mutex> guard(lock);
        if (!compiler || is_compiling) {
            return object();
        }
        auto found = compilations.find(code.get());
        if (found != compilations.end()) {
            return found->second->compiled;
        }
        call = compiler;
    }
    auto made = std::make_shared<compilation>(compilation{code, object()});
    // Without local variables in slots it is no function, but a module or class body.
    if ((reinterpret_cast<PyCodeObject *>(code.get())->co_flags & CO_OPTIMIZED) != 0) {
        is_compiling = true;
        object answer = object::steal(PyObject_CallOneArg(call.get(), code.get()));
        is_compiling = false;
        if (!answer) {
            throw localsplus::error();
        }
        if (PyCode_Check(answer.get()) && answer.get() != code.get()) {
            made->compiled = answer;
        } else if (answer.get() != Py_None) {
            PyErr_Format(PyExc_TypeError, "the compiler answered %R, not another code object or None", answer.get());
            throw localsplus::error();
        }
    }
    auto itself = std::make_shared<compilation>(compilation{made->compiled, object()});
    std::unique_lock<std::shared_mutex> guard(lock);
    // Another thread may have been faster.
    auto kept = compilations.emplace(code.get(), made).first->second;
    if (kept == made && made->compiled) {
        compilations.emplace(made->compiled.get(), itself);
    }
    return kept->compiled;
}

PyObject *evaluate(PyThreadState *tstate, struct _PyInterpreterFrame *pointer, int throwflag,
                   const localsplus_hook *hook)
{
    // With an exception pending, a generator is resumed to raise it.
    if (throwflag != 0) {
        return hook->next(tstate, pointer, throwflag);
    }
    try {
        localsplus::frame frame(pointer);
        // A resumed generator goes on: its function has begun by making it.
        if (frame.state() != localsplus::state::unstarted) {
            return hook->next(tstate, pointer, throwflag);
        }
        object code = frame.code();
        std::shared_ptr<specialisation> special = find(code.get());
        if (special == nullptr) {
            object replacement = compiled(code);
            if (replacement) {
                return localsplus_evaluate_in_place(pointer, replacement.get());
            }
            return hook->next(tstate, pointer, throwflag);
        }
        std::vector<object> arguments;
        if (guards_hold(*special, frame) && read_arguments(*special, frame, arguments)) {
            special->hits.fetch_add(1, std::memory_order_relaxed);
            frame.consume();
            return call(*special, arguments);
        }
        special->misses.fetch_add(1, std::memory_order_relaxed);
    } catch (const std::exception &failure) {
        if (dynamic_cast<const localsplus::error *>(&failure) == nullptr) {
            PyErr_NoMemory();
        }
        // As if raised by the function's first instruction.
        return hook->next(tstate, pointer, 1);
    }
    return hook->next(tstate, pointer, throwflag);
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

PyObject *compile_with(PyObject *, PyObject *callable)
{
    object replaced = callable == Py_None ? object() : object::borrow(callable);
    std::unordered_map<PyObject *, std::shared_ptr<compilation>> forgotten;
    {
        std::unique_lock<std::shared_mutex> guard(lock);
        std::swap(compiler, replaced);
        compilations.swap(forgotten);
    }
    Py_RETURN_NONE;
}

PyObject *enable(PyObject *, PyObject *)
{
    if (localsplus_init() < 0 || localsplus_hook_install(evaluate, nullptr) < 0) {
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject *disable(PyObject *, PyObject *)
{
    int removed = localsplus_hook_remove(evaluate, nullptr);
    if (removed == 0) {
        PyErr_SetString(PyExc_RuntimeError, "evaluator: not enabled");
    }
    return removed == 1 ? Py_NewRef(Py_None) : nullptr;
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
    {"compile_with", compile_with, METH_O,
     "compile_with(compiler)\n--\n\nRun what compiler(code) answers in place of each function's code, unless None."},
    {"enable", enable, METH_NOARGS, "enable()\n--\n\nInstall the evaluator in this interpreter."},
    {"disable", disable, METH_NOARGS, "disable()\n--\n\nPut back what enable() found."},
    {"provider", provider, METH_NOARGS, "provider()\n--\n\nWhat reads the frames: localsplus_provider()."},
    {nullptr, nullptr, 0, nullptr},
};

int execute(PyObject *module)
{
    return PyModule_AddIntConstant(module, "LOCALSPLUS_ABI_VERSION", localsplus_abi_version());
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
