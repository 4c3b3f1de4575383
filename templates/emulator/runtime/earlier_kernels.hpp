// Programmatic dependent launch: a kernel started by launch_early() may begin before its predecessors have completed,
// and sees their writes only after its wait. Here they have always completed, so an access before the wait would never
// show in the results: any access to device memory before it is therefore an error. Every thread must also wait before
// it exits: a later kernel waits only for this one, and through it for its predecessors.
#pragma once

namespace kgen::emulator {

void await_earlier_kernels() { this_thread().awaits_nothing = true; }

// Reports an access to device memory before the wait.
inline void check_earlier_kernels(const use& used) {
    const device_thread& me = this_thread();
    if (me.awaits_nothing || !self.violations.is_news("early", used, used)) return;
    self.violations.tell(text_of(used) + " of warp " + std::to_string(me.warp) + " lane " + std::to_string(me.lane) +
                         " before its await_earlier_kernels: kernels before this one may not have ended");
}

void check_earlier_kernels_at_end(const device_thread& t) {
    const use nothing = {primitive::none, {"", 0}};
    if (t.awaits_nothing || !self.violations.is_news("early", nothing, nothing)) return;
    self.violations.tell("warp " + std::to_string(t.warp) + " lane " + std::to_string(t.lane) +
                         " ends without await_earlier_kernels: a kernel after this one would not wait for those before it");
}

}  // namespace kgen::emulator
