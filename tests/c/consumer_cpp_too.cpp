#include "consumer.h"
#include "localsplus.h"

#include <vector>

namespace {

PyObject *
first_local(struct _PyInterpreterFrame *frame)
{
    Py_ssize_t count = localsplus_count(frame);
    if (count < 0) {
        return nullptr;
    }
    std::vector<PyObject *> values(static_cast<std::size_t>(count) + 1, nullptr);
    if (localsplus_get_locals(frame, values.data(), count) < 0) {
        return nullptr;
    }
    PyObject *first = Py_NewRef(values[0] == nullptr ? Py_None : values[0]);
    for (PyObject *value : values) {
        Py_XDECREF(value);
    }
    return first;
}

}  // namespace

extern "C" const consumer consumer_cpp_too{"c++ too", LOCALSPLUS_ABI_VERSION, localsplus_abi_version, first_local};
