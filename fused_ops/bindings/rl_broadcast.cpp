// qgraph._native.broadcast. Its only caller, qgraph/rl/broadcast/, has checked sizes and indices.
// Sizes of memory are checked here again, since another process may have made it.

#include "bindings/rl_broadcast.h"

#include <nanobind/stl/pair.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>

#include "rl/channel.h"
#include "rl/rings.h"

namespace nb = nanobind;

namespace {

using namespace qgraph::rl;

// The bytes of an object; they do not move as long as this exists.
class Bytes {
  public:
    Bytes(nb::handle object, int flags) {
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    ~Bytes() { PyBuffer_Release(&view_); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;

    char* data() const { return static_cast<char*>(view_.buf); }
    int64_t size() const { return view_.len; }

    char* at_least(int64_t size) const {
        if (view_.len < size) throw std::length_error("the memory is too small");
        return data();
    }

  private:
    Py_buffer view_{};
};

struct SharedChannel {
    SharedChannel(nb::handle memory, int64_t readers)
        : head(memory, PyBUF_WRITABLE),
          channel(head.at_least(Channel::head_size(readers)), readers) {}

    Bytes head;
    Channel channel;
};

struct SharedRings {
    SharedRings(nb::handle shared, int64_t offset, int64_t writers, int64_t capacity,
                int64_t record_size)
        : memory(shared, PyBUF_WRITABLE),
          rings(memory.at_least(offset + Rings::head_size(writers) +
                                writers * capacity * record_size) +
                    offset,
                memory.data() + offset + Rings::head_size(writers), writers, capacity,
                record_size) {}

    int64_t put(int64_t writer, nb::handle records, int64_t begin) {
        const Bytes bytes(records, PyBUF_SIMPLE);
        const int64_t count = bytes.size() / rings.record_size();
        return rings.put(writer, bytes.data() + begin * rings.record_size(), count - begin);
    }

    int64_t take(int64_t writer, nb::handle records, int64_t begin) {
        const Bytes bytes(records, PyBUF_WRITABLE);
        const int64_t count = bytes.size() / rings.record_size();
        return rings.take(writer, bytes.data() + begin * rings.record_size(), count - begin);
    }

    Bytes memory;
    Rings rings;
};

using Unlocked = nb::call_guard<nb::gil_scoped_release>;

std::pair<int64_t, int64_t> claim(SharedChannel& self, int64_t reader, int64_t slot,
                                  int64_t newer_than) {
    const Channel::Found found = self.channel.claim(reader, slot, newer_than);
    return {found.buffer, found.version};
}

// A file without a name: the system removes it when the last process that has it open ends.
int memory_file(const char* name) {
    constexpr unsigned CLOEXEC = 1, ALLOW_SEALING = 2;
    return static_cast<int>(syscall(SYS_memfd_create, name, CLOEXEC | ALLOW_SEALING));
}

// Has this process killed when the thread that started it ends; false if it has already ended.
bool die_with(int parent) { return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent; }

}  // namespace

void bind_broadcast(nb::module_& module) {
    nb::class_<SharedChannel>(module, "Channel")
        .def(nb::init<nb::handle, int64_t>())
        .def("room", [](SharedChannel& s) { return s.channel.free_buffer(); })
        .def("publish", [](SharedChannel& s, int64_t buffer,
                           int64_t version) { return s.channel.publish(buffer, version); })
        .def("asked", [](SharedChannel& s) { return s.channel.asked(); })
        .def(
            "wait_asked", [](SharedChannel& s, int64_t ns) { return s.channel.wait_asked(ns); },
            Unlocked())
        .def("claim", &claim)
        .def("release", [](SharedChannel& s, int64_t reader,
                           int64_t slot) { s.channel.release(reader, slot); })
        .def("ask", [](SharedChannel& s) { s.channel.ask(); })
        .def(
            "wait",
            [](SharedChannel& s, int64_t version, int64_t ns) {
                return s.channel.wait(version, ns);
            },
            Unlocked())
        .def("version", [](SharedChannel& s) { return s.channel.version(); });
    nb::class_<SharedRings>(module, "Rings")
        .def(nb::init<nb::handle, int64_t, int64_t, int64_t, int64_t>())
        .def("put", &SharedRings::put)
        .def("take", &SharedRings::take)
        .def(
            "wait_free",
            [](SharedRings& s, int64_t writer, int64_t ns) {
                return s.rings.wait_free(writer, ns);
            },
            Unlocked())
        .def(
            "wait_filled", [](SharedRings& s, int64_t ns) { return s.rings.wait_filled(ns); },
            Unlocked())
        .def("filled", [](SharedRings& s, int64_t writer) { return s.rings.filled(writer); })
        .def("written", [](SharedRings& s, int64_t writer) { return s.rings.written(writer); })
        .def("put_waited", [](SharedRings& s, int64_t w) { return s.rings.put_waited(w); })
        .def("take_waited", [](SharedRings& s) { return s.rings.take_waited(); });
    module.def("channel_head", &Channel::head_size);
    module.def("channel_buffers", &Channel::buffers);
    module.def("rings_head", &Rings::head_size);
    module.def("memory_file", &memory_file);
    module.def("die_with", &die_with);
    module.def("now", &now);
}
