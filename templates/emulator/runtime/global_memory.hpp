// Device memory: the registered tensors, and the checks that an access is to an element of one of them and does not
// conflict with other accesses.
#pragma once

namespace kgen::emulator {

bool is_behind_in_block(const device_place& place, bool was_read, bool writes) {
    const device_thread& me = this_thread();
    const warp& own = warp_of(me);
    const bool by_step = was_read ? writes && place.step < own.step : writes && place.step == own.step;
    if (place.warp == me.warp && (place.lane == me.lane || by_step)) return true;
    if (place.step < own.known[place.warp]) return true;
    const access now = {0, 0, static_cast<uint8_t>(me.lane), me.warp, own.step, {}};
    return self.detailed && knows_in_detail(now, place.warp, place.lane, place.step, place.tick);
}

struct tensor {
    std::string name;
    uintptr_t base;
    size_t bytes;
    const uint8_t* element_map;  // NULL: no gaps
    size_t element_bytes;
    bool writable;
    size_t records;  // of a writable tensor, for conflicts between blocks

    bool holds(uintptr_t address, uint32_t size) const { return address >= base && address - base <= bytes && bytes - (address - base) >= size; }

    // True if no byte of an access inside the tensor is in a gap.
    bool is_solid(uintptr_t address, uint32_t size) const {
        if (element_map == nullptr) return true;
        const size_t first = (address - base) / element_bytes;
        const size_t last = (address - base + size - 1) / element_bytes;
        for (size_t i = first; i <= last; ++i) {
            if (element_map[i] == 0) return false;
        }
        return true;
    }

    // Distance in bytes between an access and the tensor.
    uintptr_t distance(uintptr_t address, uint32_t size) const {
        if (address + size <= base) return base - (address + size);
        return address >= base + bytes ? address - (base + bytes) : 0;
    }
};

class tensor_table {
  public:
    void clear() {
        tensors_.clear();
        recent_ = 0;
        blocks_met.forget_tensors();
    }

    void add(tensor t) {
        if (t.writable) t.records = blocks_met.take(t.bytes / t.element_bytes + 1);
        tensors_.push_back(std::move(t));
    }

    // True if the running thread may access `size` bytes at `pointer`, regardless of other blocks' accesses; otherwise
    // it is reported. `alignment` is `size` unless given.
    bool allows(const void* pointer, uint32_t size, device_access how, const use& used, uint32_t alignment = 0) {
        const bool writes = how == device_access::write || how == device_access::atomic;
        const auto address = reinterpret_cast<uintptr_t>(pointer);
        if (address % (alignment == 0 ? size : alignment) != 0) {
            complain("misaligned", used, address, size, nullptr, alignment == 0 ? "not a multiple of its size" : "not a multiple of 16");
            return false;
        }
        if (recent_ < tensors_.size() && is_fine(tensors_[recent_], address, size, writes)) {
            check_others(tensors_[recent_], address, size, how, used);
            return true;
        }
        const tensor* nearest = nullptr;  // of those that contain the access, or else of all
        for (size_t i = 0; i < tensors_.size(); ++i) {
            const tensor& t = tensors_[i];
            if (is_fine(t, address, size, writes)) {
                recent_ = i;
                check_others(t, address, size, how, used);
                return true;
            }
            if (nearest == nullptr || t.distance(address, size) < nearest->distance(address, size) || t.holds(address, size)) nearest = &t;
        }
        if (nearest != nullptr && nearest->holds(address, size)) {
            const bool solid = nearest->is_solid(address, size);
            complain(solid ? "read-only" : "out of bounds", used, address, size, nearest, solid ? "a tensor that is an input" : "a gap between its rows");
        } else {
            complain("out of bounds", used, address, size, nearest, "outside every tensor");
        }
        return false;
    }

    // True if TMA may access a row of a box: it may read everything between a tensor's first and last byte, since a box
    // need not end at the end of a sequence. The kernel must not use the contents of a gap.
    bool allows_box_row(const unsigned char* row, uint32_t size, const use& used) {
        const auto address = reinterpret_cast<uintptr_t>(row);
        const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const tensor& t) { return t.holds(address, size); });
        if (found != tensors_.end()) {
            check_others(*found, address, size, device_access::read, used);
            return true;
        }
        const tensor* nearest = nullptr;
        for (const tensor& t : tensors_) {
            if (nearest == nullptr || t.distance(address, size) < nearest->distance(address, size)) nearest = &t;
        }
        complain("out of bounds", used, address, size, nearest, "outside every tensor");
        return false;
    }

    bool holds_box_row(const unsigned char* row, uint32_t size) const {
        return std::any_of(tensors_.begin(), tensors_.end(), [&](const tensor& t) { return t.holds(reinterpret_cast<uintptr_t>(row), size); });
    }

  private:
    static bool is_fine(const tensor& t, uintptr_t address, uint32_t size, bool writes) {
        return t.holds(address, size) && (t.writable || !writes) && t.is_solid(address, size);
    }

    static void check_others(const tensor& t, uintptr_t address, uint32_t size, device_access how, const use& used) {
        if (!t.writable) return;
        const size_t first = (address - t.base) / t.element_bytes;
        const size_t last = (address - t.base + size - 1) / t.element_bytes;
        for (size_t i = first; i <= last; ++i) {
            use other;
            const uint32_t stamp = blocks_met.meet(t.records + i, how, self.rank, used, other);
            if (stamp == 0 || !self.violations.is_news("conflict", used, other)) continue;
            const device_thread& me = this_thread();
            const bool own = stamp == blocks_met.stamp(self.rank);
            const std::string where = own ? " of the same block" : " of block " + std::to_string(blocks_met.block_of(stamp)) + ", in the same launch";
            self.violations.tell(text_of(used) + " of warp " + std::to_string(me.warp) + " lane " + std::to_string(me.lane) + " and " + text_of(other) + where + ", with nothing that orders them: element " +
                                 std::to_string(i) + " of `" + t.name + "`");
        }
    }

    static void complain(const char* kind, const use& used, uintptr_t address, uint32_t size, const tensor* nearest, const char* why) {
        if (!self.violations.is_news(kind, used, used)) return;
        const device_thread& me = this_thread();
        std::string text = text_of(used) + " of warp " + std::to_string(me.warp) + " lane " + std::to_string(me.lane) + ": ";
        text += std::to_string(size) + " bytes, " + why;
        if (nearest != nullptr) {
            const auto bytes = static_cast<int64_t>(address - nearest->base);
            const auto element = bytes / static_cast<int64_t>(nearest->element_bytes);
            text += "; element " + std::to_string(element) + " of `" + nearest->name + "`, which has ";
            text += std::to_string(nearest->bytes / nearest->element_bytes);
        }
        self.violations.tell(text);
    }

    std::vector<tensor> tensors_;
    size_t recent_ = 0;  // the tensor of the last access: the next one is likely to be in it too
};

static tensor_table tensors;

void load_global(const void* pointer, void* value, uint32_t bytes, source at) {
    const use used = {primitive::load_global, at};
    check_earlier_kernels(used);
    if (tensors.allows(pointer, bytes, device_access::read, used)) {
        KGEN_COUNT(global, used, reinterpret_cast<uintptr_t>(pointer), bytes);
        memcpy(value, pointer, bytes);
    } else {
        memset(value, POISON, bytes);
        count_step();
    }
}

void load_written(const void* pointer, void* value, uint32_t bytes, source at) {
    const use used = {primitive::load_written, at};
    check_earlier_kernels(used);
    if (tensors.allows(pointer, bytes, device_access::read_written, used)) {
        KGEN_COUNT(global, used, reinterpret_cast<uintptr_t>(pointer), bytes);
        memcpy(value, pointer, bytes);
    } else {
        memset(value, POISON, bytes);
        count_step();
    }
}

void store_global(void* pointer, const void* value, uint32_t bytes, source at) {
    const use used = {primitive::store_global, at};
    check_earlier_kernels(used);
    if (tensors.allows(pointer, bytes, device_access::write, used)) {
        KGEN_COUNT(global, used, reinterpret_cast<uintptr_t>(pointer), bytes);
        memcpy(pointer, value, bytes);
    } else {
        count_step();
    }
}

void add_global(float* pointer, const float* values, uint32_t count, source at) {
    const use used = {primitive::add_global, at};
    const auto bytes = static_cast<uint32_t>(count * sizeof(float));
    check_earlier_kernels(used);
    if (!tensors.allows(pointer, bytes, device_access::atomic, used)) return;
    KGEN_COUNT(global, used, reinterpret_cast<uintptr_t>(pointer), bytes);
    for (uint32_t i = 0; i < count; ++i) pointer[i] += values[i];
}

}  // namespace kgen::emulator
