# What puts a program into a simulated world, or on a part of one.

# fedge_world_disk(TARGET): what its fibers do with files goes to the simulated disks of tests/world/disk.h. It has
# the functions of tests/world/scheduler.h from elsewhere.
function(fedge_world_disk name)
  foreach(file disk disk_state disk_memory disk_calls disk_content_calls disk_path_calls)
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/world/${file}.c")
  endforeach()
  foreach(function open open64 __open_2 __open64_2 fopen fopen64 mkostemps64 close read __read_chk write lseek64 pread64
      __pread64_chk pwrite64 ftruncate64 posix_fallocate64 fsync fdatasync flock stat stat64 lstat lstat64 fstat fstat64
      access statvfs64 fchmod mkdir unlink rmdir rename opendir readdir readdir64 closedir)
    target_link_options(${name} PRIVATE -Wl,--wrap=${function})
  endforeach()
endfunction()

# fedge_world_heap(TARGET): its memory is that of the nodes in whose fibers it was allocated (tests/world/heap.h).
function(fedge_world_heap name)
  target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/world/heap.c")
  foreach(function malloc calloc realloc free aligned_alloc strdup)
    target_link_options(${name} PRIVATE -Wl,--wrap=${function})
  endforeach()
endfunction()

# fedge_world_threads(TARGET): its threads become fibers of tests/world/scheduler.h, and its memory that of their nodes.
function(fedge_world_threads name)
  fedge_world_heap(${name})
  foreach(file scheduler threads trace)
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/world/${file}.c")
  endforeach()
  target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/fibers/fiber.c")
  foreach(function pthread_create pthread_join pthread_detach pthread_self pthread_once
      pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock
      pthread_rwlock_init pthread_rwlock_destroy pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_unlock
      pthread_cond_init pthread_cond_destroy pthread_cond_wait pthread_cond_timedwait pthread_cond_signal
      pthread_cond_broadcast clock_gettime nanosleep sched_yield getrandom getpid prctl)
    target_link_options(${name} PRIVATE -Wl,--wrap=${function})
  endforeach()
endfunction()

# fedge_world_disk_test(TEST): has one fiber whose files are on a simulated disk (tests/world/disk_stub.h).
function(fedge_world_disk_test name)
  fedge_world_disk(${name})
  target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/world/disk_stub.c")
endfunction()

# fedge_world_disk_kills(TEST): the same, and the fiber may be killed.
function(fedge_world_disk_kills name)
  fedge_world_disk_test(${name})
  fedge_world_heap(${name})
  target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/world/disk_kill.c")
endfunction()
