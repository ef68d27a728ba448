// Peer (d): a vector of borrowed references by slot, as a guard evaluator makes it
// from internal structs before a frame starts. Like the ones in use, it is an object
// on the heap that holds the code object, and its constructor is out of line.
#include "peers.h"

#include <memory>
#include <vector>

#define Py_BUILD_CORE 1
#include "internal/pycore_code.h"
#if PY_VERSION_HEX >= 0x030E0000
// pycore_stackref.h is no C++: a function in C, out of line, undoes the tags.
#  include "internal/pycore_interpframe_structs.h"
#  define BORROW(reference) mapping_borrow(&(reference))
#  define EXECUTABLE(frame) BORROW((frame)->f_executable)
#  define FUNCTION(frame) BORROW((frame)->f_funcobj)
#else
#  include "internal/pycore_frame.h"
#  define BORROW(reference) (reference)
#  if PY_VERSION_HEX >= 0x030D0000
#    define EXECUTABLE(frame) ((frame)->f_executable)
#    define FUNCTION(frame) ((frame)->f_funcobj)
#  elif PY_VERSION_HEX >= 0x030C0000
#    define EXECUTABLE(frame) ((frame)->f_code)
#    define FUNCTION(frame) ((frame)->f_funcobj)
#  else
#    define EXECUTABLE(frame) ((frame)->f_code)
#    define FUNCTION(frame) ((frame)->f_func)
#  endif
#endif

struct __attribute__((visibility("hidden"))) mapping {
    PyObject *code;
    std::vector<PyObject *> values;

    explicit mapping(struct _PyInterpreterFrame *frame);
    ~mapping() { Py_DECREF(code); }
};

__attribute__((noinline)) mapping::mapping(struct _PyInterpreterFrame *frame)
    : code(Py_NewRef(reinterpret_cast<PyObject *>(EXECUTABLE(frame))))
{
    auto *co = reinterpret_cast<PyCodeObject *>(code);
    values.resize(static_cast<std::size_t>(co->co_nlocalsplus), nullptr);
    auto set = [&](int index, PyObject *value) {
        _PyLocals_Kind kind = _PyLocals_GetKind(co->co_localspluskinds, index);
        if ((kind & CO_FAST_FREE) && !(co->co_flags & CO_OPTIMIZED)) {
            return;
        }
#ifdef CO_FAST_HIDDEN
        if (kind & CO_FAST_HIDDEN) {
            return;
        }
#endif
        if (kind & CO_FAST_FREE) {
            if (value == nullptr || !PyCell_Check(value)) {
                std::abort();
            }
            value = PyCell_GET(value);
        }
        values[static_cast<std::size_t>(index)] = value;
    };
    int first_free = co->co_nlocalsplus - co->co_nfreevars;
    for (int i = 0; i < first_free; i++) {
        set(i, BORROW(frame->localsplus[i]));
    }
    if (co->co_nfreevars > 0) {
        PyObject *closure = reinterpret_cast<PyFunctionObject *>(FUNCTION(frame))->func_closure;
        for (int i = 0; i < co->co_nfreevars; i++) {
            set(first_free + i, PyTuple_GET_ITEM(closure, i));
        }
    }
}

void mapping_borrowed(struct _PyInterpreterFrame *frame)
{
    auto made = std::make_unique<mapping>(frame);
}

void mapping_strong(struct _PyInterpreterFrame *frame)
{
    auto made = std::make_unique<mapping>(frame);
    for (PyObject *value : made->values) {
        Py_XINCREF(value);
    }
    for (PyObject *value : made->values) {
        Py_XDECREF(value);
    }
}
