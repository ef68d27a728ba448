// frame_locals_mapping.hpp in use: shows a callback the variables of every Python
// function that is entered.
//
//     mapping.watch(callback)    # callback(code, values, dictionary)
//     mapping.watch(None)        # no more
//
// One thread at a time calls watch; all threads of the interpreter are watched.
// `values` is a tuple, one item per slot: (value,) or (). A generator's function is
// entered when the generator is made, and its frame is seen again at each
// resumption. Functions that run on behalf of the callback are not shown.
#define PY_SSIZE_T_CLEAN
#include "frame_locals_mapping.hpp"

#include <mutex>
#include <utility>

namespace {

using localsplus::object;

// Nothing that it is held for runs Python code or waits for another thread.
std::mutex lock;
// Owned, or NULL.
PyObject *callback;

thread_local bool inside;

object checked(PyObject *made)
{
    return localsplus::detail::checked(made);
}

// A reference of one's own: another thread may replace the callback meanwhile.
object current_callback()
{
    std::lock_guard<std::mutex> guard(lock);
    return object::borrow(callback);
}

void show(struct _PyInterpreterFrame *pointer)
{
    object shown_to = current_callback();
    if (!shown_to) {
        return;
    }
    frame_locals_mapping mapping(pointer);
    object values = checked(PyTuple_New(static_cast<Py_ssize_t>(mapping.size())));
    for (std::size_t index = 0; index < mapping.size(); index++) {
        PyObject *value = mapping.get(index);
        object item = checked(value == nullptr ? PyTuple_New(0) : PyTuple_Pack(1, value));
        PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(index), item.release());
    }
    object code = localsplus::frame(pointer).code();
    checked(PyObject_CallFunctionObjArgs(shown_to.get(), code.get(), values.get(), mapping.dict(), nullptr));
}

PyObject *evaluate(PyThreadState *tstate, struct _PyInterpreterFrame *pointer, int throwflag)
{
    // With an exception pending, a generator is resumed to raise it.
    if (throwflag == 0 && !inside) {
        inside = true;
        try {
            show(pointer);
        } catch (const std::exception &failure) {
            if (dynamic_cast<const localsplus::error *>(&failure) == nullptr) {
                PyErr_NoMemory();
            }
            // As if raised by the function's next instruction.
            throwflag = 1;
        }
        inside = false;
    }
    return _PyEval_EvalFrameDefault(tstate, pointer, throwflag);
}

PyObject *watch(PyObject *, PyObject *wanted)
{
    if (wanted != Py_None && !PyCallable_Check(wanted)) {
        PyErr_Format(PyExc_TypeError, "expected a callable or None, not %.200s", Py_TYPE(wanted)->tp_name);
        return nullptr;
    }
    // Here is the place to learn that this interpreter is refused.
    if (localsplus_init() < 0) {
        return nullptr;
    }
    // What it replaces is let go of outside the lock: that may run Python code.
    object replaced = object::borrow(wanted == Py_None ? nullptr : wanted);
    {
        std::lock_guard<std::mutex> guard(lock);
        replaced = object::steal(std::exchange(callback, replaced.release()));
    }
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(),
                                         wanted == Py_None ? _PyEval_EvalFrameDefault : evaluate);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"watch", watch, METH_O, "watch(callback)\n--\n\nShow callback the variables of every function; None ends it."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "mapping", "Shows the variables of functions as they are entered.", -1, methods,
    nullptr, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit_mapping()
{
    PyObject *module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
    if (module != nullptr) {
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
    }
#endif
    return module;
}
