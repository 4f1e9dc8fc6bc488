#pragma once

// Direct access to the fields of numpy arrays, for calls where the buffer protocol would be too
// slow. The layout of the fields is stable: it is compiled into every extension module that uses
// numpy.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <stdexcept>

struct NumpyArray {
    PyObject_HEAD;
    char* data;
    int rank;
    Py_ssize_t* shape;
    Py_ssize_t* strides;
    PyObject* base;
    PyObject* dtype;
    int flags;
};

// Arrays of one dtype.
class NumpyArrays {
  public:
    explicit NumpyArrays(const char* dtype) {
        const nanobind::module_ numpy = nanobind::module_::import_("numpy");
        type_ = numpy.attr("ndarray");
        empty_ = numpy.attr("empty");
        dtype_ = numpy.attr("dtype")(dtype);
        check();
    }

    // Null unless the object is an aligned, C-contiguous array of the dtype.
    const NumpyArray* look_into(nanobind::handle object) const {
        if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != type_.ptr()) return nullptr;
        const auto* array = reinterpret_cast<const NumpyArray*>(object.ptr());
        constexpr int kInOrder = 0x1, kAligned = 0x100;
        const bool good = (array->flags & kInOrder) != 0 && (array->flags & kAligned) != 0;
        return good && array->dtype == dtype_.ptr() ? array : nullptr;
    }

    nanobind::object empty(const nanobind::object& shape) const {
        PyObject* arguments[] = {shape.ptr(), dtype_.ptr()};
        PyObject* made = PyObject_Vectorcall(empty_.ptr(), arguments, 2, nullptr);
        if (made == nullptr) throw nanobind::python_error();
        return nanobind::steal(made);
    }

  private:
    // The fields follow the buffer protocol.
    void check() const {
        const nanobind::object made = empty(nanobind::make_tuple(2, 3));
        Py_buffer view;
        if (PyObject_GetBuffer(made.ptr(), &view, PyBUF_STRIDES) != 0) {
            throw nanobind::python_error();
        }
        const NumpyArray* array = look_into(made);
        const bool same = array != nullptr && array->data == view.buf && array->rank == 2 &&
                          array->shape[0] == 2 && array->shape[1] == 3 &&
                          array->strides[0] == view.strides[0] &&
                          array->strides[1] == view.strides[1];
        PyBuffer_Release(&view);
        if (!same) throw std::runtime_error("this version of numpy has an unknown array layout");
    }

    nanobind::object type_;
    nanobind::object empty_;
    nanobind::object dtype_;
};
