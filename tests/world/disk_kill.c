#include "tests/world/disk_stub.h"
#include "tests/world/heap.h"

bool ended_by(world_disk_faults faults, void (*work)(void))
{
    set_faults(faults);
    if (setjmp(stub.killed) != 0) {
        world_disk_drop(NODE);
        world_heap_drop(NODE);
        set_faults((world_disk_faults){0});
        return true;
    }
    work();
    set_faults((world_disk_faults){0});
    return false;
}

bool killed_at(uint64_t call, void (*work)(void))
{
    return ended_by((world_disk_faults){.die_at = call}, work);
}
