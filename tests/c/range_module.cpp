// The test extension _range: a frame through localsplus.hpp.
#define PY_SSIZE_T_CLEAN
#include "localsplus.hpp"
#include "localsplus.hpp"

#include <iterator>
#include <new>
#include <type_traits>

namespace {

using localsplus::object;

static_assert(sizeof(object) == sizeof(PyObject *));
static_assert(std::is_nothrow_move_constructible_v<object> && std::is_nothrow_move_assignable_v<object>);
static_assert(std::is_nothrow_move_constructible_v<localsplus::arguments>);
static_assert(!std::is_copy_constructible_v<localsplus::arguments>, "who would release them?");
static_assert(!std::is_constructible_v<object, PyObject *>, "whose reference is it?");
static_assert(std::is_same_v<std::iterator_traits<localsplus::slot_range::iterator>::value_type, localsplus::slot>);

object or_not_implemented(object value) { return value ? value : object::borrow(Py_NotImplemented); }

template <typename... Arguments>
object build(const char *format, Arguments... arguments)
{
    return localsplus::detail::checked(Py_BuildValue(format, arguments...));
}

// Where C++ ends: what was thrown becomes NULL, with the exception that is set.
template <PyObject *(*function)(localsplus::frame, PyObject *)>
PyObject *guarded(PyObject *, PyObject *args)
{
    PyObject *address;
    PyObject *rest = nullptr;
    if (!PyArg_ParseTuple(args, "O|O", &address, &rest)) {
        return nullptr;
    }
    void *pointer = PyLong_AsVoidPtr(address);
    if (pointer == nullptr && PyErr_Occurred()) {
        return nullptr;
    }
    try {
        return function(localsplus::frame(static_cast<struct _PyInterpreterFrame *>(pointer)), rest);
    } catch (const localsplus::error &) {
        return nullptr;
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

// [(index, name, kind bits, value, value with every flag), ...]
PyObject *snapshot(localsplus::frame frame, PyObject *)
{
    object list = localsplus::detail::checked(PyList_New(0));
    const auto everything = localsplus::flags::hidden | localsplus::flags::raw_cell;
    for (localsplus::slot slot : frame.slots()) {
        object entry = build("nNiNN", slot.index(), slot.name().release(), slot.kind().bits(),
                             or_not_implemented(slot.value()).release(),
                             or_not_implemented(frame.get_slot(slot.index(), everything)).release());
        if (PyList_Append(list.get(), entry.get()) < 0) {
            throw localsplus::error();
        }
    }
    return list.release();
}

// [value, ...], through get_locals, copied, moved and assigned on the way.
PyObject *locals(localsplus::frame frame, PyObject *)
{
    object list = localsplus::detail::checked(PyList_New(0));
    for (object &value : frame.get_locals()) {
        object copy = value;
        object moved = std::move(value);
        copy = moved;
        moved = object();
        copy = std::move(copy);
        if (PyList_Append(list.get(), or_not_implemented(copy).get()) < 0) {
            throw localsplus::error();
        }
    }
    return list.release();
}

// (count, size of the range, names, code, lasti)
PyObject *about(localsplus::frame frame, PyObject *)
{
    auto range = frame.slots();
    auto second = range.begin();
    if (!range.empty() && (second++ == second || (*second).index() != 1)) {
        return PyErr_Format(PyExc_AssertionError, "the iterator does not step");
    }
    return build("nnNNi", frame.count(), static_cast<Py_ssize_t>(std::distance(range.begin(), range.end())),
                 frame.names().release(), frame.code().release(), frame.lasti())
        .release();
}

// frame.get_local(index), with all of its errors.
PyObject *get_local(localsplus::frame frame, PyObject *index)
{
    return or_not_implemented(frame.get_local(PyLong_AsSsize_t(index))).release();
}

// [(index, [index, ...], value) or (None, [], NotImplemented), ...] for each of `names`, and the dict.
PyObject *by_name(localsplus::frame frame, PyObject *names)
{
    object list = localsplus::detail::checked(PyList_New(0));
    for (Py_ssize_t position = 0; position < PyTuple_Size(names); position++) {
        PyObject *name = PyTuple_GetItem(names, position);
        object indexes = localsplus::detail::checked(PyList_New(0));
        for (Py_ssize_t index : frame.indexes(name)) {
            if (PyList_Append(indexes.get(), build("n", index).get()) < 0) {
                throw localsplus::error();
            }
        }
        object value = or_not_implemented(frame.get_by_name(name));
        object entry = build("nNN", frame.index(name), indexes.release(), value.release());
        if (PyList_Append(list.get(), entry.get()) < 0) {
            throw localsplus::error();
        }
    }
    return build("NN", list.release(), frame.dict().release()).release();
}

// Calls `callable` with the frame's arguments, moved and assigned on the way.
PyObject *call(localsplus::frame frame, PyObject *callable)
{
    localsplus::arguments first = frame.arguments();
    localsplus::arguments arguments = std::move(first);
    if (first.get().args != nullptr || first.get().kwnames != nullptr) {
        return PyErr_Format(PyExc_AssertionError, "moved, and still there");
    }
    first = frame.arguments();
    arguments = std::move(first);
    return arguments.call(callable).release();
}

// {name: answer}, None for none.
PyObject *questions(localsplus::frame frame, PyObject *)
{
    const auto or_none = [](object value) { return value ? value.release() : Py_NewRef(Py_None); };
    const auto address = [](std::optional<localsplus::frame> other) {
        return other ? PyLong_FromVoidPtr(other->get()) : Py_NewRef(Py_None);
    };
    const std::optional<int> line = frame.line();
    object parameters = localsplus::detail::checked(PyList_New(0));
    for (localsplus::slot slot : frame.slots()) {
        object kind = build("i", static_cast<int>(frame.parameter(slot.index())));
        if (PyList_Append(parameters.get(), kind.get()) < 0) {
            throw localsplus::error();
        }
    }
    const bool has_function = static_cast<bool>(frame.function());
    return build("{sNsNsNsNsNsNsNsisisisNsN}", "function", or_none(frame.function()), "globals",
                 has_function ? frame.globals().release() : Py_NewRef(Py_None), "builtins",
                 has_function ? frame.builtins().release() : Py_NewRef(Py_None), "namespace",
                 or_none(frame.namespace_()), "closure", or_none(frame.closure()), "frame_object",
                 or_none(frame.frame_object()), "line", line ? PyLong_FromLong(*line) : Py_NewRef(Py_None), "lasti",
                 frame.lasti(), "state", static_cast<int>(frame.state()), "is_generator",
                 static_cast<int>(frame.is_generator()), "parameters", parameters.release(), "previous",
                 address(frame.previous()))
        .release();
}

// The address of the frame of a frame object or generator; of the running one for None.
PyObject *way_to(localsplus::frame, PyObject *object)
{
    if (object == Py_None) {
        return PyLong_FromVoidPtr(localsplus::frame::current()->get());
    }
    return PyLong_FromVoidPtr((PyFrame_Check(object) ? localsplus::frame::of_object(object)
                                                     : localsplus::frame::of_generator(object))
                                  .get());
}

PyMethodDef methods[] = {
    {"by_name", guarded<by_name>, METH_VARARGS, nullptr},
    {"call", guarded<call>, METH_VARARGS, nullptr},
    {"questions", guarded<questions>, METH_VARARGS, nullptr},
    {"way_to", guarded<way_to>, METH_VARARGS, nullptr},
    {"snapshot", guarded<snapshot>, METH_VARARGS, nullptr},
    {"locals", guarded<locals>, METH_VARARGS, nullptr},
    {"about", guarded<about>, METH_VARARGS, nullptr},
    {"get_local", guarded<get_local>, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_range", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__range()
{
    PyObject *module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
    if (module != nullptr) {
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
    }
#endif
    return module;
}
