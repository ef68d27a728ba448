#include "localsplus.h"
#include "consumer.h"

static PyObject *
first_local(struct _PyInterpreterFrame *frame)
{
    PyObject *value;
    switch (localsplus_get_local(frame, 0, &value)) {
        case 1:
            return value;
        case 0:
            Py_RETURN_NONE;
        default:
            return NULL;
    }
}

const consumer consumer_c = {"c", LOCALSPLUS_ABI_VERSION, localsplus_abi_version, first_local};
