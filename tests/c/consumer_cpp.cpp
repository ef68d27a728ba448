#include "localsplus.h"
#include "consumer.h"

#include <memory>

namespace {

struct decref {
    void operator()(PyObject *object) const { Py_DECREF(object); }
};

PyObject *
first_local(struct _PyInterpreterFrame *frame)
{
    PyObject *value = nullptr;
    int found = localsplus_get_slot(frame, 0, LOCALSPLUS_HIDDEN | LOCALSPLUS_RAW_CELL, &value);
    if (found < 0) {
        return nullptr;
    }
    if (found == 0) {
        Py_RETURN_NONE;
    }
    std::unique_ptr<PyObject, decref> owned{value};
    return owned.release();
}

}  // namespace

extern "C" const consumer consumer_cpp{"c++", LOCALSPLUS_ABI_VERSION, localsplus_abi_version, first_local};
