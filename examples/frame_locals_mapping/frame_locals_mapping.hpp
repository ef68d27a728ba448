// The variables of a function, by slot index and by name, as they are when it is
// entered: what guards are checked against. TorchDynamo's FrameLocalsMapping has
// this algorithm; docs/PORTING.md compares the two.
#ifndef FRAME_LOCALS_MAPPING_HPP
#define FRAME_LOCALS_MAPPING_HPP

#include <localsplus.hpp>

#include <cstddef>
#include <vector>

// Made in an eval-frame hook. It owns its values, so that it may outlive the frame;
// what it hands out is borrowed from it. Not shared between threads.
class frame_locals_mapping {
public:
    // Reads every slot once. Free variables come from the closure, since the frame
    // has none before it runs; hidden slots, and the free variables of a class body,
    // have no value. Throws localsplus::error.
    explicit frame_locals_mapping(struct _PyInterpreterFrame *pointer)
        : names_(localsplus::frame(pointer).names()), values_(localsplus::frame(pointer).get_locals())
    {
    }

    [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }

    // The value in slot `index`, below size(); NULL if it has none. A guard looks up
    // the index of its name once, when it is made.
    [[nodiscard]] PyObject *get(std::size_t index) const noexcept { return values_[index].get(); }

    // A tuple of str: the name of each slot.
    [[nodiscard]] PyObject *names() const noexcept { return names_.get(); }

    // Those that have a value, as a dict. It is made when it is first asked for.
    [[nodiscard]] PyObject *dict()
    {
        if (!dict_) {
            localsplus::object made = localsplus::object::steal(PyDict_New());
            if (!made) {
                throw localsplus::error();
            }
            for (std::size_t index = 0; index < values_.size(); index++) {
                PyObject *name = PyTuple_GET_ITEM(names_.get(), static_cast<Py_ssize_t>(index));
                if (values_[index] && PyDict_SetItem(made.get(), name, values_[index].get()) < 0) {
                    throw localsplus::error();
                }
            }
            dict_ = made;
        }
        return dict_.get();
    }

private:
    localsplus::object names_;
    std::vector<localsplus::object> values_;
    localsplus::object dict_;
};

#endif  // FRAME_LOCALS_MAPPING_HPP
